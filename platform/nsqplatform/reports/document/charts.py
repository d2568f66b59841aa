"""The charts of a run's result: those of the web app's page of the run."""

from __future__ import annotations

from typing import NamedTuple

from nsqanalytics.heat import Heat, heat
from nsqanalytics.job_parameters import WINDOWS
from nsqanalytics.parameters import BadParameter
from nsqanalytics.results import Result, Selection
from nsqanalytics.series import Group, Series, groups, series
from nsqplatform.number_format import number
from nsqplatform.reports.document.chart import BLUE, GREEN, INK, MUTED, ORANGE, RED, Chart, Colour, Line
from nsqplatform.reports.document.texts import duration
from nsqplatform.reports.models import ReportRun

MAX_POINTS = 400
_LINES: dict[str, dict[str, dict[str, tuple[str, Colour]]]] = {
    "latency": {
        "Latency percentiles": {
            "p50_ms": ("p50", GREEN),
            "p90_ms": ("p90", BLUE),
            "p99_ms": ("p99", ORANGE),
            "p99_before_ms": ("p99 before", MUTED),
        }
    },
    "throughput": {
        "Messages per second": {"in_rate": ("in", BLUE), "out_rate": ("out", GREEN)},
        "Backlog, messages": {
            "depth_mean": ("mean", ORANGE),
            "depth_max": ("largest", RED),
            "depth_max_before": ("largest before", MUTED),
        },
    },
}
"""Job -> title of a chart -> the figures of its lines."""


class Drawn(NamedTuple):
    """A chart, and the messages by time and latency below its lines, if it has them."""

    chart: Chart
    heat: Heat | None = None


def has_charts(run: ReportRun, result: Result) -> bool:
    return run.job in _LINES and {"covered_since", "covered_until"} <= result.covered.keys()


def worst_groups(run: ReportRun, result: Result) -> list[Group]:
    """Return the topics and channels of the result, worst first; of a latency report, channels only have figures."""
    return groups(result, run.worst if run.worst in result.names else "")


def charts(run: ReportRun, result: Result, group: Group) -> list[Drawn]:
    """Return the charts of one topic and channel. The run must have charts."""
    selection = Selection(topic=group.topic, channel=group.channel or "")
    drawn: list[Drawn] = []
    for title, lines in _LINES[run.job].items():
        known = {name: of for name, of in lines.items() if name in result.names}
        found = series(result, selection, list(known), MAX_POINTS)
        drawn.append(Drawn(_chart(run, result, f"{title}, {name_of(group)}", known, found)))
    if run.job == "latency":
        [percentiles] = drawn
        try:
            messages = heat(result, selection)
        except BadParameter:  # results of earlier versions have no histograms
            return drawn
        chart = percentiles.chart
        over = [line._replace(colour=INK) for line in chart.lines if line.label in ("p50", "p99")]
        title = f"Messages by latency, {name_of(group)}{_beginning(chart.since, result)}"
        drawn.append(Drawn(Chart(title, chart.times, chart.since, chart.until, over, duration, log=True), messages))
    return drawn


def name_of(group: Group) -> str:
    return group.topic if group.channel is None else f"{group.topic} / {group.channel}"


def window_ms(run: ReportRun) -> int:
    """The length of the run's windows."""
    window = WINDOWS.get(str(run.parameters.get("window")), WINDOWS["1h"])
    return int(window.total_seconds() * 1000)


def _beginning(since: float, result: Result) -> str:
    """The end of a title: whether the chart begins later than the period."""
    return ", from its first reading on" if since > result.covered["covered_since"] else ""


def _chart(run: ReportRun, result: Result, title: str, lines: dict[str, tuple[str, Colour]], found: Series) -> Chart:
    covered = result.covered
    columns = list(zip(*found.points, strict=True)) or [()] * (1 + len(lines))
    drawn = [
        Line(label, colour, values)
        for (label, colour), values in zip(lines.values(), columns[1:], strict=True)
        if not label.endswith("before") or any(value is not None for value in values)
    ]
    is_latency = run.job == "latency"
    since, until = covered["covered_since"], covered["covered_until"]
    first = columns[0][0] if columns[0] else None
    # As on the run's page: minutes of readings would be a sliver at the end of an empty day.
    if first is not None and (since + until) / 2 < first < until:
        since = first
    return Chart(
        f"{title}{_beginning(since, result)}",
        columns[0],
        since,
        until,
        drawn,
        duration if is_latency else number,
        log=is_latency,
        band=(0, 2) if is_latency else None,
    )
