"""The last hour of figures: kept by the collector, limited in size, shown when a page opens."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqplatform.cluster.history import records
from nsqplatform.cluster.history.recent import recent, shortened
from nsqplatform.cluster.history.records import HOUR_S, METRICS, RECORDS, STEP_S, Recorder
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, Snapshot, View
from tests.harness.waiting import wait_until
from tests.platform.snapshots import snapshot_of

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def snapshot(second: int, depth: int = 7, rate: float | None = 2.0, topics: int = 1) -> Snapshot:
    """One topic on one node, without channels."""
    row: Any = {
        "paused": False,
        "depth": depth,
        "in_flight_count": 3,
        "client_count": 2,
        "publish_rate": rate,
        "byte_rate": rate,
        "oldest_age_ms": None,
        "nodes": [],
    }
    rows: Any = [row | {"name": f"t{number}"} for number in range(topics)]
    return snapshot_of({"version": second, "taken_at": second * 1000, "nodes": [], "topics": rows, "channels": []})


def play(recorder: Recorder, rings: dict[str, bytearray], drawn: Snapshot) -> int:
    """Write as Redis would; returns the number of records."""
    writes = recorder.record(drawn)
    for key, offset, record in writes:
        ring = rings.setdefault(key, bytearray())
        ring.extend(bytes(max(0, offset + len(record) - len(ring))))
        ring[offset : offset + len(record)] = record
    return len(writes)


START = 1_800_000_000


def test_an_hour_of_polls_gives_an_hour_of_records():
    """A record every ten seconds, with the mean of the rates between; the oldest are overwritten."""
    recorder, rings = Recorder(), {}
    for second in range(HOUR_S + 600):
        play(recorder, rings, snapshot(START + second, depth=second, rate=float(second % STEP_S)))
    ring = bytes(rings[records.key_of("topic", "t0")])
    assert len(ring) == RECORDS * (4 + 4 * len(METRICS["topic"]))
    times, metrics = records.read("topic", ring, START + HOUR_S + 599)
    assert len(times) == RECORDS
    assert {later - earlier for earlier, later in pairwise(times)} == {STEP_S}
    assert metrics["depth"] == [at - START for at in times]
    assert set(metrics["publish_rate"]) == {4.5}
    assert set(metrics["oldest_age_ms"]) == {None}


def test_no_poll_writes_all_series():
    """A tenth of the series is due at each poll, so that large clusters cost the same each second."""
    recorder, rings = Recorder(), {}
    play(recorder, rings, snapshot(START, topics=1000))
    written = [play(recorder, rings, snapshot(START + second, topics=1000)) for second in range(1, STEP_S + 1)]
    assert sum(written) == 1001
    assert max(written) < 200


@given(st.lists(st.integers(-30, 30), max_size=40))
def test_clocks_that_step_lose_no_more_than_they_must(steps):
    """Whatever the wall clock does, records are read in order, within the hour, and never from the future."""
    recorder, rings, now = Recorder(), {}, START
    for step in steps:
        now += step
        play(recorder, rings, snapshot(now))
    for key, ring in rings.items():
        times, _ = records.read(key.split(":")[2], bytes(ring), now)
        assert times == sorted(times)
        assert all(now - HOUR_S < at <= now + STEP_S for at in times)


def test_a_page_that_opens_is_given_the_hour(go_cluster, collect, redis, browser, account):
    """For a topic, a channel, a node and the cluster; a restart of the collector does not change it."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders", depth=3)
    alpha.channel("orders", "billing", depth=5, client_count=2)
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    collecting = collect()
    questions = {
        "scope=topic&topic=orders": 8.0,
        "scope=channel&topic=orders&channel=billing": 5.0,
        f"scope=node&node={alpha.address}": 8.0,
        "scope=cluster": 8.0,
    }

    def known(question: str) -> Any:
        answer = page.request("GET", f"history?{question}").json()
        return answer if answer["times"] else None

    for question, depth in questions.items():
        answer = wait_until(lambda question=question: known(question), question)
        assert answer["metrics"]["depth"][-1] == depth
        assert abs(answer["times"][-1] - time.time()) < 30
    collecting.stop()
    for question in questions:
        assert known(question)


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ("scope=topic", "topic"),
        ("scope=channel&topic=orders", "channel"),
        ("scope=everything", "scope"),
        ("scope=node&node=" + "x" * 400, "node"),
    ],
)
def test_a_history_of_nothing_is_refused_by_name(browser, account, question, complaint):
    """An unknown name has no history, which is no error."""
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    answer = page.request("GET", f"history?{question}")
    assert answer.status_code == 422
    assert complaint in answer.json()["message"]
    assert page.request("GET", "history?scope=topic&topic=nobody").json()["times"] == []


def test_the_last_minutes_are_sent_compressed(go_cluster, collect, redis, browser, account):
    """Of a large cluster, they are megabytes of digits."""
    for number in range(40):
        go_cluster.nodes[0].topic(f"orders-{number}", depth=number)
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    collect()
    wait_until(lambda: page.request("GET", "history/recent?topic=orders-7").json()["series"], "records")
    answer = page.request("GET", "history/recent", **{"Accept-Encoding": "gzip"})
    assert answer.status_code == 200
    assert answer.headers["Content-Encoding"] == "gzip"


def test_anonymous_users_are_shown_no_history(browser):
    """Like everything else."""
    assert browser().request("GET", "history?scope=cluster").status_code == 401


@pytest.mark.parametrize("wrapped", [False, True], ids=["within the ring", "over the end of the ring"])
def test_a_page_begins_with_the_last_minutes_of_all_its_series(redis, wrapped):
    """Each record is at its time, unknown where there was none, and the same figures as in the last hour."""
    lap = RECORDS * STEP_S
    end = START // lap * lap + (60 if wrapped else lap // 2)
    recorder, rings = Recorder(), {}
    for second in range(end - 300, end + 1):
        play(recorder, rings, snapshot(second, depth=second - end + 300, topics=2 if second > end - 45 else 1))
    for key, ring in rings.items():
        redis.set(key, bytes(ring))
    shown = snapshot(end, topics=2)
    found = {each.scope: each for each in recent(redis, shown, EVERYTHING, end)}
    topics = found["topic"]
    assert topics.names == ["t0", "t1"]
    for place, name in enumerate(topics.names):
        times, metrics = records.read("topic", bytes(rings[records.key_of("topic", name)]), end)
        told = {
            at + topics.phases[place]: value
            for at, value in zip(topics.times, topics.columns["depth"][place].tolist(), strict=True)
            if value == value
        }
        assert told == {at: value for at, value in zip(times, metrics["depth"], strict=True) if at >= min(told)}
        assert max(told) > end - STEP_S
        assert (min(told) <= end - 60) == (name == "t0"), "the younger topic has no earlier records"
    (of_topic, *_) = recent(redis, shown, View(topic="t0"), end)
    assert (of_topic.scope, of_topic.names, set(of_topic.columns)) == ("topic", ["t0"], set(METRICS["topic"]))
    assert end - of_topic.times[0] >= 120


def test_figures_that_do_not_change_are_sent_once():
    """Most series of a large cluster are idle."""
    nan = float("nan")
    rows = np.array([[nan, 5, 5, 5], [5, 5, 5, nan], [5, nan, 5, 5], [1, 2.123456, 3, 4], [nan] * 4])
    assert shortened(rows) == [[5], [5], [5, None, 5, 5], [1, 2.123, 3, 4], [None] * 4]
