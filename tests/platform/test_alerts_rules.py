"""The rules by which alerts fire and resolve, on snapshots, with a clock that the test controls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqplatform.alerts.engine import FORGOTTEN_S, Engine, Fired, Resolved
from nsqplatform.alerts.message import unit_of
from nsqplatform.alerts.models import Rule
from nsqplatform.alerts.persistence import alert_of
from nsqplatform.alerts.readings import Reading, Subject, is_beyond
from nsqplatform.alerts.subject_state import GAP_S, Event, SubjectState, step
from nsqplatform.alerts.suggested import SUGGESTED
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.cluster.store import DamagedFiles
from tests.platform.snapshots import snapshot_of

# ---- one subject

Observation = tuple[float, bool | None]


def events(observations: Sequence[Observation], *, hold_s: float, resolve_after_s: float) -> list[tuple[float, Event]]:
    state: SubjectState | None = None
    found = []
    for now, beyond in observations:
        state, event = step(state, beyond, now=now, hold_s=hold_s, resolve_after_s=resolve_after_s)
        if event is not None:
            found.append((now, event))
    return found


@st.composite
def histories(draw: st.DrawFn) -> list[Observation]:
    """Polls, mostly one second apart, with a pause or a change of the clock now and then."""
    steps = draw(st.lists(st.sampled_from([1.0, 1.0, 1.0, 5.0, 29.0, 31.0, 600.0, -5.0, -3600.0]), max_size=60))
    times = list(accumulate(steps, initial=1_700_000_000.0))
    return [(now, draw(st.sampled_from([True, False, None]))) for now in times]


HOLDS = st.sampled_from([0.0, 1.0, 3.0, 10.0, 60.0])


@given(histories(), HOLDS, HOLDS)
def test_an_alert_fires_and_resolves_repeatedly(history, hold_s, resolve_after_s):
    """No resolution is notified without a firing, and no firing twice."""
    seen = [event for _, event in events(history, hold_s=hold_s, resolve_after_s=resolve_after_s)]
    assert seen == [Event.FIRED, Event.RESOLVED] * (len(seen) // 2) + [Event.FIRED] * (len(seen) % 2)


@given(histories(), HOLDS, HOLDS)
def test_an_alert_changes_only_after_its_hold_time(history, hold_s, resolve_after_s):
    """All known values since then agree, and no gap between them is long enough to hide a change."""
    known = [(now, beyond) for now, beyond in history if beyond is not None]
    for index, (now, beyond) in enumerate(known):
        seen = len(events(known[:index], hold_s=hold_s, resolve_after_s=resolve_after_s))
        news = events(known[: index + 1], hold_s=hold_s, resolve_after_s=resolve_after_s)[seen:]
        if not news:
            continue
        wanted, for_s = (True, hold_s) if news[0][1] is Event.FIRED else (False, resolve_after_s)
        first = index
        while first > 0 and known[first - 1][1] is wanted and 0 <= known[first][0] - known[first - 1][0] <= GAP_S:
            first -= 1
        assert beyond is wanted
        assert now - known[first][0] >= for_s


@given(histories(), HOLDS, HOLDS)
def test_unknown_values_change_nothing(history, hold_s, resolve_after_s):
    """A poll with an unknown value has no effect."""
    known = [(now, beyond) for now, beyond in history if beyond is not None]
    found = events(history, hold_s=hold_s, resolve_after_s=resolve_after_s)
    assert found == events(known, hold_s=hold_s, resolve_after_s=resolve_after_s)


@given(st.integers(0, 600), st.integers(0, 600))
def test_a_lasting_condition_fires_and_resolves(hold_s, resolve_after_s):
    """At the latest a second after its hold time."""
    history = [(float(now), now < hold_s + 2) for now in range(hold_s + resolve_after_s + 10)]
    (fired_at, fired), (over_at, over) = events(history, hold_s=hold_s, resolve_after_s=resolve_after_s)
    assert (fired, over) == (Event.FIRED, Event.RESOLVED)
    assert (fired_at, over_at) == (hold_s, hold_s + 2 + resolve_after_s)


@pytest.mark.parametrize(
    ("comparison", "reading", "beyond"),
    [
        ("above", Reading(101), True),
        ("above", Reading(100), False),
        ("above", Reading(101, at_least=True), True),
        ("above", Reading(5, at_least=True), None),
        ("above", Reading(None), None),
        ("below", Reading(99), True),
        ("below", Reading(100), False),
        ("below", Reading(99, at_least=True), None),
        ("below", Reading(100, at_least=True), False),
        ("below", Reading(None), None),
    ],
)
def test_a_sum_with_a_missing_share_is_a_lower_bound(comparison, reading, beyond):
    """The sum may be larger, never smaller."""
    assert is_beyond(Rule(comparison=comparison, threshold=100.0), reading) is beyond


# ---- snapshots

ALPHA, BETA = "10.0.0.1:4151", "10.0.0.2:4151"
NODE = {"hostname": "", "state": "up", "error": None, "health": "OK", "start_time": 5, "publish_rate": 0.0}
NODE |= {"down_since": None, "drain": None, "mirror": None, "lost_message_count": 0}
TOPIC = {
    "depth": 0,
    "channel_count": 1,
    "client_count": 1,
    "in_flight_count": 0,
    "publish_rate": 1.0,
    "byte_rate": 1.0,
    "oldest_age_ms": None,
}
CHANNEL = {
    "depth": 0,
    "in_flight_count": 0,
    "deferred_count": 0,
    "client_count": 1,
    "publish_rate": 1.0,
    "finish_rate": 1.0,
    "requeue_rate": 0.0,
    "timeout_rate": 0.0,
    "oldest_age_ms": None,
}


def channel(name: str, *shares: tuple[str, int], topic: str = "orders", **figures: Any) -> dict[str, Any]:
    """``shares``: node and depth."""
    nodes = [
        {"node": node, "depth": depth, "in_flight_count": 0, "deferred_count": 0, "client_count": 1}
        for node, depth in shares or ((ALPHA, 0),)
    ]
    row = {"topic": topic, "name": name, "nodes": nodes} | CHANNEL
    return row | {"depth": sum(depth for _, depth in shares)} | figures


def topic(name: str, *nodes: str, **figures: Any) -> dict[str, Any]:
    shares = [{"node": node, "depth": 0, "publish_rate": 1.0} for node in nodes or (ALPHA,)]
    return {"name": name, "nodes": shares} | TOPIC | figures


def snapshot(
    *channels: dict[str, Any], topics: Sequence[dict[str, Any]] = (), nodes: dict[str, dict[str, Any]] | None = None
) -> Snapshot:
    nodes = {ALPHA: {}, BETA: {}} if nodes is None else nodes
    return snapshot_of(
        {
            "version": 1,
            "taken_at": 0,
            "nodes": [{"id": name} | NODE | row for name, row in nodes.items()],
            "topics": list(topics),
            "channels": list(channels),
        }
    )


DEPTH = Rule(pk=1, name="Backlog", scope="channel", metric="depth", threshold=100.0, hold_s=3, resolve_after_s=2)
DOWN = Rule(pk=2, name="Missing", scope="node", metric="down", hold_s=3, resolve_after_s=0)


class Clock:
    """An engine that polls once a second from second 0, after its settling time unless ``settled`` is false."""

    def __init__(self, *rules: Rule, settled: bool = True, **limits: Any) -> None:
        self.engine = Engine(settling_s=10.0, **limits)
        self.engine.set_rules(rules, now=0.0)
        self.now = 0.0
        if settled:
            self.polls(snapshot(), 11)

    def polls(self, seen: Snapshot, count: int = 1) -> list[tuple[float, str, Any]]:
        """The events of ``count`` polls: the time, the kind, and the last part of the subject or the resolution."""
        found = []
        for _ in range(count):
            self.now += 1
            for happened in self.engine.evaluate(seen, now=self.now):
                for event in happened:
                    name = [part for part in event.subject if part][-1]
                    found.append((self.now, "fired" if isinstance(event, Fired) else event.resolution, name))
        return found


def test_an_alert_fires_and_resolves_after_its_hold_times():
    """With its value when it fired, and the time since when it was beyond the threshold."""
    clock = Clock(DEPTH)
    high, low = snapshot(channel("billing", (ALPHA, 500))), snapshot(channel("billing", (ALPHA, 5)))
    assert clock.polls(high, 3) == []
    clock.now += 1
    [[fired]] = list(clock.engine.evaluate(high, now=clock.now))
    assert isinstance(fired, Fired)
    assert (fired.subject, fired.value, fired.at - fired.began) == (Subject("orders", "billing", ""), 500, 3)
    assert clock.polls(low, 2) == []
    assert clock.polls(high, 1) == []
    assert clock.polls(low, 5) == [(clock.now - 2, "cleared", "billing")]


def test_a_peak_shorter_than_the_hold_time_fires_nothing():
    """However often it occurs."""
    clock = Clock(DEPTH)
    for _ in range(10):
        assert clock.polls(snapshot(channel("billing", (ALPHA, 500))), 3) == []
        assert clock.polls(snapshot(channel("billing", (ALPHA, 5)))) == []


def test_patterns_choose_the_subjects():
    """They are globs, like those of operators' rights."""
    rule = Rule(pk=1, scope="channel", metric="depth", threshold=1.0, topic_pattern="orders.*", channel_pattern="b*")
    rule.hold_s = 0
    clock = Clock(rule)
    rows = [
        channel(name, (ALPHA, 9), topic=of) for name in ("billing", "mail") for of in ("orders.eu", "orders", "returns")
    ]
    assert clock.polls(snapshot(*rows)) == [(clock.now, "fired", "billing")]


def test_nothing_is_concluded_while_the_collector_settles():
    """Its first snapshots lack nodes, and with them consumers."""
    rule = Rule(pk=1, scope="channel", metric="client_count", comparison="below", threshold=1.0, hold_s=0)
    clock = Clock(rule, settled=False)
    assert clock.polls(snapshot(channel("billing", client_count=0)), 10) == []
    assert clock.polls(snapshot(channel("billing", client_count=1)), 5) == []
    assert clock.polls(snapshot(channel("billing", client_count=0))) == [(clock.now, "fired", "billing")]


def test_nothing_is_concluded_of_a_node_that_has_just_started():
    """Its consumers are about to reconnect."""
    rule = Rule(pk=1, scope="channel", metric="client_count", comparison="below", threshold=1.0, hold_s=0)
    clock = Clock(rule)
    alone = channel("billing", (ALPHA, 0), client_count=0)
    restarted = snapshot(alone, nodes={ALPHA: {"start_time": 99}, BETA: {}})
    assert clock.polls(restarted, 10) == []
    assert clock.polls(restarted) == [(clock.now, "fired", "billing")]


@pytest.mark.parametrize(
    ("metric", "comparison", "row"),
    [
        ("publish_rate", "below", {"publish_rate": None}),
        ("timeout_rate", "above", {"timeout_rate": None}),
        ("oldest_age_s", "above", {"oldest_age_ms": None, "depth": 5}),
        ("depth", "above", {"nodes": []}),
        ("client_count", "below", {"nodes": [], "client_count": 0}),
    ],
)
def test_unknown_figures_neither_fire_nor_resolve(metric, comparison, row):
    """A rate before the second reading, an age that Go's nodes do not report, a channel that is on no node."""
    rule = Rule(pk=1, scope="channel", metric=metric, comparison=comparison, threshold=10.0, hold_s=0)
    rule.resolve_after_s = 0
    clock = Clock(rule)
    assert clock.polls(snapshot(channel("billing") | row), 5) == []
    beyond = {"publish_rate": 5.0, "timeout_rate": 11.0, "oldest_age_ms": 11_000.0, "client_count": 1, "depth": 50}
    assert [what for _, what, _ in clock.polls(snapshot(channel("billing", **beyond)))] == ["fired"]
    assert clock.polls(snapshot(channel("billing") | row), 5) == []
    well = {"publish_rate": 50.0, "timeout_rate": 0.0, "oldest_age_ms": 0.0, "client_count": 50, "depth": 5}
    assert [what for _, what, _ in clock.polls(snapshot(channel("billing", **well)))] == ["cleared"]


def test_the_age_of_an_empty_channel_is_zero():
    """Without messages, no broker reports an age, and an alert on it resolves."""
    rule = Rule(pk=1, scope="channel", metric="oldest_age_s", threshold=60.0, hold_s=0, resolve_after_s=0)
    clock = Clock(rule)
    assert clock.polls(snapshot(channel("billing", (ALPHA, 1), oldest_age_ms=61_000.0)))[0][1] == "fired"
    assert clock.polls(snapshot(channel("billing")))[0][1] == "cleared"


def test_figures_of_a_silent_node_neither_fire_nor_resolve():
    """The figures of other nodes are enough to fire, the silent node's last figures are not; none of them resolves an
    alert."""
    rule = replace_rule(DEPTH, hold_s=0, resolve_after_s=0)
    clock = Clock(rule)
    down = {ALPHA: {}, BETA: {"state": "down"}}
    assert clock.polls(snapshot(channel("billing", (ALPHA, 20), (BETA, 90)), nodes=down), 5) == []
    assert clock.polls(snapshot(channel("billing", (ALPHA, 101), (BETA, 90)), nodes=down))[0][1] == "fired"
    assert clock.polls(snapshot(channel("billing", (ALPHA, 20), (BETA, 0)), nodes=down), 5) == []
    assert clock.polls(snapshot(channel("billing", (ALPHA, 20), (BETA, 0)))) == [(clock.now, "cleared", "billing")]


def test_a_deleted_channels_alert_is_over_and_one_out_of_sight_is_not():
    """A channel is deleted if the nodes that had it no longer have it; if the nodes are gone too, the alert stays for
    up to an hour."""
    rule = replace_rule(DEPTH, hold_s=0, resolve_after_s=1)
    clock = Clock(rule)
    both = snapshot(channel("billing", (ALPHA, 500)), channel("mail", (BETA, 500)))
    assert len(clock.polls(both)) == 2
    assert clock.polls(snapshot(nodes={ALPHA: {}}), 2) == [(clock.now, "gone", "billing")]
    clock.now += FORGOTTEN_S - 5
    assert clock.polls(snapshot(nodes={ALPHA: {}})) == []
    assert clock.polls(snapshot(nodes={ALPHA: {}}), 5) == [(clock.now - 2, "gone", "mail")]


def test_a_node_that_is_forgotten_while_it_is_down_stays_missing():
    """Until it answers again, however long that takes, even if its hold time had not passed when it was forgotten."""
    clock = Clock(DOWN)
    down = snapshot(nodes={ALPHA: {}, BETA: {"state": "down", "error": "connection refused"}})
    assert clock.polls(down, 2) == []
    assert clock.polls(snapshot(nodes={ALPHA: {}}), 2) == [(clock.now, "fired", BETA)]
    for _ in range(5):
        clock.now += 29
        assert clock.polls(snapshot(nodes={ALPHA: {}})) == []
    clock.now += 2 * FORGOTTEN_S
    assert clock.polls(snapshot(nodes={ALPHA: {}}), 2) == []
    assert clock.polls(snapshot()) == [(clock.now, "cleared", BETA)]


def test_a_missing_nodes_alert_has_its_error():
    """In the alert's detail; there is no number."""
    unwell = Rule(pk=3, name="Disk", scope="node", metric="unhealthy", hold_s=0)
    clock = Clock(replace_rule(DOWN, hold_s=0), unwell)
    nodes = {ALPHA: {"state": "down", "error": "connection refused"}, BETA: {"health": "NOK - no space left"}}
    clock.now += 1
    fired = [event for happened in clock.engine.evaluate(snapshot(nodes=nodes), now=clock.now) for event in happened]
    assert [(event.subject.node, event.value, event.detail) for event in fired if isinstance(event, Fired)] == [
        (ALPHA, None, "connection refused"),
        (BETA, None, "NOK - no space left"),
    ]


def test_a_node_that_lost_messages_fires_until_its_process_restarts():
    """The count begins at the start of its process; the suggested rule has no hold time."""
    [suggested] = [each for each in SUGGESTED if each["metric"] == "lost_message_count"]
    clock = Clock(Rule(pk=4, resolve_after_s=0, **suggested))
    assert clock.polls(snapshot(nodes={ALPHA: {"lost_message_count": 0}})) == []
    assert clock.polls(snapshot(nodes={ALPHA: {"lost_message_count": 3}})) == [(clock.now, "fired", ALPHA)]
    assert clock.polls(snapshot(nodes={ALPHA: {"lost_message_count": 0}}), 1) == [(clock.now, "cleared", ALPHA)]


def test_damaged_archive_files_fire_until_there_are_none():
    """The alert names the first file and counts the others. An unknown number changes nothing, however long."""
    [suggested] = [each for each in SUGGESTED if each["scope"] == "archive"]
    clock = Clock(Rule(pk=4, resolve_after_s=0, **suggested))

    def poll(damaged: DamagedFiles | None) -> list[Fired | Resolved]:
        clock.now += 1
        return [event for happened in clock.engine.evaluate(snapshot(), damaged, now=clock.now) for event in happened]

    assert poll(None) == poll(DamagedFiles(0, "")) == []
    [fired] = poll(DamagedFiles(3, "samples/_damaged/date=2026-03-14/hour=01/a.parquet"))
    assert isinstance(fired, Fired)
    assert (fired.subject, fired.value) == (Subject("", "", ""), 3)
    assert fired.detail == "samples/_damaged/date=2026-03-14/hour=01/a.parquet and 2 more"
    assert alert_of(fired).subject == "archive"
    clock.now += 2 * FORGOTTEN_S
    assert poll(None) == poll(DamagedFiles(1, "b.parquet")) == []
    [over] = poll(DamagedFiles(0, ""))
    assert isinstance(over, Resolved)
    assert over.resolution == "cleared"


def test_an_alert_of_the_archive_outlives_the_collector():
    """The next collector resolves it; it does not fire a second time."""
    rule = Rule(pk=4, scope="archive", metric="damaged_file_count", threshold=0.0, hold_s=0, resolve_after_s=0)
    [[fired]] = Clock(rule).engine.evaluate(snapshot(), DamagedFiles(1, "a.parquet"), now=20.0)
    assert isinstance(fired, Fired)
    clock = Clock(rule)
    clock.engine.restore([alert_of(fired)], {}, now=clock.now, known=0.0)
    assert list(clock.engine.evaluate(snapshot(), DamagedFiles(1, "a.parquet"), now=clock.now)) == [[]]
    [[over]] = clock.engine.evaluate(snapshot(), DamagedFiles(0, ""), now=clock.now + 1)
    assert isinstance(over, Resolved)


def test_a_topics_depth_includes_its_channels():
    """As its page does."""
    rule = Rule(pk=1, scope="topic", metric="depth", threshold=100.0, hold_s=0, resolve_after_s=0)
    clock = Clock(rule)
    rows = [channel("billing", (ALPHA, 60)), channel("mail", (ALPHA, 30))]
    assert clock.polls(snapshot(*rows, topics=[topic("orders", depth=10)])) == []
    assert clock.polls(snapshot(*rows, topics=[topic("orders", depth=11)])) == [(clock.now, "fired", "orders")]


# ---- rules that change


def replace_rule(rule: Rule, **values: Any) -> Rule:
    fields = {field.attname: getattr(rule, field.attname) for field in Rule._meta.concrete_fields}
    return Rule(**fields | values)


@pytest.mark.parametrize(
    "values", [{"enabled": False}, {"metric": "in_flight_count"}, {"topic_pattern": "returns"}], ids=str
)
def test_alerts_that_a_changed_rule_no_longer_covers_resolve(values):
    """A rule that was disabled, changed to another metric, or whose patterns no longer match."""
    clock = Clock(DEPTH)
    high = snapshot(channel("billing", (ALPHA, 500)))
    assert len(clock.polls(high, 4)) == 1
    over = clock.engine.set_rules([replace_rule(DEPTH, **values)], now=clock.now)
    seen = [each.resolution for each in over] + [what for _, what, _ in clock.polls(high)]
    assert seen == ["rule"]
    assert clock.polls(high, 5) == []


def test_a_changed_threshold_applies_from_the_next_poll():
    """Firing alerts stay or resolve by it; none fires a second time."""
    clock = Clock(DEPTH)
    high = snapshot(channel("billing", (ALPHA, 500)))
    assert len(clock.polls(high, 4)) == 1
    assert clock.engine.set_rules([replace_rule(DEPTH, threshold=400.0)], now=clock.now) == []
    assert clock.polls(high, 5) == []
    clock.engine.set_rules([replace_rule(DEPTH, threshold=600.0)], now=clock.now)
    assert clock.polls(high, 3) == [(clock.now, "cleared", "billing")]


def test_a_closed_alert_fires_again_only_after_its_hold_time():
    """Closing affects only alerts that fired before it."""
    clock = Clock(DEPTH)
    high = snapshot(channel("billing", (ALPHA, 500)))
    assert len(clock.polls(high, 4)) == 1
    clock.engine.close([(1, "orders/billing", clock.now)])
    assert clock.polls(high, 4) == [(clock.now, "fired", "billing")]
    clock.engine.close([(1, "orders/billing", clock.now - 1)])
    assert clock.polls(high, 4) == []


def test_a_rule_that_fires_everywhere_fires_so_often_and_no_more(caplog):
    """Further alerts wait until others resolve; this is logged once."""
    clock = Clock(replace_rule(DEPTH, hold_s=0, resolve_after_s=0), max_firing=3)
    names = [f"channel-{number}" for number in range(10)]
    high = snapshot(*(channel(name, (ALPHA, 500)) for name in names))
    assert len(clock.polls(high, 5)) == 3
    assert caplog.text.count("limit of firing alerts reached") == 1
    fewer = snapshot(*(channel(name, (ALPHA, 5 if number < 3 else 500)) for number, name in enumerate(names)))
    seen = [what for _, what, _ in clock.polls(fewer, 2)]
    assert (seen.count("cleared"), seen.count("fired")) == (3, 3)


# ---- restarts


@given(
    st.lists(st.sampled_from([0, 0, 500, 500, 500, None]), min_size=1, max_size=40),
    st.sampled_from([0, 2, 5]),
    st.sampled_from([0, 2, 5]),
    st.integers(0, 40),
)
def test_another_collector_continues_at_any_poll(depths, hold_s, resolve_after_s, restarted_after):
    """At any poll: alerts stay, and hold times continue. Only the time until resolution begins again."""
    rule = replace_rule(DEPTH, hold_s=hold_s, resolve_after_s=resolve_after_s)
    engine = Engine(settling_s=0)
    engine.set_rules([rule], now=0.0)
    fires: dict[str, Fired] = {}
    seen: list[str] = []
    for second, depth in enumerate(depths):
        if second == restarted_after:
            left = engine.pending()
            engine = Engine(settling_s=0)
            engine.set_rules([rule], now=float(second))
            alerts = [alert_of(fired) for fired in fires.values()]
            assert engine.restore(alerts, left, now=float(second), known=float(second) - 1) == []
        row = channel("billing", (ALPHA, depth or 0)) if depth is not None else channel("billing") | {"nodes": []}
        for happened in engine.evaluate(snapshot(row), now=float(second)):
            for event in happened:
                if isinstance(event, Fired):
                    fires[event.subject.channel] = event
                    seen.append("fired")
                else:
                    del fires[event.subject.channel]
                    seen.append("over")
    assert seen == ["fired", "over"] * (len(seen) // 2) + ["fired"] * (len(seen) % 2)
    if restarted_after >= len(depths) or resolve_after_s == 0:
        whole = Engine(settling_s=0)
        whole.set_rules([rule], now=0.0)
        at_once = []
        for second, depth in enumerate(depths):
            row = channel("billing", (ALPHA, depth or 0)) if depth is not None else channel("billing") | {"nodes": []}
            for happened in whole.evaluate(snapshot(row), now=float(second)):
                at_once += ["fired" if isinstance(event, Fired) else "over" for event in happened]
        assert seen == at_once


def test_an_alert_whose_rule_is_gone_is_over_after_a_restart():
    """Nothing else would resolve it."""
    engine = Engine()
    engine.set_rules([DEPTH], now=0.0)
    lost = Fired(replace_rule(DEPTH, pk=7, id=7), Subject("orders", "billing", ""), 500.0, "", (), 0.0, 1.0)
    [over] = engine.restore([alert_of(lost)], {}, now=5.0, known=4.0)
    assert (over.rule_id, over.resolution) == (7, "rule")


def test_one_message_is_singular_in_a_notification():
    """As on the pages: ``depth 1 message``."""
    assert [unit_of(value, "messages") for value in (0, 1, 2, None)] == ["messages", "message", "messages", "messages"]
    assert [unit_of(1, unit) for unit in ("messages/s", "s", "")] == ["message/s", "s", ""]
