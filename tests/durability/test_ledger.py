"""The record that a crash test keeps: each of its rules must be able to fail."""

from __future__ import annotations

import pytest

from bench.ledger import LAST_INSTANT_NS, Ledger

ID = b"0123456789abcdef"
MS = 1_000_000
T0 = 1_700_000_000_000_000_000


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(("work",))


def deliver(
    ledger: Ledger, body: bytes, attempts: int = 1, *, at: int = T0, message_id: bytes = ID, consumer: int = 0
) -> int | None:
    return ledger.delivered("t", "work", message_id, T0, attempts, body, at, consumer)


def finish(ledger: Ledger, serial: int, *, at: int = T0, attempts: int = 1) -> None:
    ledger.finishing("work", serial, at)
    ledger.confirmed("work", [(serial, attempts)])


def test_delivered_and_finished_messages_are_no_loss(ledger: Ledger) -> None:
    """Delivered, finished, not redelivered."""
    body = ledger.publish("t")
    ledger.acknowledged([body])
    assert deliver(ledger, body) == 0
    finish(ledger, 0)
    ledger.close()
    assert ledger.violations == []


def test_an_acknowledged_message_that_never_comes_is_lost(ledger: Ledger) -> None:
    """The record names its channel and the message."""
    ledger.acknowledged([ledger.publish("t")])
    ledger.close()
    assert ledger.violations == ["t/work message 0 (defer 0 ms) was acknowledged and never came"]


def test_a_message_in_flight_that_does_not_come_back_after_a_kill_is_lost(ledger: Ledger) -> None:
    """Its delivery before the kill is not enough."""
    body = ledger.publish("t")
    ledger.acknowledged([body])
    deliver(ledger, body)
    ledger.killed(T0)
    ledger.close()
    assert ledger.violations == ["t/work message 0 (defer 0 ms) was acknowledged and never came back to be finished"]


def test_a_message_that_was_not_acknowledged_may_be_lost(ledger: Ledger) -> None:
    """Only acknowledged messages are guaranteed."""
    ledger.publish("t")
    ledger.close()
    assert ledger.violations == []


def test_a_finish_may_be_forgotten_in_the_last_instant_only(ledger: Ledger) -> None:
    """A finish processed well before the kill must be kept."""
    for age, broken in ((LAST_INSTANT_NS // 2, False), (LAST_INSTANT_NS * 2, True)):
        body = ledger.publish("t")
        serial = len(ledger.published) - 1
        deliver(ledger, body)
        finish(ledger, serial)
        ledger.killed(T0 + age)
        deliver(ledger, body, 2, at=T0 + age)
        assert bool(ledger.violations) is broken
    assert ledger.counts["finished in the last instant, redelivered"] == 1
    assert "came back although it was finished 200 ms before the kill" in ledger.violations[0]


def test_a_finish_that_was_not_confirmed_may_be_forgotten(ledger: Ledger) -> None:
    """The broker may never have read it."""
    body = ledger.publish("t")
    deliver(ledger, body)
    ledger.finishing("work", 0, T0)
    ledger.killed(T0 + 10 * LAST_INSTANT_NS)
    deliver(ledger, body, 1)
    assert ledger.violations == []
    assert ledger.counts["redelivered while their finish was under way"] == 1


def test_a_finished_message_may_not_come_back_without_a_crash(ledger: Ledger) -> None:
    """Not even in the last instant, because there was no crash."""
    body = ledger.publish("t")
    deliver(ledger, body)
    finish(ledger, 0)
    deliver(ledger, body, 2)
    assert ledger.violations == ["t/work message 0 (attempt 2) came back although it was finished"]


def test_a_message_whose_finish_was_refused_must_come_back(ledger: Ledger) -> None:
    """It timed out before the FIN."""
    body = ledger.publish("t")
    ledger.acknowledged([body])
    deliver(ledger, body)
    ledger.finishing("work", 0, T0)
    ledger.refused("work", 0, 1)
    deliver(ledger, body, 2)
    assert ledger.violations == []
    assert ledger.unfinished == {("work", 0)}


@pytest.mark.parametrize(
    ("before", "after", "killed", "broken"),
    [(1, 2, False, False), (3, 2, False, True), (2, 2, False, True), (2, 2, True, False), (3, 2, True, True)],
)
def test_attempts_never_go_down(ledger: Ledger, before: int, after: int, killed: bool, broken: bool) -> None:
    """The same number twice is permitted only after a crash."""
    body = ledger.publish("t")
    deliver(ledger, body, before)
    if killed:
        ledger.killed(T0)
    deliver(ledger, body, after)
    says = f"t/work message 0 (attempt {after}) had attempt {before} before" + (", and then a kill" if killed else "")
    assert ledger.violations == ([says] if broken else [])


@pytest.mark.parametrize(("killed", "broken"), [(False, False), (True, True)])
def test_what_was_sent_before_may_be_read_later_on_another_connection(
    ledger: Ledger, killed: bool, broken: bool
) -> None:
    """As long as the broker lives: a message that timed out in one socket is redelivered in another."""
    body = ledger.publish("t")
    assert deliver(ledger, body, 2, consumer=1) == 0
    if killed:
        ledger.killed(T0)
    assert deliver(ledger, body, 1, consumer=2) == (0 if broken else None)
    assert bool(ledger.violations) == broken


def test_a_deferred_message_may_not_come_early(ledger: Ledger) -> None:
    """Measured from the broker's own timestamp."""
    body = ledger.publish("t", 500)
    deliver(ledger, body, at=T0 + 400 * MS)
    assert ledger.violations == ["t/work message 0 (attempt 1) came 100 ms before its deferral was over"]


def test_a_requeued_message_may_not_come_early(ledger: Ledger) -> None:
    """Also across a crash, once the broker had processed the REQ."""
    body = ledger.publish("t")
    deliver(ledger, body)
    ledger.requeueing("work", 0, T0 + 500 * MS)
    ledger.confirmed("work", [(0, 1)])
    ledger.killed(T0 + 10 * MS)
    deliver(ledger, body, 2, at=T0 + 400 * MS)
    assert ledger.violations == ["t/work message 0 (attempt 2) came 100 ms before its requeue was due"]


def test_a_message_that_nobody_published_may_not_come(ledger: Ledger) -> None:
    """A damaged body, an unknown one, or one of another topic."""
    body = ledger.publish("t")
    ledger.publish("other")
    assert deliver(ledger, body[:-1] + bytes([body[-1] ^ 1])) is None
    assert deliver(ledger, b"never sent") is None
    assert deliver(ledger, b"1:x") is None
    assert len(ledger.violations) == 3


def test_a_message_may_not_change_its_id(ledger: Ledger) -> None:
    """Not even when it is redelivered."""
    body = ledger.publish("t")
    deliver(ledger, body)
    deliver(ledger, body, 2, message_id=ID[::-1])
    assert "changed its id" in ledger.violations[0]
