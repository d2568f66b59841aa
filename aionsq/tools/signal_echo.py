"""A signal that arrives twice although it was sent once."""

from __future__ import annotations

from typing import Final

from nsqwire.units import Seconds

ECHO_S: Final = 1.0


class SignalEcho:
    """Recognizes a signal that repeats the first one within ECHO_S. After any other one, a program does not wait.

    coreutils' ``timeout`` sends its signal to the program and to the program's group, and so twice; service managers
    that signal a group, and a shell's ``kill 0``, may do the same.
    """

    def __init__(self) -> None:
        self._first_at: Seconds | None = None

    def is_echo(self, now: Seconds) -> bool:
        """Record a signal, and return whether it repeats the first one."""
        if self._first_at is None:
            self._first_at = now
            return False
        return now - self._first_at < ECHO_S
