"""Word of a run's end, by webhook and by e-mail."""

from __future__ import annotations

import httpx
from django.core.mail import send_mail

from reports.models import Report, ReportRun
from reports.schedule import recipients
from reports.schemas import unix_ms

TIMEOUT_S = 10.0


def send(report: Report, run: ReportRun) -> None:
    """Raises httpx.HTTPError or OSError where it could not be delivered."""
    if report.notify_webhook:
        httpx.post(report.notify_webhook, json=body(report, run), timeout=TIMEOUT_S).raise_for_status()
    if to := recipients(report.notify_email):
        send_mail(f"Report {report.name} {run.state}", text(report, run), None, to)


def body(report: Report, run: ReportRun) -> dict[str, object]:
    """What a webhook is posted, as JSON; times are unix milliseconds."""
    return {
        "schedule": report.name,
        "run": run.pk,
        "job": run.job,
        "parameters": run.parameters,
        "state": run.state,
        "attempt": run.attempt,
        "rows": run.rows,
        "error": run.error,
        "started_at": unix_ms(run.started_at),
        "finished_at": unix_ms(run.finished_at),
        "path": f"/reports/runs/{run.pk}",
    }


def text(report: Report, run: ReportRun) -> str:
    said = f"It failed: {run.error}" if run.state == ReportRun.State.FAILED else f"It has {run.rows} rows."
    return f"Run {run.pk} of {report.name} ({run.job}) is over. {said}\n\nIts page: /reports/runs/{run.pk}\n"
