"""Numbers of things in messages for people."""

from __future__ import annotations

from nsqwire.counted import counted


def test_one_thing_is_singular() -> None:
    assert [counted(n, "message") for n in (0, 1, 2, 1200)] == [
        "0 messages",
        "1 message",
        "2 messages",
        "1,200 messages",
    ]
    assert [counted(n, "message is", "messages are") for n in (1, 3)] == ["1 message is", "3 messages are"]
