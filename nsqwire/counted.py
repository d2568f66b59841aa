"""Numbers of things in messages for people."""


def counted(number: int, noun: str, many: str = "") -> str:
    """``1 message``, ``1,200 messages``; ``many`` is the plural of a noun that takes more than an s."""
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"
