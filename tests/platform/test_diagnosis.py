"""The sentence that gives the reason for a channel's backlog, and claims no more than its figures support."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqplatform.cluster.diagnosis.sentence import SMALLEST_RATE, ChannelFigures, Pause, diagnose
from nsqplatform.cluster.diagnosis.services import Absence, mean_of_last, without_consumer
from tests.harness.waiting import wait_until

NOW = datetime(2026, 11, 23, 14, 30, tzinfo=UTC)
USUAL: dict[str, Any] = {
    "now": NOW,
    "depth": 4171,
    "in_flight_count": 10,
    "deferred_count": 0,
    "client_count": 1,
    "publish_rate": 34.0,
    "finish_rate": 17.0,
    "requeue_rate": 0.0,
    "timeout_rate": 0.0,
    "ready_count": 10,
}
ABSENT = {"client_count": 0, "in_flight_count": 0, "ready_count": 0, "finish_rate": 0.0}
ANA = Pause(since=datetime(2026, 11, 23, 14, 2, tzinfo=UTC), by="ana")

CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "slow": (
        {},
        "growing",
        "34/s in, 17/s out: one consumer, 10 of 10 in flight, 0.6 s a message; at this rate it never drains",
    ),
    "as fast": (
        {"finish_rate": 34.0},
        "growing",
        "34/s in, 34/s out: one consumer, 10 of 10 in flight, 0.3 s a message; at this rate it never drains",
    ),
    "draining": (
        {"finish_rate": 50.0, "client_count": 2, "ready_count": 2500},
        "draining",
        "34/s in, 50/s out: 2 consumers, 10 of 2,500 in flight, 0.2 s a message; at this rate it drains in 4 min",
    ),
    "RDY not known": (
        {"ready_count": None},
        "growing",
        "34/s in, 17/s out: one consumer, 10 in flight, 0.6 s a message; at this rate it never drains",
    ),
    "paused": ({"pause": ANA, "paused_nodes": 1}, "paused", "Paused since 14:02 by ana: 4,171 messages waiting"),
    "paused long ago": (
        {"pause": Pause(since=NOW - timedelta(days=20), by="ana"), "paused_nodes": 1, "depth": 0},
        "paused",
        "Paused since 3 Nov 2026 14:30 by ana: no message is waiting",
    ),
    "paused elsewhere": ({"pause": Pause(), "paused_nodes": 1, "depth": 1}, "paused", "Paused: 1 message waiting"),
    "paused in part": (
        {"pause": ANA, "paused_nodes": 1, "nodes": 3},
        "paused",
        "Paused on 1 of 3 nodes since 14:02 by ana: 4,171 messages waiting",
    ),
    "topic paused": (
        {"topic_pause": ANA, "topic_depth": 7},
        "topic_paused",
        "Topic paused since 14:02 by ana: 7 messages in the topic",
    ),
    "no consumer": (
        ABSENT | {"no_consumer_s": 363.0},
        "no_consumer",
        "No consumer for 6 min: 4,171 messages waiting, 34/s in",
    ),
    "no consumer for the whole hour": (
        ABSENT | {"no_consumer_s": 3590.0, "no_consumer_before": True, "publish_rate": 0.0},
        "no_consumer",
        "No consumer for at least 60 min: 4,171 messages waiting",
    ),
    "no consumer, time not known": (
        ABSENT | {"depth": 0, "publish_rate": None},
        "no_consumer",
        "No consumer: no message is waiting",
    ),
    "requeued": (
        {"requeue_rate": 8.5},
        "requeued",
        "About every third delivery is requeued: 8.5/s of 26/s; 4,171 messages waiting",
    ),
    "all requeued": (
        {"finish_rate": 0.0, "requeue_rate": 9.0},
        "requeued",
        "Every delivery is requeued: 9/s of 9/s; 4,171 messages waiting",
    ),
    "timed out": (
        {"timeout_rate": 4.3, "depth": 0},
        "timed_out",
        "About every fifth delivery times out: 4.3/s of 21/s; no message is waiting",
    ),
    "stuck": (
        {"finish_rate": 0.0},
        "stuck",
        "34/s in, nothing is finished: one consumer, 10 of 10 in flight; 4,171 messages waiting",
    ),
    "not ready": (
        {"finish_rate": 0.0, "ready_count": 0, "in_flight_count": 0},
        "not_ready",
        "One consumer, 0 in flight, not ready for messages (RDY 0): 4,171 messages waiting",
    ),
    "keeps up": (
        {"depth": 3, "finish_rate": 34.2},
        "keeping_up",
        "Keeps up: 34/s in, 34/s out, one consumer, 10 of 10 in flight",
    ),
    "all in flight": (
        {"depth": 0, "deferred_count": 5},
        "no_backlog",
        "No message is waiting: 34/s in, 17/s out, one consumer, 10 of 10 in flight, 5 deferred",
    ),
    "idle": (
        {"depth": 0, "publish_rate": 0.0, "finish_rate": 0.0, "in_flight_count": 0},
        "idle",
        "Idle: no message is waiting, 0 in flight",
    ),
    "deferred": (
        {"depth": 0, "publish_rate": 0.0, "finish_rate": 0.0, "deferred_count": 120},
        "deferred",
        "No message is waiting; 120 deferred",
    ),
    "first second": (
        {"finish_rate": None},
        "unknown",
        "One consumer, 10 of 10 in flight, 4,171 messages waiting; rates are not known yet",
    ),
    "a node is down": (
        {"pause": Pause(), "paused_nodes": 1, "depth": 0, "down": ("b:4151",)},
        "paused",
        "Paused: no message is waiting (b:4151 does not answer; counts include the last known values)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_cause_has_its_sentence(name):
    """In an operator's words."""
    changed, cause, text = CASES[name]
    assert diagnose(ChannelFigures(**USUAL | changed), UTC) == (cause, text)


def test_times_are_in_the_readers_zone():
    """14:02 UTC is 15:02 in Vienna in winter."""
    found = diagnose(ChannelFigures(**USUAL | {"pause": ANA, "paused_nodes": 1}), ZoneInfo("Europe/Vienna"))
    assert found.text.startswith("Paused since 15:02 by ana")


counts = st.integers(0, 10**7)
rates = st.one_of(st.none(), st.just(0.0), st.floats(0, 1e6))
pauses = st.one_of(
    st.none(), st.builds(Pause, since=st.one_of(st.none(), st.just(NOW)), by=st.sampled_from(["", "ana"]))
)
figures = st.builds(
    ChannelFigures,
    now=st.just(NOW),
    depth=counts,
    in_flight_count=counts,
    deferred_count=counts,
    client_count=st.integers(0, 3),
    publish_rate=rates,
    finish_rate=rates,
    requeue_rate=rates,
    timeout_rate=rates,
    ready_count=st.one_of(st.none(), counts),
    pause=pauses,
    topic_pause=pauses,
    topic_depth=counts,
    paused_nodes=st.just(1),
    no_consumer_s=st.one_of(st.none(), st.floats(0, 3600)),
    no_consumer_before=st.booleans(),
    down=st.sampled_from([(), ("a:1",), ("a:1", "b:1")]),
)


@given(figures)
def test_the_sentence_never_claims_what_the_figures_do_not_say(of):
    """For any figures: each claim is supported by them, and each number is one of them."""
    _, text = diagnose(of, UTC)
    came, left = of.publish_rate, of.finish_rate
    known = None not in (came, left, of.requeue_rate, of.timeout_rate)
    claims = {
        "never drains": known and came >= left and of.depth > 0,
        "drains in": known and left > came and of.depth > 0,
        "No consumer": of.client_count == 0,
        "consumer for": of.no_consumer_s is not None,
        "at least": of.no_consumer_before,
        "Paused": of.pause is not None,
        "Topic paused": of.topic_pause is not None,
        "by ana": "ana" in {pause.by for pause in (of.pause, of.topic_pause) if pause},
        " since ": any(pause and pause.since for pause in (of.pause, of.topic_pause)),
        "requeued": known and of.requeue_rate >= SMALLEST_RATE,
        "times out": known and of.timeout_rate >= SMALLEST_RATE,
        "no message is waiting": of.depth == 0,
        "nothing is finished": known and left < SMALLEST_RATE,
        "RDY 0": of.ready_count == 0,
        "Keeps up": known and left >= 0.95 * came and of.depth <= left,
        "Idle": known and max(came, left) < SMALLEST_RATE and of.depth == 0,
        "not known": not known,
        "not answer": bool(of.down),
    }
    for claim, holds in claims.items():
        assert holds or claim not in text, (claim, text)
    for number in re.findall(r"([\d,]+) messages? waiting", text):
        assert int(number.replace(",", "")) == of.depth
    for in_flight in re.findall(r"([\d,]+)(?: of [\d,]+)? in flight", text):
        assert int(in_flight.replace(",", "")) == of.in_flight_count
    assert "nan" not in text
    assert "inf" not in text.replace("in flight", "")


@given(requeued=st.floats(0.1, 1e5), others=st.floats(0, 1e5))
def test_every_nth_is_about_the_share(requeued, others):
    """``About every third`` is between a second and a fourth."""
    of = ChannelFigures(**USUAL | {"finish_rate": others, "requeue_rate": requeued})
    found = re.match(r"About every (\w+?)(?:th)? delivery", diagnose(of, UTC).text)
    if found:
        number = {"second": 2, "third": 3, "four": 4, "fif": 5}.get(found[1]) or int(found[1])
        assert 1 / (number + 0.51) <= requeued / (requeued + others) <= 1 / (number - 0.67)


@pytest.mark.parametrize(
    ("times", "clients", "expected"),
    [
        ([10, 20, 30], [1.0, 0.0, 0.0], Absence(15.0, False)),
        ([10, 20, 30], [0.0, 0.0, 0.0], Absence(25.0, True)),
        ([10, 20, 30], [0.0, 0.0, 2.0], None),
        ([], [], None),
    ],
)
def test_the_time_without_a_consumer_is_that_of_the_last_records(times, clients, expected):
    """It may be longer if there is no earlier record of a consumer."""
    assert without_consumer(times, clients, 35.0) == expected


def test_a_gap_in_the_records_is_no_time_without_a_consumer():
    """There may have been one while no collector ran."""
    assert without_consumer([10, 20, 500, 510], [1.0, 0.0, 0.0, 0.0], 515.0) == Absence(15.0, True)
    assert without_consumer([10, 20], [0.0, 0.0], 515.0) is None


def test_rates_are_means_of_the_last_minute():
    """Older records do not count, nor unknown values."""
    assert mean_of_last([10, 50, 60, 70], [100.0, 1.0, None, 3.0], 75.0) == 2.0
    assert mean_of_last([10], [1.0], 75.0) is None


# ---- over HTTP


@pytest.fixture
def ask(browser, account) -> Callable[..., Any]:
    account("operator", "ana")
    page = browser()
    page.sign_in("ana")

    def request(path: str, body: Any = None) -> Any:
        return page.request("POST" if body else "GET", path, body)

    return request


@pytest.mark.django_db(transaction=True)
@pytest.mark.database
def test_a_paused_channel_says_who_paused_it(cluster, collect, ask):
    """User and time are from the audit trail; a later pause by other means has neither."""
    cluster.make_channel("orders", "billing")
    collect()
    question = "diagnosis?topic=orders&channel=billing"

    def text() -> str:
        return ask(question).json().get("text", "")

    wait_until(lambda: text().startswith("No consumer"), "the channel")
    assert ask("actions", {"action": "pause", "topic": "orders", "channel": "billing"}).status_code == 200
    said = wait_until(lambda: (found := text()).startswith("Paused since") and found, "the pause")
    assert re.fullmatch(r"Paused since \d\d:\d\d by ana: no message is waiting", said)
    assert ask("actions", {"action": "unpause", "topic": "orders", "channel": "billing"}).status_code == 200
    wait_until(lambda: text().startswith("No consumer"), "the end of the pause")
    for broker in cluster.brokers:
        broker.post("/channel/pause", topic="orders", channel="billing")
    wait_until(lambda: text() == "Paused: no message is waiting", "a pause of somebody else")


@pytest.mark.django_db(transaction=True)
@pytest.mark.database
def test_a_question_about_nothing_is_refused(go_cluster, collect, ask, browser, snapshot):
    """404 for a channel that no node has, 422 for an unknown zone, 401 for strangers."""
    collect()
    wait_until(snapshot, "a snapshot")
    assert browser().request("GET", "diagnosis?topic=t&channel=c").status_code == 401
    assert ask("diagnosis?topic=t&channel=c").status_code == 404
    assert "channel" in ask("diagnosis?topic=t").json()["message"]
    for zone in ("Mars/Phobos", "../../etc/passwd", "Europe"):
        answer = ask(f"diagnosis?topic=t&channel=c&time_zone={zone}")
        assert (answer.status_code, "time_zone" in answer.json()["message"]) == (422, True)
