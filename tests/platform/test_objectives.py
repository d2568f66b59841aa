"""Objectives: what the collector counts, when their alerts fire and end, and that page and report agree with it.

Readings are scripted minute by minute and go the collector's way: through its archiver to the archive and to the
counting; no test waits for a clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.alerts import persistence as alert_persistence
from nsqplatform.alerts.engine import Engine, Fired
from nsqplatform.cluster.collector.archiver import Archiver
from nsqplatform.cluster.collector.listeners import Listeners
from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.readings.reading import NodeView, Reading
from nsqplatform.cluster.readings.stats import parse_stats
from nsqplatform.cluster.snapshots.snapshot import EMPTY
from nsqplatform.objectives import persistence
from nsqplatform.objectives.burns import burns
from nsqplatform.objectives.counting import Counting
from nsqplatform.objectives.models import Count, Last, Objective
from nsqwire.histogram import UPPER_BOUNDS, Histogram, bound_of
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]

START = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
AFTER_S = 10
"""Each minute is read this many seconds after its start."""
FAST_NS, SLOW_NS = 40_000_000, 500_000_000
LATENCY = {
    "name": "Orders in time",
    "kind": "latency",
    "threshold_ms": 100,
    "target_percent": 99.0,
    "topic_pattern": "orders",
    "channel_pattern": "*",
}
SUCCESS = {
    "name": "Payments succeed",
    "kind": "success",
    "target_percent": 99.0,
    "topic_pattern": "pay*",
    "channel_pattern": "card",
}


@pytest.fixture
def admin(browser: Any, account: Any) -> Any:
    client = browser()
    account("admin")
    client.sign_in("admin")
    return client


@dataclass
class ScriptedChannel:
    """A channel's counters, as a broker of ours reports them."""

    histogram: Histogram = field(default_factory=Histogram)
    requeues: int = 0
    timeouts: int = 0

    def stats(self, name: str) -> dict[str, Any]:
        counters = {"message_count": self.histogram.count, "requeue_count": self.requeues}
        counters |= {"timeout_count": self.timeouts, "depth": 0}
        return {"channel_name": name, "latency_histogram": self.histogram.to_json()} | counters


class ScriptedNode:
    """A node whose channels a test changes, and reads at any time."""

    def __init__(self, name: str, started_at: int = START - 86_400, boot: str = "b1") -> None:
        self.name, self.started_at, self.boot = name, started_at, boot
        self.channels: dict[tuple[str, str], ScriptedChannel] = {}
        self.uncounted: list[tuple[str, str]] = []

    def channel(self, topic: str, name: str) -> ScriptedChannel:
        return self.channels.setdefault((topic, name), ScriptedChannel())

    def finish(self, topic: str, name: str, *, fast: int = 0, slow: int = 0) -> None:
        histogram = self.channel(topic, name).histogram
        histogram.record(FAST_NS, fast)
        histogram.record(SLOW_NS, slow)

    def restart(self, at: int) -> None:
        self.started_at, self.boot, self.channels = at, f"b{at}", {}

    def view(self, at: float) -> NodeView:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, name), channel in self.channels.items():
            topics.setdefault(topic, []).append(channel.stats(name))
        for topic, name in self.uncounted:
            topics.setdefault(topic, []).append({"channel_name": name, "message_count": 5, "depth": 0})
        answer = {
            "version": "1.3.0",
            "boot_id": self.boot,
            "start_time": self.started_at,
            "uptime_ns": int((at - self.started_at) * 1e9),
            "topics": [
                {"topic_name": topic, "depth": 0, "message_count": 0, "channels": channels}
                for topic, channels in topics.items()
            ],
        }
        latest = Reading(parse_stats(json.dumps(answer).encode()), read_at=at, taken_at_s=at)
        return NodeView(node=Node(id=self.name, address=self.name), error=None, latest=latest)


class ScriptedCollector:
    """The parts of a collector that count, with the readings of a test. ``end`` ends it as SIGTERM does."""

    def __init__(self, archive: str) -> None:
        self.counting = Counting()
        self._archiver = Archiver(lambda: ArchiveWriter(archive))
        self._archiver.on_batch = Listeners([self.counting]).on_batch
        self._loop = asyncio.new_event_loop()

    def poll(self, at: float, *nodes: ScriptedNode) -> None:
        async def archive() -> None:
            self._archiver.add([node.view(at) for node in nodes], now=at)
            await self._archiver.finish()

        self._loop.run_until_complete(archive())
        self.counting.count()

    def end(self) -> None:
        self._loop.run_until_complete(self.counting.finish())
        self._loop.close()


@pytest.fixture
def collector(redis: Any, settings: Any, tmp_path: Path) -> Iterator[Callable[[], ScriptedCollector]]:
    """Makes collectors, one after the other, of one archive."""
    settings.NSQ_ARCHIVE = str(tmp_path / "archive")
    made: list[ScriptedCollector] = []

    def make() -> ScriptedCollector:
        made.append(ScriptedCollector(settings.NSQ_ARCHIVE))
        return made[-1]

    yield make
    for each in made:
        if not each._loop.is_closed():
            each._loop.close()


@pytest.fixture
def create(admin: Any) -> Callable[..., int]:
    def create(values: Mapping[str, Any], **changes: Any) -> int:
        made = admin.request("POST", "objectives", {**values, **changes})
        assert made.status_code == 201, made.content
        return int(made.json()["id"])

    return create


def counted(objective: int) -> tuple[int, int]:
    """The stored good and bad messages."""
    rows = Count.objects.filter(objective=objective)
    return sum(row.good for row in rows), sum(row.bad for row in rows)


def minute(number: int) -> int:
    return START + 60 * number


# ---- alerts, page and report

MINUTES = 120


def script(number: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The good and bad messages of the minute, of both objectives: latency fails for 55 minutes, success for 21.

    There is much more traffic afterwards, so that the alerts of long times end soon, too."""
    latency = (5, 95) if 30 < number <= 85 else (100, 0) if number <= 85 else (20_000, 3)
    success = (40, 60) if 40 < number <= 61 else (99, 1) if number % 10 == 0 else (100, 0)
    return latency, success


def expected_events(which: int, long_s: int, short_s: int, limit: float) -> list[tuple[bool, int]]:
    """The moments, by the arithmetic alone, at which both burn rates rise above the limit (True), and at which one of
    them does not exceed it any more (False)."""
    events, burning = [], False
    for end in range(1, MINUTES + 1):
        rates = []
        for span_s in (long_s, short_s):
            minutes = [script(number)[which] for number in range(max(1, end - span_s // 60), end)]
            total, bad = sum(map(sum, minutes)), sum(bad for _, bad in minutes)
            counted_s = min(span_s, 60 * end - AFTER_S)
            rates.append(bad / total / 0.01 * counted_s / span_s if total else 0.0)
        if (min(rates) > limit) != burning:
            burning = not burning
            events.append((burning, minute(end)))
    return events


PAIRS = {"burn_1h": (3600, 300, 14.4), "burn_6h": (21_600, 1800, 6.0), "burn_3d": (259_200, 21_600, 1.0)}


def run_report(archive: str, output: Path, **parameters: Any) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "nsqanalytics", "run", "objectives", "--archive", archive, "--output", str(output)]
    for name, value in parameters.items():
        command += ["--parameter", f"{name}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    return list(pq.read_table(output).to_pylist())


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_alerts_follow_the_arithmetic_and_page_and_report_agree(admin, create, collector, settings, tmp_path):
    """Each alert fires and ends within a minute of the moment at which the burn rates of its pair cross the limit, and
    no other fires. The page's messages are those of the script, and so are the report's, from the archive."""
    numbers = [create(LATENCY), create(SUCCESS)]
    suggested = admin.request("GET", "alerts/rules/suggested").json()["rules"]
    for rule in (each for each in suggested if each["scope"] == "objective"):
        assert admin.request("POST", "alerts/rules", rule).status_code == 201
    rules = alert_persistence.rules()
    metrics = {rule.pk: rule.metric for rule in rules}
    engine, collecting = Engine(settling_s=0.0), collector()
    engine.set_rules(rules, now=START)
    node, other = ScriptedNode("a:4151"), ScriptedNode("b:4151")
    node.finish("orders", "billing", fast=1000, slow=1000)  # before the objectives
    other.uncounted = [("orders", "billing")]  # as of Go's nsqd
    events: dict[tuple[str, str], list[tuple[bool, float]]] = {}

    for number in range(MINUTES + 1):
        if number:
            (fast, slow), (finished, failed) = script(number)
            node.finish("orders", "billing", fast=fast - 5, slow=slow)
            other.finish("orders", "audit", fast=5)
            node.finish("payments", "card", fast=finished)
            node.finish("payments", "cash", slow=7)  # of no objective
            node.channel("payments", "card").requeues += failed // 2
            node.channel("payments", "card").timeouts += failed - failed // 2
        now = minute(number) + AFTER_S
        collecting.poll(now, node, other)
        found = [each for some in engine.evaluate(EMPTY, None, burns(), now=now) for each in some]
        alert_persistence.save(found)
        for event in found:
            name = event.subject.objective
            number_of_rule = event.rule.pk if isinstance(event, Fired) else event.rule_id
            events.setdefault((name, metrics[number_of_rule]), []).append((isinstance(event, Fired), event.at))

    for which, values in enumerate((LATENCY, SUCCESS)):
        for metric, (long_s, short_s, limit) in PAIRS.items():
            wanted = expected_events(which, long_s, short_s, limit)
            seen = events.get((str(values["name"]), metric), [])
            assert [fired for fired, _ in seen] == [fired for fired, _ in wanted], (values["name"], metric)
            for (_, at), (_, moment) in zip(seen, wanted, strict=True):
                assert 0 <= at - moment <= 60, (values["name"], metric)
    # The script is such that all pairs of the one objective fire and end, and one of the other.
    assert sorted(events) == [
        *(("Orders in time", metric) for metric in sorted(PAIRS)),
        ("Payments succeed", "burn_1h"),
    ]
    past = admin.request("GET", "alerts?state=resolved&subject=payments").json()["alerts"]
    assert [(each["objective"], each["metric"], each["resolution"]) for each in past] == [
        ("Payments succeed", "burn_1h", "cleared")
    ]
    assert "× over 1 h, " in past[0]["detail"]

    pages = [admin.request("GET", f"objectives/{each}").json() for each in numbers]
    for which, page in enumerate(pages):
        minutes = [script(number)[which] for number in range(1, MINUTES)]
        good, bad = sum(good for good, _ in minutes), sum(bad for _, bad in minutes)
        assert (page["good"], page["bad"]) == (good, bad)
        assert page["allowed"] == pytest.approx((good + bad) / 100)
        assert page["left_percent"] == pytest.approx(100 - 100 * bad / ((good + bad) / 100))
        assert (sum(page["history"]["good"]), sum(page["history"]["bad"])) == (good, bad)
        assert page["history"]["left_percent"][-1] == pytest.approx(page["left_percent"])
        assert page["counted_until"] == minute(MINUTES) * 1000
    assert [page["uncounted_nodes"] for page in pages] == [["b:4151"], []]

    rows = run_report(
        settings.NSQ_ARCHIVE,
        tmp_path / "result",
        counting="messages",
        latency_ms=100,
        objective_percent=99,
        period=f"{MINUTES}m",
        until=datetime.fromtimestamp(minute(MINUTES), UTC).isoformat(),
    )
    of_period = [row for row in rows if row["span"] == "period"]
    for page, kind, topic, channels in zip(
        pages, ("latency", "success"), ("orders", "payments"), (("billing", "audit"), ("card",)), strict=True
    ):
        own = [r for r in of_period if (r["objective"], r["topic"]) == (kind, topic) and r["channel"] in channels]
        assert len(own) == len(channels)
        assert sum(row["held_count"] for row in own) == page["good"]
        assert sum(row["missed_count"] for row in own) == page["bad"]
    [card] = [row for row in of_period if row["channel"] == "card" and row["objective"] == "success"]
    assert card["budget_burnt_percent"] == pytest.approx(100 - pages[1]["left_percent"])


# ---- what is counted


def test_a_collector_counts_what_brokers_finish(admin, create, cluster, collect, snapshot):
    """From sockets to the page: two messages are finished in time, and one delivery fails."""

    def has_finished(count: int) -> bool:
        [row] = snapshot()["channels"]
        return (row["message_count"], row["depth"], row["in_flight_count"]) == (count, 0, 0)

    cluster.make_channel("orders", "billing")
    latency = create(LATENCY, threshold_ms=3_600_000)
    success = create(SUCCESS, topic_pattern="orders", channel_pattern="billing")
    collecting = collect()
    wait_until(lambda: admin.request("GET", f"objectives/{latency}").json()["counted_since"], "it is counted")
    broker = cluster.brokers[0]
    broker.post("/mpub", b"one\ntwo", topic="orders")
    with V2Client(broker.tcp) as client:
        client.ok(b"SUB orders billing\n")
        client.send(b"RDY 1\n")
        client.send(b"REQ %s 0\n" % client.message()[0])
        for _ in range(2):
            client.send(b"FIN %s\n" % client.message()[0])
        wait_until(lambda: has_finished(2), "the collector has read it")
    collecting.stop()
    assert counted(latency) == (2, 0)
    assert counted(success) == (2, 1)


@pytest.mark.parametrize("threshold_ms", [0.001, 0.5, 100, 12_345.678, 2_592_000_000])
def test_a_threshold_is_counted_up_to_a_bound_of_the_histogram(admin, create, threshold_ms):
    """The bound that is used is named; it is at most 2.2 % above."""
    page = admin.request("GET", f"objectives/{create(LATENCY, threshold_ms=threshold_ms)}").json()
    assert threshold_ms <= page["limit_ms"] < 1.022 * threshold_ms
    assert round(page["limit_ms"] * 1e6) in (*UPPER_BOUNDS, 1000)


def test_a_message_at_the_bound_is_good_and_the_next_one_is_bad(create, collector):
    """Messages are counted exactly, on both sides of the limit."""
    number, node, collecting = create(LATENCY), ScriptedNode("a:4151"), collector()
    collecting.poll(minute(0), node)
    limit_ns = bound_of(100_000_000)
    for value_ns, times in ((limit_ns, 3), (limit_ns + 1, 5), (1, 7)):
        node.channel("orders", "billing").histogram.record(value_ns, times)
    collecting.poll(minute(1), node)
    collecting.end()
    assert counted(number) == (10, 5)


def test_a_restart_of_the_collector_loses_and_repeats_nothing(create, collector):
    """Whether it ended in the middle of a minute, or was killed there, with counts that it had not stored."""
    number, node = create(LATENCY), ScriptedNode("a:4151")
    sent, at = 0, minute(0)
    for ends in (True, False, False, True):
        collecting = collector()
        for _ in range(7):  # of 20 s: it ends within a minute
            collecting.poll(at, node)
            node.finish("orders", "billing", fast=3, slow=1)
            at, sent = at + 20, sent + 1
        if ends:
            collecting.end()
    last = collector()
    last.poll(at, node)
    last.end()
    assert counted(number) == (3 * sent, sent)
    minutes = [row.good + row.bad for row in Count.objects.filter(objective=number).order_by("at")]
    assert minutes[1:-1] == [12] * (len(minutes) - 2)


def test_a_restart_while_the_archive_cannot_be_written_repeats_nothing(create, collector, tmp_path):
    """The archive lacks the last readings that were counted. They are stored with the counts."""
    number, node = create(LATENCY), ScriptedNode("a:4151")
    samples, aside = tmp_path / "archive" / "samples", tmp_path / "archive" / "aside"
    sent, at = 0, minute(0)

    def poll(collecting: ScriptedCollector, times: int) -> None:
        nonlocal sent, at
        for _ in range(times):
            collecting.poll(at, node)
            node.finish("orders", "billing", fast=3, slow=1)
            at, sent = at + 20, sent + 1

    killed = collector()
    poll(killed, 7)
    samples.rename(aside)
    samples.write_bytes(b"not a folder")
    poll(killed, 10)
    stored = counted(number)
    assert sum(stored) > 4 * 10
    samples.unlink()
    aside.rename(samples)
    last = collector()
    poll(last, 4)
    last.poll(at, node)
    last.end()
    assert counted(number) == (3 * sent, sent)
    assert [each.node for each in Last.objects.filter(objective=number)] == ["a:4151"]


def test_messages_of_a_gap_are_spread_over_it(create, collector, admin):
    """A collector that was away for two hours does not take their messages for those of its first minute."""
    number, node = create(LATENCY), ScriptedNode("a:4151")
    collecting = collector()
    for step in range(61):
        collecting.poll(minute(step), node)
        node.finish("orders", "billing", fast=10)
    collecting.end()
    node.finish("orders", "billing", slow=1190)
    collecting = collector()
    collecting.poll(minute(180), node)
    collecting.poll(minute(181), node)
    rows = {row.at: (row.good, row.bad) for row in Count.objects.filter(objective=number)}
    assert counted(number) == (610, 1190)
    assert sum(bad for at, (_, bad) in rows.items() if minute(60) <= at < minute(180)) in range(1180, 1191)
    assert max(bad for _, bad in rows.values()) <= 11
    page = admin.request("GET", f"objectives/{number}").json()
    [fastest, *_] = page["burns"]
    of_hour = [rows.get(minute(step), (0, 0)) for step in range(121, 181)]
    share = sum(bad for _, bad in of_hour) / sum(map(sum, of_hour))
    assert fastest["long_rate"] == pytest.approx(share / 0.01)


def test_a_gap_of_days_is_spread_by_hours(create, collector):
    """The number of rows stays small, and no message is lost."""
    number, node, collecting = create(LATENCY), ScriptedNode("a:4151"), collector()
    collecting.poll(minute(0), node)
    node.finish("orders", "billing", fast=100_000, slow=7)
    collecting.poll(minute(3 * 1440), node)
    collecting.end()
    assert counted(number) == (100_000, 7)
    assert set(Count.objects.values_list("step_s", flat=True)) == {3600}
    assert Count.objects.count() <= 73


def test_counters_that_start_again_count_from_zero(create, collector):
    """After a restart of a node, and when a channel was deleted and created again."""
    number, node, collecting = create(LATENCY), ScriptedNode("a:4151"), collector()
    collecting.poll(minute(0), node)
    node.finish("orders", "billing", fast=20)
    collecting.poll(minute(1), node)
    node.restart(minute(1) + 30)
    node.finish("orders", "billing", fast=5, slow=1)
    collecting.poll(minute(2), node)
    node.channels.clear()
    node.finish("orders", "billing", fast=2)
    collecting.poll(minute(3), node)
    collecting.end()
    assert counted(number) == (27, 1)


def test_messages_from_before_the_objective_are_not_counted(create, collector):
    """Neither those of a running node, nor those between its last reading and the objective's first."""
    node, collecting = ScriptedNode("a:4151"), collector()
    node.finish("orders", "billing", slow=50)
    collecting.poll(minute(0), node)
    node.finish("orders", "billing", slow=50)
    collecting.poll(minute(1), node)
    number = create(LATENCY)
    node.finish("orders", "billing", fast=4)
    collecting.poll(minute(2), node)
    collecting.end()
    assert counted(number) == (4, 0)


def test_old_minutes_become_hours_and_what_is_before_the_window_is_deleted(create, collector, admin):
    """Sums stay the same within the window."""
    number, node, collecting = create(LATENCY, window_days=7), ScriptedNode("a:4151"), collector()
    for step in range(100):
        collecting.poll(minute(step), node)
        node.finish("orders", "billing", fast=2, slow=1)
    collecting.end()
    persistence.sweep(minute(5 * 1440))
    assert counted(number) == (198, 99)
    assert set(Count.objects.values_list("step_s", "at")) == {(3600, minute(0)), (3600, minute(60))}
    persistence.sweep(minute(9 * 1440))
    assert counted(number) == (0, 0)


# ---- people and the collector at the same time


def test_counts_of_a_deleted_objective_are_not_stored(create, collector, admin, monkeypatch):
    """It is deleted after the collector has read it; the counts of the others are stored."""
    gone, other = create(LATENCY), create(LATENCY, name="Other")
    node, collecting = ScriptedNode("a:4151"), collector()
    collecting.poll(minute(0), node)
    node.finish("orders", "billing", fast=9)
    save = persistence.save

    def deleted_before(*arguments: Any, **keywords: Any) -> float:
        assert admin.request("DELETE", f"objectives/{gone}").status_code in (204, 404)
        return save(*arguments, **keywords)

    monkeypatch.setattr(persistence, "save", deleted_before)
    collecting.poll(minute(1), node)
    collecting.end()
    assert counted(other) == (9, 0)
    assert not Count.objects.exclude(objective=other).exists()
    assert AuditEntry.objects.filter(action="delete objective").count() == 1


def test_a_change_of_what_is_counted_starts_again(create, collector, admin):
    """Also for counts that the collector has not stored yet; another target or name keeps the counts."""
    number, node, collecting = create(LATENCY), ScriptedNode("a:4151"), collector()
    collecting.poll(minute(0), node)
    node.finish("orders", "billing", fast=9)
    collecting.poll(minute(1), node)
    assert admin.request("PATCH", f"objectives/{number}", {"target_percent": 95.0, "name": "Slower"}).status_code == 200
    collecting.poll(minute(2), node)
    assert counted(number) == (9, 0)
    node.finish("orders", "billing", slow=9)
    collecting.poll(minute(3) - 20, node)
    changed = admin.request("PATCH", f"objectives/{number}", {"threshold_ms": 1000}).json()
    assert (changed["counted_since"], changed["good"]) == (None, 0)
    node.finish("orders", "billing", slow=4)
    collecting.poll(minute(3), node)
    collecting.end()
    assert counted(number) == (4, 0)


# ---- the API


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"kind": "availability"}, "kind"),
        ({"threshold_ms": None}, "threshold_ms"),
        ({"threshold_ms": 0}, "threshold_ms"),
        ({"target_percent": 100}, "target_percent"),
        ({"target_percent": 0}, "target_percent"),
        ({"target_percent": 99.9999999999999}, "target_percent"),
        ({"window_days": 0}, "window_days"),
        ({"window_days": 91}, "window_days"),
        ({"topic_pattern": "orders eu"}, "topic_pattern"),
        ({"channel_pattern": ""}, "channel_pattern"),
        ({"percent": 5}, "percent"),
    ],
)
def test_a_wrong_value_is_refused_by_its_field(admin, values, field):
    answer = admin.request("POST", "objectives", LATENCY | values)
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["field_errors"]] == [field]
    assert not Objective.objects.exists()


def test_two_objectives_cannot_have_one_name(admin, create):
    """Neither when one is created, nor when it is renamed."""
    create(LATENCY)
    number = create(SUCCESS)
    for method, path, body in (
        ("POST", "objectives", LATENCY),
        ("PATCH", f"objectives/{number}", {"name": LATENCY["name"]}),
    ):
        answer = admin.request(method, path, body)
        assert (answer.status_code, answer.json()["message"]) == (
            422,
            "name: there is an objective 'Orders in time' already",
        )


def test_what_people_do_is_audited(admin, create):
    """The entry names the objective, and what was before."""
    number = create(LATENCY)
    admin.request("PATCH", f"objectives/{number}", {"target_percent": 95})
    admin.request("DELETE", f"objectives/{number}")
    entries = AuditEntry.objects.filter(action__endswith="objective").order_by("pk")
    before = "99 % of orders/* latency up to 100 ms over 30 days"
    assert [(each.action, each.subject, each.detail) for each in entries] == [
        ("create objective", "Orders in time", before),
        ("change objective", "Orders in time", f"{before} → 95 %{before[4:]}"),
        ("delete objective", "Orders in time", f"95 %{before[4:]}"),
    ]


def test_the_alert_of_a_deleted_objective_resolves(admin, create, collector):
    """Its subject is gone."""
    number, node, collecting = create(LATENCY), ScriptedNode("a:4151"), collector()
    rule = {"name": "Fast", "scope": "objective", "metric": "burn_1h", "threshold": 1, "hold_s": 0}
    assert admin.request("POST", "alerts/rules", rule | {"resolve_after_s": 0}).status_code == 201
    engine = Engine(settling_s=0.0)
    engine.set_rules(alert_persistence.rules(), now=START)
    seen = []
    for step in range(30):
        collecting.poll(minute(step), node)
        seen += [each for some in engine.evaluate(EMPTY, None, burns(), now=minute(step)) for each in some]
        node.finish("orders", "billing", slow=1)
        if step == 20:
            admin.request("DELETE", f"objectives/{number}")
    [fired, resolved] = seen
    assert fired.subject.objective == "Orders in time"
    assert resolved.resolution == "gone"
