"""A run's report in an e-mail: a chart of the worst topic and channel, the worst rows, and the whole page attached."""

from __future__ import annotations

from django.template.loader import render_to_string

from nsqanalytics.results import Result
from nsqplatform import outbound
from nsqplatform.reports.document.charts import charts, has_charts, worst_groups
from nsqplatform.reports.document.page import about, columns_of, headings_of, page, period_of, table, title_of
from nsqplatform.reports.document.png import png
from nsqplatform.reports.models import ReportRun

MAX_ROWS = 10
MAX_COLUMNS = 12
"""Number of rows and columns in the mail; the attached page has more."""
_PICTURE = "chart"


def mail_of(run: ReportRun, result: Result, link: str) -> outbound.Rich:
    """Return the mail's HTML with its picture, and the page as its attachment. ``link`` is the address of the run."""
    columns = columns_of(run, result)[:MAX_COLUMNS]
    picture = _picture(run, result)
    context = {
        "title": title_of(run),
        "period": period_of(result),
        "about": about(run, result),
        "picture": picture,
        "cid": _PICTURE,
        "headings": headings_of(columns),
        "rows": list(table(run, result, columns, MAX_ROWS)),
        "left_out": max(0, result.total - MAX_ROWS),
        "link": link,
    }
    return outbound.Rich(
        html=render_to_string("reports/mail.html", context),
        pictures={_PICTURE: picture[1]} if picture else {},
        attachments=[(f"{run.job}-{run.pk}.html", page(run, result).encode(), "text/html")],
    )


def _picture(run: ReportRun, result: Result) -> tuple[str, bytes, list[tuple[str, str]]] | None:
    """Return title, PNG, and the labels of the lines with their colours, of the worst group; None without values."""
    found = worst_groups(run, result) if has_charts(run, result) else []
    if not found:
        return None
    chart = charts(run, result, found[0])[-1 if run.job == "throughput" else 0].chart
    if not chart.has_values:
        return None
    return chart.title, png(chart), [(line.label, line.colour.css) for line in chart.lines]
