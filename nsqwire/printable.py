"""Text of other machines, for people's terminals and logs."""


def printable(text: str) -> str:
    r"""Return the text with an escape, such as ``\n`` or ``\x1b``, for each character that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
