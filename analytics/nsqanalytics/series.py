"""A result for charts: its figures over time in a bounded number of points, its topics and channels, and its days.

If a result has more windows than a chart has points, neighbouring windows are combined into one point, as AGGREGATES
declares. Percentiles cannot be averaged, so a point has the highest percentile of its windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from nsqanalytics.parameters import BadParameter
from nsqanalytics.results import EVERYTHING, Result, Selection, natural_key
from nsqanalytics.tables import PERMILLES

Aggregate = Literal["max", "min", "sum", "last", "mean"]
AGGREGATES: dict[str, Aggregate] = {
    **dict.fromkeys(
        (*PERMILLES, "max_ms", "p99_before_ms", "depth_max", "depth_max_before", "oldest_max_ms", "node_count"), "max"
    ),
    **dict.fromkeys(("count", "carried_count", "unplaced_count", "sample_count", "samples_left_out"), "sum"),
    "uncertain_count": "sum",
    **dict.fromkeys(("in_count", "out_count", "requeue_count", "timeout_count", "depth_area", "observed_s"), "sum"),
    **dict.fromkeys(("died_count", "dropped_count"), "sum"),
    **dict.fromkeys(("in_rate", "out_rate", "byte_rate", "depth_mean"), "mean"),
    **dict.fromkeys(("depth_last", "dead_last"), "last"),
    **dict.fromkeys(("actual", "forecast", "expected", "high", "high_80", "high_95", "score"), "max"),
    **dict.fromkeys(("low", "low_80", "low_95"), "min"),
}
"""``mean`` is weighted by the observed time (``observed_s``), like the figures themselves."""
STEPS_S = (300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 7 * 86_400, 28 * 86_400, 364 * 86_400)
"""Lengths of a point in seconds. Up to a day, each divides a UTC day."""
MAX_POINTS = 10_000


@dataclass(frozen=True)
class Series:
    """``points`` are rows, oldest first: a time in Unix milliseconds, then the figures in the requested order.

    A point begins at its time and is ``step_ms`` long. ``window_count`` is the number of windows in all points.
    """

    step_ms: int
    window_count: int
    points: list[list[Any]]


def series(result: Result, selection: Selection, figures: Sequence[str], most: int = 1_000) -> Series:
    """Return the figures of the selected rows, which should be of one topic and channel, in at most ``most`` points.

    Raises BadParameter for a result without times, for ``most`` out of range, and for a figure that the result does not
    have or that cannot be combined over windows.
    """
    if result.time is None:
        raise BadParameter("the rows of this result have no time", "figures")
    if not 1 <= most <= MAX_POINTS:
        raise BadParameter(f"{most} is not between 1 and {MAX_POINTS}", "points")
    for figure in figures:
        if result.named("figures", figure) not in AGGREGATES:
            raise BadParameter(f"{figure!r} has no sum, mean or maximum over windows", "figures")
    once = [*dict.fromkeys(figures)]
    weighted = [figure for figure in once if AGGREGATES[figure] == "mean"]
    read = [*dict.fromkeys([result.time, *once, *(["observed_s"] if weighted else [])])]
    table = result.dataset.to_table(columns=read, filter=result.matching(selection))
    times = pc.count_distinct(table[result.time]).as_py()
    step, points = in_points(table[result.time], most)
    table = table.append_column("point", points)
    for figure in weighted:
        # A window without the figure has no weight.
        table = table.append_column(f"{figure}*", pc.multiply(table[figure], table["observed_s"]))
        weight = pc.if_else(pc.is_valid(table[figure]), table["observed_s"], None)
        table = table.append_column(f"{figure}/", weight)
    table = table.sort_by(result.time)
    asked = [pair for figure in once for pair in _asked(figure)]
    grouped = table.group_by("point", use_threads=False).aggregate(asked).sort_by("point")
    columns = [grouped["point"].to_pylist(), *(_combined(grouped, figure) for figure in figures)]
    return Series(step * 1000, times, [list(row) for row in zip(*columns, strict=True)])


class Group(NamedTuple):
    """A topic and channel, None for a topic's own rows, and the largest ``worst`` figure of its rows, None without."""

    topic: str
    channel: str | None
    worst: float | None = None


def groups(result: Result, worst: str = "", selection: Selection = EVERYTHING) -> list[Group]:
    """Return each topic and channel that has rows, largest ``worst`` figure first, then by name.

    Without ``worst``, the name of a column, they are by name only.
    """
    names = [result.named(name, name) for name in ("topic", "channel")]
    columns = [*names, result.named("worst", worst)] if worst else names
    found = result.dataset.to_table(columns=columns, filter=result.matching(selection))
    distinct = found.group_by(names).aggregate([(worst, "max")] if worst else [])
    figures = distinct[f"{worst}_max"].to_pylist() if worst else [None] * distinct.num_rows
    found_groups = map(Group, *(distinct[name].to_pylist() for name in names), figures)
    return sorted(found_groups, key=lambda g: (g.worst is None, -(g.worst or 0), natural_key(g.topic), g.channel or ""))


def calendar(result: Result, objective: str, selection: Selection = EVERYTHING) -> list[list[Any]]:
    """Return the days of an ``objectives`` result, oldest first.

    A row is a UTC day in Unix milliseconds, the number of messages of windows that met the target, and that of all
    windows, over all selected topics and channels.
    """
    columns = [
        result.named("calendar", name) for name in ("span", "objective", "span_start", "held_count", "message_count")
    ]
    table = result.dataset.to_table(columns=columns, filter=result.matching(selection))
    chosen = table.filter(pc.and_(pc.equal(table["span"], "day"), pc.equal(table["objective"], objective)))
    day = chosen["span_start"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    days = (
        pa.table({"day": day, "held": chosen["held_count"], "all": chosen["message_count"]})
        .group_by("day")
        .aggregate([("held", "sum"), ("all", "sum")])
        .sort_by("day")
    )
    return [list(row) for row in zip(*(days[name].to_pylist() for name in ("day", "held_sum", "all_sum")), strict=True)]


def in_points(times: pa.ChunkedArray, most: int) -> tuple[int, pa.ChunkedArray]:
    """Return the length of a point in seconds, and for each time the start of its point in Unix milliseconds."""
    seconds = pc.cast(pc.floor_temporal(times, unit="second").cast(pa.timestamp("s", tz="UTC")), pa.int64())
    step = _step_s(sorted(pc.unique(seconds).to_pylist()), most)
    return step, pc.multiply(_floored(seconds, step), 1000)


def _step_s(times: Sequence[int], most: int) -> int:
    """Return the length of a window, or else the shortest step that needs at most ``most`` points."""
    if len(times) <= most:
        return min((after - before for before, after in pairwise(times)), default=0)
    steps = iter(STEPS_S)
    step = next(steps)
    while len({time // step for time in times}) > most:
        step = next(steps, 2 * step)
    return step


def _floored(seconds: pa.ChunkedArray, step: int) -> pa.ChunkedArray:
    # Arrow's division rounds towards zero, which is downwards for times after 1970.
    return pc.multiply(pc.divide(seconds, step), step) if step else seconds


def _asked(figure: str) -> list[tuple[str, str]]:
    """Return the aggregations by which Arrow combines the figure."""
    aggregate = AGGREGATES[figure]
    return [(f"{figure}*", "sum"), (f"{figure}/", "sum")] if aggregate == "mean" else [(figure, aggregate)]


def _combined(grouped: pa.Table, figure: str) -> list[Any]:
    aggregate = AGGREGATES[figure]
    if aggregate != "mean":
        return list(grouped[f"{figure}_{aggregate}"].to_pylist())
    totals = zip(grouped[f"{figure}*_sum"].to_pylist(), grouped[f"{figure}/_sum"].to_pylist(), strict=True)
    return [total / weight if weight else None for total, weight in totals]
