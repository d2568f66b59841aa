"""Reports over HTTP: jobs, schedules and runs. Results are in :mod:`reports.results_api`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from django.http import HttpRequest
from ninja import Query, Router, Status
from ninja.errors import HttpError

from nsqanalytics.job_list import JOBS
from nsqanalytics.parameters import FormField
from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.reports import selectors, services
from nsqplatform.reports.models import Report
from nsqplatform.reports.schedule import check, next_runs
from nsqplatform.reports.schemas import (
    NextRunsOut,
    ReportJobsOut,
    RunIn,
    RunOut,
    RunsOut,
    RunState,
    ScheduleChange,
    ScheduleIn,
    ScheduleOut,
    SchedulesOut,
    WhenIn,
    run_detail,
    schedule_detail,
)
from nsqplatform.unix_time import unix_ms
from nsqplatform.worker_task import WrongState

router = Router(tags=["reports"])
REFUSALS: dict[int, Any] = {401: Message, 403: Message, 404: Message, 422: InvalidRequest}


class JobForm(TypedDict):
    """A ReportJobOut. A parameter omits the fields that do not apply to it."""

    name: str
    title: str
    description: str
    kind: Literal["report", "maintenance"]
    parameters: dict[str, FormField]


class Jobs(TypedDict):
    """A ReportJobsOut."""

    jobs: list[JobForm]


@router.get("jobs", auth=needs(Permission.VIEW), response={200: ReportJobsOut, **REFUSALS}, exclude_unset=True)
def jobs(request: HttpRequest) -> Jobs:
    """The jobs and their parameters."""
    described: list[JobForm] = [
        {
            "name": job.name,
            "title": job.title,
            "description": job.description,
            "kind": job.kind,
            "parameters": job.form(),
        }
        for job in JOBS.values()
    ]
    return {"jobs": described}


@router.get("schedules", auth=needs(Permission.VIEW), response={200: SchedulesOut, **REFUSALS})
def schedules(request: HttpRequest) -> SchedulesOut:
    """All scheduled reports."""
    return SchedulesOut(schedules=[_schedule_out(report, request) for report in selectors.schedules()])


@router.post("schedules", auth=needs(Permission.SCHEDULE), response={201: ScheduleOut, **REFUSALS})
def create_schedule(request: HttpRequest, body: ScheduleIn) -> Status:
    """Schedule a report, by cron or by interval."""
    report = services.create_schedule(values=body, by=caller(request), remote_address=remote_address(request))
    return Status(201, _schedule_out(report, request))


@router.patch("schedules/{int:schedule_id}", auth=needs(Permission.SCHEDULE), response={200: ScheduleOut, **REFUSALS})
def change_schedule(request: HttpRequest, schedule_id: int, body: ScheduleChange) -> ScheduleOut:
    """Change the given values."""
    report = services.change_schedule(
        report_id=schedule_id, values=body, by=caller(request), remote_address=remote_address(request)
    )
    return _schedule_out(report, request)


@router.delete("schedules/{int:schedule_id}", auth=needs(Permission.SCHEDULE), response={204: None, **REFUSALS})
def delete_schedule(request: HttpRequest, schedule_id: int) -> Status:
    """Delete a schedule; its runs stay."""
    services.delete_schedule(report_id=schedule_id, by=caller(request), remote_address=remote_address(request))
    return Status(204, None)


@router.post("schedules/{int:schedule_id}/run", auth=needs(Permission.REPORT), response={201: RunOut, **REFUSALS})
def run_schedule(request: HttpRequest, schedule_id: int) -> Status:
    """Run a schedule now, as if it were due."""
    run = services.run_schedule(report_id=schedule_id, by=caller(request), remote_address=remote_address(request))
    return Status(201, run_detail(run))


@router.get("schedules/preview", auth=needs(Permission.VIEW), response={200: NextRunsOut, **REFUSALS})
def preview(request: HttpRequest, when: Query[WhenIn]) -> NextRunsOut:
    """The next five times at which a schedule would run, in order."""
    check(**when.dict())
    due = next_runs(Report(**when.dict()), count=5)
    return NextRunsOut(next_runs=[unix_ms(at) for at in due])


def _schedule_out(report: Report, request: HttpRequest) -> ScheduleOut:
    return schedule_detail(report, secrets=caller(request).may(Permission.SCHEDULE))


@router.get("runs", auth=needs(Permission.VIEW), response={200: RunsOut, **REFUSALS})
def runs(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=500),
    before: int | None = Query(None, ge=0, lt=2**63, description="id of the last one already seen"),
    job: str | None = Query(None, max_length=100),
    state: RunState | None = None,
    schedule: int | None = Query(None, ge=1, lt=2**63),
) -> RunsOut:
    """Runs, newest first."""
    found = selectors.runs(limit=limit, before=before, job=job, state=state, schedule_id=schedule)
    return RunsOut(runs=[run_detail(run) for run in found])


@router.post("runs", auth=needs(Permission.REPORT), response={201: RunOut, **REFUSALS})
def create_run(request: HttpRequest, body: RunIn) -> Status:
    """Run a job now."""
    run = services.request_run(**body.dict(), by=caller(request), remote_address=remote_address(request))
    return Status(201, run_detail(run))


@router.post("session", auth=needs(Permission.REPORT), response={204: None, **REFUSALS})
def prepare_session(request: HttpRequest) -> Status:
    """Let the workers start Spark before the first report, as the form of a report does when it is opened."""
    services.prepare_session(by=caller(request))
    return Status(204, None)


@router.get("runs/{int:run_id}", auth=needs(Permission.VIEW), response={200: RunOut, **REFUSALS})
def run(request: HttpRequest, run_id: int) -> RunOut:
    """One run, with the end of its log."""
    return run_detail(selectors.run(run_id))


@router.post(
    "runs/{int:run_id}/cancel", auth=needs(Permission.REPORT), response={200: RunOut, 409: Message, **REFUSALS}
)
def cancel_run(request: HttpRequest, run_id: int) -> RunOut:
    """Cancel a run. A running one is ``cancelling`` in the response and ``cancelled`` soon after."""
    try:
        return run_detail(
            services.cancel_run(run_id=run_id, by=caller(request), remote_address=remote_address(request))
        )
    except WrongState as error:
        raise HttpError(409, str(error)) from None
