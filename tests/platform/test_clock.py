"""Times of readings while the machine's clock is corrected."""

from __future__ import annotations

from itertools import pairwise

from nsqplatform.cluster.readings.clock import Clock


class Machine:
    """A machine's two clocks."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_700_000_000.0, 50.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.monotonic)


def test_times_increase_while_a_clock_that_was_set_back_catches_up():
    """No reading has an earlier time than the one before, and after twice the correction, times are the machine's
    again."""
    machine = Machine()
    clock = machine.clock()
    times = [clock.now()]
    machine.wall -= 300
    for _ in range(601):
        machine.passes(1)
        times.append(clock.now())
    assert all(earlier < later for earlier, later in pairwise(times))
    assert times[1] - times[0] == 0.5
    assert times[-1] == machine.wall


def test_a_clock_that_is_set_forward_is_followed_at_once():
    machine = Machine()
    clock = machine.clock()
    clock.now()
    machine.wall += 7200
    assert clock.now() == machine.wall


def test_a_clock_that_was_hours_ahead_is_followed_back():
    """Such wrong times would last for hours; the archive's reader uses the nodes' uptimes."""
    machine = Machine()
    clock = machine.clock()
    clock.now()
    machine.wall -= 7200
    assert clock.now() == machine.wall


def test_another_process_continues_after_the_last_time():
    """Times do not go back at a restart either, unless the last one was hours ahead."""
    machine = Machine()
    clock = machine.clock()
    clock.not_before(machine.wall + 240)
    machine.passes(1)
    assert clock.now() == machine.wall - 1 + 240.5
    clock = machine.clock()
    clock.not_before(machine.wall + 9000)
    assert clock.now() == machine.wall
