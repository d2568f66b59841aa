"""When a second signal is the first one again."""

from __future__ import annotations

from aionsq.tools.signal_echo import ECHO_S, SignalEcho


def test_signals_within_a_second_of_the_first_are_the_same() -> None:
    """However many; a later one is another."""
    echo = SignalEcho()
    began_at = 1000.0
    ages = (0.0, 0.0, ECHO_S / 2, ECHO_S - 0.001, ECHO_S, 60.0)
    assert [echo.is_echo(began_at + age) for age in ages] == [False, True, True, True, False, False]
