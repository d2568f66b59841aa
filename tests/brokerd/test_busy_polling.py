"""Busy polling: the event loop stays awake for a client that sends its next command soon, and only for such a
client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokerd.net.busy_polling import MAX_CREDIT, POLL_SECONDS, PROBE_EVERY, BusyPolling

CLIENTS = [object() for _ in range(8)]


class Loop:
    """An event loop whose iterations and time the test controls."""

    def __init__(self) -> None:
        self.now = 100.0
        self._soon: list[Callable[[], None]] = []
        self.polling = BusyPolling(self._soon.append, lambda: self.now)

    @property
    def sleeps(self) -> bool:
        """True if the loop would sleep until input arrives."""
        return not self._soon

    def turn(self) -> None:
        due, self._soon[:] = list(self._soon), []
        for call in due:
            call()

    def is_awake_after(self, seconds: float) -> bool:
        """Let time pass in many iterations unless the loop sleeps. Returns whether it is still awake."""
        until = self.now + seconds
        while self.now < until and not self.sleeps:
            self.turn()
            self.now += POLL_SECONDS / 10
        self.now = max(self.now, until)
        return not self.sleeps

    def polls(self, inputs: int, gap: float, clients: int = 1) -> int:
        """Let inputs of ``clients`` arrive in turn, ``gap`` seconds apart. Returns how many were followed by a poll."""
        polls = 0
        for number in range(inputs):
            self.polling.input_arrived(CLIENTS[number % clients])
            polls += not self.sleeps
            self.is_awake_after(gap)
        return polls


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_the_loop_stays_awake_for_a_client_that_sends_its_next_command_soon(loop: Loop) -> None:
    """Once one poll has found its next command, a client that waits for each response finds the broker awake."""
    loop.polls(PROBE_EVERY, POLL_SECONDS / 2)
    assert loop.polls(1000, POLL_SECONDS / 2) == 1000
    assert not loop.sleeps


def test_the_loop_sleeps_soon_after_the_last_input(loop: Loop) -> None:
    """A broker without input uses no processor time."""
    loop.polls(1000, POLL_SECONDS / 2)
    assert not loop.is_awake_after(2 * POLL_SECONDS)


@pytest.mark.parametrize("gap", [2 * POLL_SECONDS, 1.0])
def test_input_that_comes_too_late_for_a_poll_is_seldom_polled_for(loop: Loop, gap: float) -> None:
    """Polls that find nothing follow at most one in 64 inputs."""
    loop.polls(1000, POLL_SECONDS / 2)
    loop.polls(MAX_CREDIT, gap)
    assert loop.polls(10 * PROBE_EVERY, gap) == 10


def test_the_loop_sleeps_between_the_inputs_of_many_clients(loop: Loop) -> None:
    """A poll that ends with another client's input does not count as a success; otherwise a busy broker would never
    sleep."""
    loop.polls(1000, POLL_SECONDS / 2)
    loop.polls(MAX_CREDIT, POLL_SECONDS / 2, clients=8)
    loop.is_awake_after(2 * POLL_SECONDS)
    assert loop.polls(8 * PROBE_EVERY, POLL_SECONDS / 2, clients=8) <= 4 * 8


def test_input_of_one_turn_is_no_success_of_a_poll(loop: Loop) -> None:
    """Many clients that send rarely, but at the same moment, do not keep the loop awake."""
    polls = 0
    for _ in range(10 * PROBE_EVERY):
        for client in CLIENTS:
            loop.polling.input_arrived(client)
        polls += not loop.sleeps
        loop.is_awake_after(2 * POLL_SECONDS)
    assert polls == 10 * 8


def test_a_late_input_now_and_then_does_not_end_the_polling(loop: Loop) -> None:
    """A pause of the client, such as a garbage collection, costs one poll."""
    loop.polls(1000, POLL_SECONDS / 2)
    for _ in range(10):
        assert loop.polls(99, POLL_SECONDS / 2) == 99
        loop.polls(1, 3 * POLL_SECONDS)
