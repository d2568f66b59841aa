"""Notifications of a run's end, by webhook and e-mail."""

from __future__ import annotations

import logging
from typing import Literal

from nsqplatform import outbound
from nsqplatform.clusters import current
from nsqplatform.reports import selectors
from nsqplatform.reports.document.mail import mail_of
from nsqplatform.reports.models import Report, ReportRun
from nsqplatform.reports.schedule import recipients
from nsqplatform.unix_time import unix_ms
from nsqwire.counted import counted

logger = logging.getLogger(__name__)

Way = Literal["webhook", "email"]


def ways(report: Report) -> list[Way]:
    """The ways in which a schedule notifies. Each has a task of its own, so that a failing one does not delay the
    other."""
    found: list[Way] = ["webhook"] if report.notify_webhook else []
    return [*found, "email"] if recipients(report.notify_email) else found


def send(report: Report, run: ReportRun, way: Way) -> None:
    """Send the notification of a run's end. Raises outbound.Undelivered."""
    text = text_of(report, run)
    if way == "webhook":
        outbound.post(report.notify_webhook, text=text, fields=fields_of(report, run))
    else:
        outbound.mail(recipients(report.notify_email), title=title_of(report, run), text=text, rich=_rich(run))


def _rich(run: ReportRun) -> outbound.Rich | None:
    """The report itself, for a mail; None for a run without a result, and for a result that cannot be drawn."""
    try:
        return mail_of(run, selectors.result(run.pk), outbound.address_of(path_of(run)))
    except selectors.NoResult:
        return None
    except Exception:
        # The recipients still have to know that the run has ended.
        logger.exception("a mail is sent without its report", extra={"run": run.pk})
        return None


def fields_of(report: Report, run: ReportRun) -> dict[str, object]:
    """The JSON fields for webhooks, in addition to the text; times are Unix milliseconds."""
    return {
        "schedule": report.name,
        "cluster": current.name(),
        "run": run.pk,
        "job": run.job,
        "parameters": run.parameters,
        "state": run.state,
        "attempt": run.attempt,
        "rows": run.rows,
        "error": run.error,
        "started_at": unix_ms(run.started_at),
        "finished_at": unix_ms(run.finished_at),
        "path": path_of(run),
    }


def title_of(report: Report, run: ReportRun) -> str:
    return current.with_title(f"Report {report.name} {run.state}")


def text_of(report: Report, run: ReportRun) -> str:
    """The text for people: state, outcome, and link."""
    if run.state == ReportRun.State.FAILED:
        attempt = f", attempt {run.attempt}" if run.attempt > 1 else ""
        what = f"Run {run.pk} ({run.job}{attempt}): {run.error or 'no reason was given; see its log'}"
    else:
        rows = counted(run.rows, "row") if run.rows else "no row"
        what = f"Run {run.pk} ({run.job}) has {rows}."
    return "\n".join([title_of(report, run), what, outbound.address_of(path_of(run))])


def path_of(run: ReportRun) -> str:
    return f"/reports/runs/{run.pk}"
