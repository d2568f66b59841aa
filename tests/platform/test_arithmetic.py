"""The arithmetic of snapshots, without a network or a clock: rates, deltas, latencies of the last minute."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqcluster import Malformed, NodeStats
from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.readings.reading import QUANTILES, NodeView, Reading
from nsqplatform.cluster.readings.stats import parse_stats
from nsqplatform.cluster.snapshots.builder import SnapshotBuilder
from nsqplatform.cluster.snapshots.delta import Deltas
from nsqplatform.cluster.snapshots.latency import LatencyWindow
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, Snapshot, View
from nsqwire.histogram import RELATIVE_ERROR, Histogram
from tests.platform.browser import Browser
from tests.platform.snapshots import snapshot_of

MS = 1_000_000


def stats(*channels: dict[str, Any], boot_id: str = "b1", **topic: Any) -> NodeStats:
    """A broker with one topic ``t``."""
    held: dict[str, Any] = {"topic_name": "t", "depth": 0, "message_count": 0, "channels": list(channels)} | topic
    return parse_stats(json.dumps({"version": "1.3.0", "boot_id": boot_id, "topics": [held]}).encode())


def channel(histogram: Histogram | None = None, name: str = "c", **figures: Any) -> dict[str, Any]:
    return {
        "channel_name": name,
        "depth": 0,
        "message_count": 0,
        "latency_histogram": histogram and histogram.to_json(),
    } | figures


def latencies(*values_ms: float) -> Histogram:
    histogram = Histogram()
    for value in values_ms:
        histogram.record(int(value * MS))
    return histogram


# ---- rates


def test_a_rate_needs_two_readings_and_is_never_negative():
    """A counter that decreased gives no information, so its rate is zero."""
    rates = []
    for then, now, read_at in ((5, 15, 2.0), (15, 5, 2.0), (5, 15, 0.0)):
        before = Reading(stats(message_count=then), read_at=0.0, taken_at_s=0)
        after = Reading(stats(message_count=now), read_at=read_at, taken_at_s=0)
        rates.append(snapshot(view(after, before))["topics"][0]["publish_rate"])
    assert rates == [5.0, 0.0, None]
    assert snapshot(view(Reading(stats(), read_at=1.0, taken_at_s=0), None))["topics"][0]["publish_rate"] is None


def test_a_rate_over_nodes_is_the_sum_of_the_known_ones():
    """A new node does not hide the rates of others, and a topic that is new on a node rose from zero."""

    def node(name: str, now: NodeStats, before: NodeStats | None) -> NodeView:
        return NodeView(
            node=Node(id=name, address=""),
            error=None,
            latest=Reading(now, read_at=2.0, taken_at_s=0),
            earlier=before and Reading(before, read_at=0.0, taken_at_s=0),
        )

    elsewhere = parse_stats(json.dumps({"version": "1.3.0", "boot_id": "b1", "topics": []}).encode())
    seen_twice = node("a", stats(channel(message_count=9), message_count=9), stats(channel(message_count=4)))
    seen_once = node("b", stats(channel(message_count=50), message_count=50), None)
    new_there = node("c", stats(channel(message_count=3), message_count=3), elsewhere)
    drawn = snapshot(seen_twice, seen_once, new_there)
    assert drawn["topics"][0]["publish_rate"] == 9 / 2 + 3 / 2
    assert drawn["channels"][0]["publish_rate"] == 5 / 2
    assert [row["publish_rate"] for row in drawn["nodes"]] == [4.5, None, 1.5]
    assert [share["publish_rate"] for share in drawn["topics"][0]["nodes"]] == [4.5, None, 1.5]
    assert (drawn["topics"][0]["message_count"], drawn["channels"][0]["message_count"]) == (62, 62)


def view(now: Reading, before: Reading | None, error: str | None = None) -> NodeView:
    return NodeView(node=Node(id="n:1", address="n:1"), error=error, latest=now, earlier=before)


def snapshot(*views: NodeView) -> Any:
    return SnapshotBuilder(LatencyWindow()).build(views, {}, version=1, taken_at_ms=0).rows


def channel_after(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The row of a channel from two readings, two seconds apart."""
    first, second = (Reading(stats(channel(**each)), read_at=0.0, taken_at_s=0) for each in (before, after))
    second.read_at = 2.0
    row: dict[str, Any] = snapshot(view(second, first))["channels"][0]
    return row


def test_of_gos_nodes_finished_messages_are_those_that_left_the_channel():
    """The published messages less those that the channel still has, in flight or deferred; there is no counter."""
    row = channel_after(
        {"message_count": 100, "depth": 50, "client_count": 1},
        {"message_count": 160, "depth": 40, "in_flight_count": 20, "deferred_count": 10, "client_count": 1},
    )
    assert (row["publish_rate"], row["finish_rate"]) == (30.0, 20.0)


def test_messages_that_are_not_finished_do_not_count_as_finished():
    """brokerd counts what is finished, emptied and rewound: here 4, 46 and then 20."""
    finished = [latencies(*(1.0 for _ in range(count))) for count in (10, 14, 14)]
    first, second, third = (
        {"histogram": histogram, "message_count": 100, "client_count": 1} | more
        for histogram, more in zip(
            finished,
            (
                {"depth": 50},
                {"depth": 0, "emptied_count": 46},
                {"depth": 20, "emptied_count": 46, "rewound_count": 20},
            ),
            strict=True,
        )
    )
    row = channel_after(first, second)
    assert (row["finish_rate"], row["emptied_rate"], row["rewound_rate"]) == (2.0, 23.0, 0.0)
    row = channel_after(second, third)
    assert (row["finish_rate"], row["emptied_rate"], row["rewound_rate"]) == (0.0, 0.0, 10.0)
    assert (row["emptied_count"], row["rewound_count"], row["publish_rate"]) == (46, 20, 0.0)


@pytest.mark.parametrize(("clients", "finish_rate"), [((0, 0), None), ((1, 0), 25.0), ((0, 1), 25.0)])
def test_of_gos_nodes_messages_that_left_without_a_consumer_are_not_finished(clients, finish_rate):
    """They were emptied, so that the rate is unknown; a consumer at either reading may have finished them."""
    before, after = ({"client_count": count, "message_count": 100} for count in clients)
    row = channel_after(before | {"depth": 50}, after | {"depth": 0})
    assert row["finish_rate"] == finish_rate
    assert channel_after(before | {"depth": 50}, before | {"depth": 50})["finish_rate"] == 0.0
    rates = ("emptied_rate", "rewound_rate", "death_rate", "drop_rate")
    assert [row[name] for name in rates] == [None] * len(rates)


def test_dead_messages_are_counted_by_reason_over_all_nodes():
    """A topic has those of its channels. A reason that this release does not know counts in the total only."""
    mine = channel(Histogram(), dead_count=7, died_count=9, dead_by_reason={"attempts": 5, "operator": 1, "new": 1})
    other = channel(Histogram(), dead_count=2, dead_by_reason={"attempts": 2})
    gos = channel(name="other")
    drawn = snapshot(
        *(
            NodeView(node=Node(id=name, address=""), error=None, latest=Reading(each, read_at=2.0, taken_at_s=0))
            for name, each in (("a", stats(mine)), ("b", stats(other, gos)))
        )
    )
    row, without = drawn["channels"]
    assert {name: value for name, value in row.items() if name.startswith("dead_")} == {
        "dead_count": 9,
        "dead_attempts_count": 7,
        "dead_expired_count": 0,
        "dead_overflow_count": 0,
        "dead_operator_count": 1,
    }
    assert [share["dead_count"] for share in row["nodes"]] == [7, 2]
    assert (without["dead_count"], without["dead_attempts_count"], drawn["topics"][0]["dead_count"]) == (0, 0, 9)


def test_a_new_channel_on_an_old_topic_shows_no_burst():
    """It receives the topic's backlog at once, which was not published just then."""
    before = Reading(stats(message_count=1000, depth=1000), read_at=10.0, taken_at_s=0)
    after = Reading(stats(channel(message_count=1000, depth=1000), message_count=1000), read_at=11.0, taken_at_s=0)
    row = snapshot(view(after, before))["channels"][0]
    assert (row["publish_rate"], row["finish_rate"]) == (None, None)


def test_counters_of_two_lives_are_never_compared():
    """A restart causes no burst, even if the new process has already counted further."""
    before = Reading(stats(message_count=10, boot_id="b1"), read_at=10.0, taken_at_s=0)
    after = Reading(stats(message_count=1000, boot_id="b2"), read_at=11.0, taken_at_s=0)
    assert snapshot(view(after, before))["topics"][0]["publish_rate"] is None


def test_the_oldest_message_of_all_nodes_is_the_oldest():
    """Null means that no message waits."""
    ages = [None, 5 * MS, 7 * MS]
    views = [
        NodeView(
            node=Node(id=f"n:{number}", address=""),
            error=None,
            latest=Reading(
                stats(channel(oldest_unfinished_age_ns=age), oldest_unfinished_age_ns=age), read_at=1.0, taken_at_s=0
            ),
        )
        for number, age in enumerate(ages)
    ]
    drawn = snapshot(*views)
    assert (drawn["channels"][0]["oldest_age_ms"], drawn["topics"][0]["oldest_age_ms"]) == (7.0, 7.0)
    assert snapshot(views[0])["channels"][0]["oldest_age_ms"] is None


def go_stats(p99_ms: float, count: int = 1) -> NodeStats:
    latency = {"count": count, "percentiles": [{"quantile": 0.99, "value": p99_ms * MS}]}
    held = {"topic_name": "t", "depth": 0, "message_count": 0, "channels": [channel(e2e_processing_latency=latency)]}
    return parse_stats(json.dumps({"version": "1.3.0", "start_time": 5, "topics": [held]}).encode())


def test_percentiles_of_nodes_without_histograms_are_a_range():
    """They cannot be merged; a node that is down, or has finished nothing, adds nothing."""

    def up(name: str, stats: NodeStats, error: str | None = None) -> NodeView:
        return NodeView(node=Node(id=name, address=""), error=error, latest=Reading(stats, read_at=1.0, taken_at_s=0))

    row = snapshot(up("a", go_stats(12)), up("b", go_stats(480)), up("c", go_stats(9000), "down"))["channels"][0]
    assert (row["p99_ms"], row["p99_range_ms"], row["p50_range_ms"]) == (None, [12.0, 480.0], None)
    assert snapshot(up("a", go_stats(12, count=0)))["channels"][0]["p99_range_ms"] is None
    ours = snapshot(up("a", stats(channel(latencies(5)))))["channels"][0]
    assert ours["p99_range_ms"] is None


def test_a_range_includes_other_nodes_histograms():
    """The true percentile over all of them is within the range."""
    window = LatencyWindow()
    before, after = stats(channel(Histogram())), stats(channel(latencies(*[2000] * 10)))
    window.observe("a", before, 0.0)
    window.observe("a", after, 1.0)
    views = [
        NodeView(node=Node(id=name, address=""), error=None, latest=Reading(stats, read_at=1.0, taken_at_s=0))
        for name, stats in (("a", after), ("b", go_stats(12)))
    ]
    row = SnapshotBuilder(window).build(views, {}, version=1, taken_at_ms=0).rows["channels"][0]
    assert row["p99_ms"] == about(2000)
    assert row["p99_range_ms"] == [12.0, row["p99_ms"]]


# ---- deltas

names = st.text("abc", min_size=1, max_size=2)
spread = st.lists(
    st.tuples(st.sampled_from("mn"), st.booleans(), st.integers(0, 2)), max_size=2, unique_by=lambda it: it[0]
)


def drawn(version: int, nodes: Any, topics: Any, channels: Any) -> Snapshot:
    """Topics and channels by name, each with its shares on nodes; a channel's topic has its name."""
    one = Reading(stats(channel()), read_at=0.0, taken_at_s=0)
    whole = snapshot(view(one, None))
    node, topic, held = whole["nodes"][0], whole["topics"][0], whole["channels"][0]

    def shares(row: Any, of: Any) -> list[Any]:
        return [row["nodes"][0] | {"node": name, "paused": paused, "depth": depth} for name, paused, depth in of]

    return snapshot_of(
        {
            "version": version,
            "taken_at": version,
            "nodes": [node | {"id": name, "depth": depth} for name, depth in nodes.items()],
            "topics": [
                topic | {"name": name, "depth": len(of), "nodes": shares(topic, of)} for name, of in topics.items()
            ],
            "channels": [
                held
                | {
                    "topic": name,
                    "name": "c",
                    "depth": len(of),
                    "p99_ms": None if of else 1.5,
                    "nodes": shares(held, of),
                }
                for name, of in channels.items()
            ],
        }
    )


snapshots = st.builds(
    drawn,
    st.integers(0, 9),
    st.dictionaries(names, st.integers(0, 3), max_size=4),
    st.dictionaries(names, spread, max_size=6),
    st.dictionaries(names, spread, max_size=6),
)
views = st.sampled_from([EVERYTHING, View(topic="a"), View(node="m")])


@given(snapshots, snapshots, views)
def test_a_snapshot_and_its_delta_give_the_next_snapshot(before, after, watches):
    """Whatever came, changed and went, in each view; unchanged rows are not sent. Only the view of the whole cluster
    omits changes of the shares of single nodes."""
    held = Browser()
    held.take(json.loads(json.dumps(before.message(watches))))
    change = json.loads(json.dumps(Deltas(before, after).of(watches)))
    for kind, rows in before.part(watches).items():
        same = {key for key, row in rows.items() if after.part(watches)[kind].get(key) == row}
        assert not same & {*change[kind]["set"].get("keys", [])}
    held.take(change)
    for kind, expected in after.part(watches).items():
        if watches == EVERYTHING:
            expected = {key: row | {"nodes": held.rows[kind][key].get("nodes")} for key, row in expected.items()}
        assert {key: row | {"nodes": row.get("nodes")} for key, row in held.rows[kind].items()} == {
            key: row | {"nodes": row.get("nodes")} for key, row in expected.items()
        }
    assert held.version == after.version


# ---- latencies of the last minute


def quantile(window: LatencyWindow, q: float = 0.5) -> float | None:
    window.compute_percentiles()
    return percentiles(window, "c")[QUANTILES.index(q)]


def percentiles(window: LatencyWindow, channel: str) -> list[float | None]:
    return [None if value != value else value for value in window.percentiles_ms([("t", channel)])[0].tolist()]


def about(value: float) -> Any:
    return pytest.approx(value, rel=RELATIVE_ERROR * 1.01, abs=0.001)


def test_messages_finished_before_the_first_reading_do_not_count():
    """The time of these messages is unknown."""
    window = LatencyWindow()
    window.observe("n", stats(channel(latencies(5000, 5000))), 0.0)
    assert quantile(window) is None
    window.observe("n", stats(channel(latencies(5000, 5000, 10))), 1.0)
    assert quantile(window) == about(10)


def test_nodes_are_merged_by_their_messages_not_by_their_percentiles():
    """Ninety fast messages on one node and ten slow ones on another: the slow node determines the 99th percentile, not
    the median."""
    window = LatencyWindow()
    for node in ("a", "b"):
        window.observe(node, stats(channel(Histogram())), 0.0)
    window.observe("a", stats(channel(latencies(*[10] * 90))), 1.0)
    window.observe("b", stats(channel(latencies(*[1000] * 10))), 1.0)
    assert (quantile(window, 0.5), quantile(window, 0.99)) == (about(10), about(1000))


def test_messages_leave_the_window_after_a_minute():
    """A slow period affects the percentiles for one minute."""
    window = LatencyWindow()
    slow = latencies(*[1000] * 10)
    window.observe("n", stats(channel(Histogram())), 0.0)
    window.observe("n", stats(channel(slow)), 1.0)
    assert quantile(window) == about(1000)
    for second in range(2, 70):
        window.observe("n", stats(channel(slow)), float(second))
    assert quantile(window) is None
    window.observe("n", stats(channel(latencies(*[1000] * 10, 20))), 70.0)
    assert quantile(window) == about(20)


def test_a_restarted_node_counts_from_its_start():
    """All messages that it reports are new, and none of the previous process are subtracted."""
    window = LatencyWindow()
    window.observe("n", stats(channel(latencies(*[10] * 100)), boot_id="b1"), 0.0)
    window.lose("n")
    window.observe("n", stats(channel(latencies(*[30] * 200)), boot_id="b2"), 5.0)
    assert quantile(window) == about(30)


def test_a_node_that_was_away_for_a_moment_does_not_count_twice():
    """The process is the same: its first figures are the new base."""
    window = LatencyWindow()
    window.observe("n", stats(channel(latencies(*[10] * 100))), 0.0)
    window.lose("n")
    window.observe("n", stats(channel(latencies(*[10] * 100))), 5.0)
    assert quantile(window) is None


def test_a_channel_deleted_and_created_again_counts_again():
    """A lower count can only be of new messages."""
    window = LatencyWindow()
    window.observe("n", stats(channel(latencies(*[10] * 100))), 0.0)
    window.observe("n", stats(channel(latencies(50))), 1.0)
    assert quantile(window) == about(50)
    window.observe("n", stats(), 2.0)
    assert quantile(window) is None
    window.observe("n", stats(channel(latencies(70, 70))), 3.0)
    assert quantile(window) == about(70)


def test_a_channel_created_again_with_other_latencies_counts_later_messages():
    """As many messages in other buckets cannot be subtracted; later ones count again."""
    window = LatencyWindow()
    window.observe("n", stats(channel(latencies(10, 10))), 0.0)
    window.observe("n", stats(channel(latencies(50, 50))), 1.0)
    assert quantile(window) is None
    window.observe("n", stats(channel(latencies(50, 50, 90))), 2.0)
    assert quantile(window) == about(90)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("mn"), st.sampled_from("cde"), st.lists(st.integers(0, 10**12), min_size=1, max_size=9)
        ),
        max_size=12,
    )
)
def test_percentiles_are_those_of_the_merged_histogram(finished):
    """After each poll, over all nodes, to the bucket: the arrays give the same result as the histogram class."""
    window = LatencyWindow()
    histograms = {(node, name): Histogram() for node in "mn" for name in "cde"}
    everything = {name: Histogram() for name in "cde"}

    def observe(now: float) -> None:
        for node in "mn":
            window.observe(node, stats(*(channel(histograms[node, name], name=name) for name in "cde")), now)

    observe(0.0)
    for poll, (node, name, values) in enumerate(finished, 1):
        for value in values:
            histograms[node, name].record(value)
            everything[name].record(value)
        observe(float(poll))
    window.compute_percentiles()
    for name in "cde":
        expected = everything[name].quantiles(QUANTILES)
        assert percentiles(window, name) == [v if v is None else pytest.approx(v / 1e6, abs=0.0006) for v in expected]


# ---- what nodes answer


@pytest.mark.parametrize(
    ("histogram", "complaint"),
    [
        ({"scale": 4, "zero_count": 0, "offset": 0, "counts": []}, "scale"),
        ({"scale": 5, "zero_count": -1, "offset": 0, "counts": []}, "zero_count"),
        (
            {"scale": 5, "zero_count": 0, "offset": 0, "counts": [1, -1]},
            "topics.0.channels.0.*counts.1: Expected `int`",
        ),
        ({"scale": 5, "zero_count": 0, "offset": 0, "counts": [1, 2.5]}, "counts.1"),
        ({"scale": 5, "zero_count": 0, "offset": 0, "counts": [2**63 - 1]}, "counts.0"),
        ({"scale": 5, "zero_count": 0, "offset": 0, "counts": [10**30]}, "counts.0"),
        ({"scale": 5, "zero_count": 0, "offset": 0, "counts": [[1, 2], 3]}, "counts.0"),
        ({"scale": 5, "zero_count": 0, "offset": 0, "counts": "12"}, "counts: Expected `array`"),
        ({"scale": 5, "zero_count": 0, "offset": 0, "counts": 12}, "counts: Expected `array`"),
        ({"scale": 5, "zero_count": 0, "offset": 2000, "counts": [1] * 20}, "beyond bucket"),
        ({"scale": 5, "zero_count": 0, "offset": 0, "counts": None}, "counts: Expected `array`"),
        ({"scale": 5, "zero_count": 0, "offset": 0}, "counts"),
        ("none", "latency_histogram"),
    ],
)
def test_a_histogram_that_cannot_be_merged_is_refused_by_name(histogram, complaint):
    """It is not merged into a wrong result."""
    answer = {"version": "1", "topics": [{"topic_name": "t", "depth": 0, "message_count": 0, "channels": []}]}
    answer["topics"][0]["channels"].append(channel() | {"latency_histogram": histogram})
    with pytest.raises(Malformed, match=complaint):
        parse_stats(json.dumps(answer).encode())


@pytest.mark.parametrize(
    ("figures", "complaint"),
    [
        ({"depth": 2**63}, "topics.0.depth"),
        ({"message_count": 1.5}, "topics.0.message_count"),
        ({"channels": [channel(depth=-(2**64))]}, "topics.0.channels.0.depth"),
        (
            {
                "channels": [
                    channel() | {"latency_histogram": {"scale": 5, "zero_count": 0, "offset": 9**9, "counts": [1]}}
                ]
            },
            "offset",
        ),
        ({"e2e_processing_latency": {"percentiles": [{"quantile": 0.5, "value": 1e300}]}}, "value"),
    ],
)
def test_figures_out_of_range_are_refused_by_name(figures, complaint):
    """They would break the arithmetic, or the archive, for every other node."""
    with pytest.raises(Malformed, match=complaint):
        stats(**figures)


def test_a_start_beyond_all_calendars_is_refused():
    """Such a date could not be archived."""
    with pytest.raises(Malformed, match="start_time"):
        parse_stats(b'{"version":"1","start_time":999999999999999,"topics":[]}')


@given(st.binary(max_size=200) | st.text('[]{}",:topics0', max_size=60).map(str.encode))
def test_any_answer_of_a_node_is_parsed_or_refused(body):
    """It is parsed, or refused with a reason."""
    try:
        read = parse_stats(body)
    except Malformed as error:
        read = error.reason
    assert isinstance(read, NodeStats) or read.startswith("cannot read its /stats: ")


SOUND = json.dumps(
    {
        "version": "1.3.0",
        "health": "OK",
        "topics": [
            {
                "topic_name": "t",
                "depth": 1,
                "message_count": 1,
                "channels": [
                    channel() | {"latency_histogram": {"scale": 5, "zero_count": 0, "offset": 0, "counts": [1, 2]}}
                ],
            }
        ],
        "boot_id": "b",
        "previous_boot": {"version": "1.3.0", "topics": []},
    }
).encode()


@given(at=st.integers(0, len(SOUND) - 1), byte=st.integers(0, 255))
def test_an_answer_with_a_wrong_byte_is_parsed_or_refused(at, byte):
    """Also in a text, where it may not be UTF-8, and in the figures of the process before."""
    with contextlib.suppress(Malformed):
        read = parse_stats(SOUND[:at] + bytes([byte]) + SOUND[at + 1 :])
        parse_stats(bytes(read.previous_boot))
