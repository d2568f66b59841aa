"""The reports in plain Python, one reading after another, as a reference for Spark's. Shares no code with analytics.

It takes an archive in which counters start again only with a new boot, and in which no node is silent for an hour.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from nsqanalytics.schema import Sample
from nsqwire.histogram import midpoint

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PERMILLES = {"p50_ms": 500, "p90_ms": 900, "p95_ms": 950, "p99_ms": 990, "p999_ms": 999}
COUNTERS = ("in_count", "in_bytes", "out_count", "requeue_count", "timeout_count", "died_count", "dropped_count")
SUMS = (*COUNTERS, "carried_count", "unplaced_count")


def floor(moment: datetime, window: timedelta) -> datetime:
    return moment - (moment - EPOCH) % window


@dataclass
class Part:
    """The figures of one node for one topic and channel within one window."""

    sums: Counter[str] = field(default_factory=Counter)
    buckets: Counter[int] = field(default_factory=Counter)
    has_histogram: bool = False
    observed_s: float = 0.0
    depth_area: float = 0.0
    client_area: float = 0.0
    depth_max: int = 0
    last: tuple[datetime, int, int] = (EPOCH, 0, 0)
    """The time of the last reading, its depth, and its dead messages."""
    oldest_ns: int | None = None


Parts = dict[tuple[datetime, str, str, str], Part]
"""By the start of the window, the node, the topic and the channel, which is empty for a topic's own."""


def parts(samples: Iterable[Sample], since: datetime, until: datetime, window: timedelta) -> Parts:
    """Every window's part in [since, until)."""
    found: Parts = defaultdict(Part)
    in_order = sorted(samples, key=lambda s: (*series(s), s.taken_at))
    sample_times = {node: sorted({s.taken_at for s in of}) for node, of in groupby(in_order, key=lambda s: s.node)}
    for (node, topic, channel, _), readings in groupby(in_order, key=series):
        last: Sample | None = None
        for reading in readings:
            at = reading.taken_at
            start = max(floor(at, min(window, HOUR)), since if at >= since else EPOCH)
            if since <= at < until:
                part = found[floor(at, window), node, topic, channel]
                took_part(part, reading, last)
                place = bisect_left(sample_times[node], at)
                sampled_before = sample_times[node][place - 1] if place else None
                if last is None and sampled_before is None and not just_started(reading, start):
                    part.sums["unplaced_count"] += reading.finish_count or 0
                else:
                    changed(part, reading, last)
                    counted_since = max(floor(at, window), since)
                    if last is None or last.taken_at < counted_since:
                        part.sums["carried_count"] += carried(reading, last, sampled_before, counted_since)
            last = reading
    return found


def series(sample: Sample) -> tuple[str, str, str, str]:
    return sample.node, sample.topic, sample.channel or "", sample.boot_id


def carried(reading: Sample, base: Sample | None, sampled_before: datetime | None, start: datetime) -> int:
    """Number of the messages finished since the reading before that may be older than the window."""
    began = [base.taken_at] if base else [at for at in (reading.started_at, sampled_before) if at is not None]
    if not began or max(began) >= start:
        return 0
    return (reading.finish_count or 0) - ((base.finish_count or 0) if base else 0)


def just_started(reading: Sample, start: datetime) -> bool:
    started_at = reading.started_at
    return started_at is not None and started_at >= min(start, reading.taken_at - timedelta(minutes=1))


def took_part(part: Part, reading: Sample, last: Sample | None) -> None:
    """The gauges, each valid since the reading before it, for a minute at most."""
    held_s = min((reading.taken_at - last.taken_at).total_seconds(), 60.0) if last else 0.0
    part.observed_s += held_s
    part.depth_area += held_s * reading.depth
    part.client_area += held_s * reading.client_count
    part.depth_max = max(part.depth_max, reading.depth)
    part.last = max(part.last, (reading.taken_at, reading.depth, reading.dead_count or 0))
    if reading.oldest_unfinished_age_ns is not None:
        part.oldest_ns = max(part.oldest_ns or 0, reading.oldest_unfinished_age_ns)
    part.sums["sample_count"] += 1
    part.has_histogram |= reading.finish_count is not None


def changed(part: Part, reading: Sample, base: Sample | None) -> None:
    """The counters' growth since ``base``, or since zero."""
    names = {"in_count": "message_count", "in_bytes": "message_bytes", "out_count": "finish_count"}
    for name in COUNTERS:
        of = names.get(name, name)
        part.sums[name] += (getattr(reading, of) or 0) - ((getattr(base, of) or 0) if base else 0)
    if reading.finish_count is not None:
        part.buckets.update(buckets(reading))
        if base:
            part.buckets.subtract(buckets(base))


def buckets(reading: Sample) -> Counter[int]:
    """Bucket -> count; the bucket of zero is -1."""
    found = Counter({-1: reading.hist_zero_count or 0})
    found.update({(reading.hist_offset or 0) + n: count for n, count in enumerate(reading.hist_counts or ())})
    return found


def rows(found: Parts, minimum_count: int = 1000) -> dict[tuple[datetime, str, str], dict[str, Any]]:
    """Window, topic and channel -> every figure of latency and throughput, over all nodes."""
    over: dict[tuple[datetime, str, str], list[Part]] = defaultdict(list)
    for (start, _, topic, channel), part in found.items():
        over[start, topic, channel].append(part)
    return {key: figures(nodes, key[2], minimum_count) for key, nodes in over.items()}


def figures(nodes: list[Part], channel: str, minimum_count: int) -> dict[str, Any]:
    sums: Counter[str] = Counter()
    merged: Counter[int] = Counter()
    for part in nodes:
        sums.update(part.sums)
        merged.update(part.buckets)
    looked = [part for part in nodes if part.observed_s]
    observed_s = max(part.observed_s for part in nodes)
    found: dict[str, Any] = {name: sums[name] for name in (*SUMS, "sample_count")}
    if not channel:
        found |= dict.fromkeys(("out_count", "died_count", "dropped_count"))
    ended = (found["out_count"] or 0) + sums["requeue_count"] + sums["timeout_count"]
    found |= {
        "observed_s": observed_s,
        "in_rate": sums["in_count"] / observed_s if observed_s else None,
        "out_rate": sums["out_count"] / observed_s if observed_s and channel else None,
        "depth_mean": sum(part.depth_area / part.observed_s for part in looked) if looked else None,
        "consumers": sum(part.client_area / part.observed_s for part in looked) if looked else None,
        "depth_max": sum(part.depth_max for part in nodes),
        "depth_last": sum(part.last[1] for part in nodes),
        "dead_last": sum(part.last[2] for part in nodes) if channel else None,
        "requeue_percent": 100 * sums["requeue_count"] / ended if ended and channel else None,
        "timeout_percent": 100 * sums["timeout_count"] / ended if ended and channel else None,
        "count": merged.total(),
        "node_count": len(nodes),
        **{name: at_rank(merged, permille) for name, permille in PERMILLES.items()},
    }
    if found["count"] < minimum_count:
        found["p999_ms"] = None
    return found


def at_rank(merged: Counter[int], permille: int) -> float | None:
    """The value, in ms, of the message of rank ceil(q · n)."""
    rank = -(-merged.total() * permille // 1000)
    for bucket in sorted(bucket for bucket, count in merged.items() if count):
        rank -= merged[bucket]
        if rank <= 0:
            return 0.0 if bucket < 0 else midpoint(bucket) / 1e6
    return None


def close(mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None or isinstance(mine, (str, datetime)):
        return bool(mine == theirs)
    return math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9)
