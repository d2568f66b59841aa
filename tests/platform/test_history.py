"""The last hour: kept by the collector, fixed in size, there when a page opens."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqplatform.cluster.history import records
from nsqplatform.cluster.history.records import HOUR_S, METRICS, RECORDS, STEP_S, Recorder
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from tests.harness.waiting import wait_until
from tests.platform.snapshots import picture_of

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def picture(second: int, depth: int = 7, rate: float | None = 2.0, topics: int = 1) -> Snapshot:
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
    return picture_of({"version": second, "taken_at": second * 1000, "nodes": [], "topics": rows, "channels": []})


def play(recorder: Recorder, rings: dict[str, bytearray], drawn: Snapshot) -> int:
    """Write as Redis would; returns how many records that was."""
    writes = recorder.record(drawn)
    for key, offset, record in writes:
        ring = rings.setdefault(key, bytearray())
        ring.extend(bytes(max(0, offset + len(record) - len(ring))))
        ring[offset : offset + len(record)] = record
    return len(writes)


START = 1_800_000_000


def test_an_hour_of_polls_gives_an_hour_of_records():
    """A record each ten seconds, the mean of the rates between; what is older is written over."""
    recorder, rings = Recorder(), {}
    for second in range(HOUR_S + 600):
        play(recorder, rings, picture(START + second, depth=second, rate=float(second % STEP_S)))
    (ring,) = [bytes(ring) for key, ring in rings.items() if key.endswith("topic:t0")]
    assert len(ring) == RECORDS * (4 + 4 * len(METRICS["topic"]))
    times, metrics = records.read("topic", ring, START + HOUR_S + 599)
    assert len(times) == RECORDS
    assert {later - earlier for earlier, later in pairwise(times)} == {STEP_S}
    assert metrics["depth"] == [at - START for at in times]
    assert set(metrics["publish_rate"]) == {4.5}
    assert set(metrics["oldest_age_ms"]) == {None}


def test_no_poll_writes_all_series():
    """A tenth of the series is due with each poll, so that large clusters cost the same each second."""
    recorder, rings = Recorder(), {}
    play(recorder, rings, picture(START, topics=1000))
    written = [play(recorder, rings, picture(START + second, topics=1000)) for second in range(1, STEP_S + 1)]
    assert sum(written) == 1001
    assert max(written) < 200


@given(st.lists(st.integers(-30, 30), max_size=40))
def test_clocks_that_step_lose_no_more_than_they_must(steps):
    """Whatever the wall clock does, records are read in order, within the hour, and never from the future."""
    recorder, rings, now = Recorder(), {}, START
    for step in steps:
        now += step
        play(recorder, rings, picture(now))
    for key, ring in rings.items():
        times, _ = records.read(key.split(":")[2], bytes(ring), now)
        assert times == sorted(times)
        assert all(now - HOUR_S < at <= now + STEP_S for at in times)


def test_a_page_that_opens_is_given_the_hour(go_cluster, collect, redis, browser, account):
    """Of a topic, a channel, a node and the cluster; and the collector's restart leaves it as it was."""
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
    """And of a name that nobody has seen there is none, which is no error."""
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    answer = page.request("GET", f"history?{question}")
    assert answer.status_code == 422
    assert complaint in answer.json()["message"]
    assert page.request("GET", "history?scope=topic&topic=nobody").json()["times"] == []


def test_strangers_are_shown_no_history(browser):
    """As with everything."""
    assert browser().request("GET", "history?scope=cluster").status_code == 401
