"""The limit on the unfinished input of all connections."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsqdaemon.input_budget import FINISH_SECONDS, FIRST, LONG_BYTES, InputBudget

MEGABYTE = 1_048_576
LIMIT = 10 * MEGABYTE


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self._timers.append((self.now + seconds, function))

    def pass_(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self._timers if timer[0] <= end]:
            timer = min(due, key=lambda each: each[0])
            self._timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = end


class Connection:
    """A reader that records whether it may read."""

    waits = closed = False

    def wait_for_memory(self) -> None:
        self.waits = True

    def memory_is_free(self) -> None:
        self.waits = False

    def out_of_memory(self) -> None:
        self.closed = True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock) -> InputBudget:
    return InputBudget(LIMIT, now=lambda: clock.now, call_later=clock.call_later)


@pytest.fixture
def full(budget: InputBudget) -> list[Connection]:
    """Connections with a megabyte each, together more than the limit."""
    connections = [Connection() for _ in range(11)]
    for connection in connections:
        budget.update(connection, MEGABYTE)
    return connections


def test_nobody_waits_below_the_limit(budget: InputBudget) -> None:
    """No connection waits until the limit is reached."""
    connections = [Connection() for _ in range(10)]
    for connection in connections:
        budget.update(connection, MEGABYTE)
    assert not any(connection.waits for connection in connections)


def test_over_the_limit_all_but_the_first_wait(budget: InputBudget, full: list[Connection]) -> None:
    """The server reads from those that began first, so that their commands are completed."""
    assert [connection.waits for connection in full] == [False] * FIRST + [True] * (11 - FIRST)
    late = Connection()
    budget.update(late, LONG_BYTES + 1)
    assert late.waits


def test_short_commands_never_wait(budget: InputBudget, full: list[Connection]) -> None:
    """Only long unfinished commands take part."""
    short = Connection()
    budget.update(short, LONG_BYTES)
    assert not short.waits


def test_the_next_continues_when_one_has_finished(budget: InputBudget, full: list[Connection]) -> None:
    """Connections continue in the order in which they began to wait."""
    full.append(Connection())
    budget.update(full[-1], 5 * MEGABYTE)
    budget.update(full[0], 0)
    assert [connection.waits for connection in full[1:]] == [False] * FIRST + [True] * (11 - FIRST)


def test_another_command_of_the_same_connection_waits_behind_the_others(
    budget: InputBudget, full: list[Connection]
) -> None:
    """A client that sends one long command after another does not block the others."""
    full.append(Connection())
    budget.update(full[-1], 5 * MEGABYTE)
    budget.update(full[0], MEGABYTE, is_new=True)
    assert full[0].waits
    assert not full[FIRST].waits


def test_all_continue_when_there_is_room_again(budget: InputBudget, full: list[Connection]) -> None:
    """At three quarters of the limit."""
    for connection in full[:4]:
        budget.forget(connection)
    assert not any(connection.waits for connection in full)
    assert not budget.is_over


def test_stalled_connections_are_closed_so_that_others_continue(
    budget: InputBudget, full: list[Connection], clock: Clock
) -> None:
    """Stalled clients cannot keep the memory: each that is read from has ten seconds."""
    clock.pass_(FINISH_SECONDS - 1)
    assert not any(connection.closed for connection in full)
    clock.pass_(2)
    assert [connection.closed for connection in full] == [True] * FIRST + [False] * (11 - FIRST)
    assert not any(connection.waits for connection in full[FIRST:])


def test_no_more_connections_are_closed_than_needed(clock: Clock, budget: InputBudget) -> None:
    """Once the unfinished input is small enough, the others continue."""
    connections = [Connection() for _ in range(FIRST)]
    for connection in connections:
        budget.update(connection, LIMIT // FIRST + 1)
    assert budget.is_over
    clock.pass_(FINISH_SECONDS + 1)
    assert [connection.closed for connection in connections] == [True, True, False, False]
    assert not budget.is_over


def test_one_check_at_a_time_is_due(clock: Clock, budget: InputBudget) -> None:
    """However often the limit is exceeded."""
    connection = Connection()
    for _ in range(5):
        budget.update(connection, LIMIT + 1)
        budget.forget(connection)
    assert len(clock._timers) == 1
