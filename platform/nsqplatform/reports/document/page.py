"""A run's report as one HTML page that needs nothing else: for sending, and for printing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

from nsqanalytics.job_list import JOBS
from nsqanalytics.parameters import Parameter, declared
from nsqanalytics.results import Result, ResultColumn
from nsqanalytics.series import Group
from nsqplatform.clusters import current
from nsqplatform.reports.document.charts import charts, has_charts, window_ms, worst_groups
from nsqplatform.reports.document.svg import svg
from nsqplatform.reports.document.texts import cell_text, heading, moment, parameter_text
from nsqplatform.reports.models import ReportRun
from nsqplatform.unix_time import unix_ms

COVERAGE = ("covered_since", "covered_until", "before_since", "before_until")
_REPLACED = ("compared_with", "until", "before", "before_until", "hours")
"""Parameters that the page does not list, because it has the bounds of both periods."""
MAX_GROUPS = 12
"""Number of topics and channels that have charts, the worst ones."""
MAX_ROWS = 500
"""Number of rows of the table, the worst ones."""
_BASIS = frozenset({*COVERAGE, "carried_count", "unplaced_count", "error_percent", "unit"})
"""Columns that the table leaves out, with those about samples and nodes."""


class Picture(NamedTuple):
    """A chart as SVG, and its lines' labels with their colours in CSS."""

    title: str
    svg: SafeString
    lines: list[tuple[str, str]]


def page(run: ReportRun, result: Result) -> str:
    """Return the page. Names are escaped; nothing in it runs, and nothing is loaded from elsewhere."""
    columns = columns_of(run, result)
    total = result.total
    found = worst_groups(run, result) if has_charts(run, result) else []
    drawn = [group for group in found if run.job != "latency" or group.worst is not None][:MAX_GROUPS]
    pictures = [picture for group in drawn for picture in _pictures(run, result, group)]
    context = {
        "job": run.job,
        "title": title_of(run),
        "period": period_of(result),
        "about": about(run, result),
        "pictures": pictures,
        "lacks_values": bool(found) and not pictures,
        "left_out_groups": len(found) - len(drawn),
        "headings": headings_of(columns),
        "rows": list(table(run, result, columns, MAX_ROWS)),
        "left_out_rows": max(0, total - MAX_ROWS),
        "made_at": moment(unix_ms(timezone.now())),
    }
    return render_to_string("reports/document.html", context)


def title_of(run: ReportRun) -> str:
    """The report's title, of a schedule with its name."""
    return f"{run.report.name}: {run.title}" if run.report is not None else run.title


def period_of(result: Result) -> str:
    """The period that the result covers; empty for maintenance."""
    covered = result.covered
    if "covered_since" not in covered:
        return ""
    return f"{moment(covered['covered_since'])} to {moment(covered['covered_until'])} UTC"


def about(run: ReportRun, result: Result) -> list[tuple[str, str]]:
    """Labels and texts: what the report is about, without values that were not given."""
    covered = result.covered
    compared = ""
    if "before_since" in covered:
        compared = f"{moment(covered['before_since'])} to {moment(covered['before_until'])} UTC"
    elif run.parameters.get("compared_with") not in (None, "", "none"):
        compared = "no data before"
    given = [(n, v) for n, v in run.parameters.items() if n not in _REPLACED and v not in (None, "")]
    job = JOBS.get(run.job)
    known = declared(job.parameters) if job else {}
    labelled = [
        ("Cluster", current.name()),
        ("Run", f"#{run.pk}, {run.requested_by}, {moment(unix_ms(run.created_at))} UTC"),
        ("Compared with", compared),
        ("Hours of the week (UTC)", result.hours),
        *((_label(name, known.get(name)), parameter_text(known.get(name), value)) for name, value in given),
        ("Rows", f"{result.total:,}"),
    ]
    return [(label, text) for label, text in labelled if text]


def _label(name: str, parameter: Parameter | None) -> str:
    return parameter.title if parameter else name.replace("_", " ").capitalize()


def columns_of(run: ReportRun, result: Result) -> list[ResultColumn]:
    """The columns of the table: without those about the basis of the figures, and without empty comparisons."""
    left_out = () if "before_since" in result.covered else ("_before", "_before_ms", "_change_percent")
    return [
        column
        for column in result.columns
        if column.name not in _BASIS and column.unit not in ("samples", "nodes") and not column.name.endswith(left_out)
    ]


def headings_of(columns: Sequence[ResultColumn]) -> list[tuple[str, bool]]:
    """The heading of each column, and whether it is of numbers."""
    return [(heading(column), is_number(column)) for column in columns]


def table(
    run: ReportRun, result: Result, columns: Sequence[ResultColumn], most: int
) -> Iterator[list[tuple[str, bool]]]:
    """Yield the worst rows: each cell's text, and whether it is a number."""
    names = [column.name for column in columns]
    units = ["unit"] if "unit" in result.names else []
    sort = f"-{run.worst}" if run.worst in result.names else ""
    rows: list[list[Any]] = result.page(0, most, sort=sort, columns=[*names, *units])
    for row in rows:
        unit = str(row[-1] or "") if units else ""
        cells = zip(columns, row, strict=False)
        yield [(cell_text(column, cell, unit), is_number(column)) for column, cell in cells]


def is_number(column: ResultColumn) -> bool:
    return column.type in ("integer", "number")


def _pictures(run: ReportRun, result: Result, group: Group) -> Iterator[Picture]:
    """Yield the charts of a group that have something to draw."""
    for chart, heat in charts(run, result, group):
        if not chart.has_values:
            continue
        lines = [(line.label, line.colour.css) for line in chart.lines]
        yield Picture(chart.title, svg(chart, heat, window_ms(run)), lines)
