"""Reports over HTTP: the jobs there are, schedules, runs, results."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Query, Router, Status
from ninja.errors import HttpError

from accounts.auth import caller
from accounts.roles import Permission
from accounts.schemas import Message
from accounts.services import require
from analytics.jobs import JOBS
from analytics.parameters import BadParameter
from reports import selectors, services
from reports.models import WrongState
from reports.schedule import BadSchedule
from reports.schemas import (
    JobsOut,
    ResultOut,
    RunIn,
    RunOut,
    RunsOut,
    ScheduleChange,
    ScheduleIn,
    ScheduleOut,
    SchedulesOut,
    run_detail,
    schedule_detail,
)
from reports.selectors import NoResult

router = Router(tags=["reports"])
REFUSALS: dict[int, Any] = {401: Message, 403: Message, 404: Message, 422: Message}


@router.get("jobs", response={200: JobsOut, **REFUSALS}, exclude_unset=True)
def jobs(request: HttpRequest) -> dict[str, Any]:
    """The jobs there are, and their parameters."""
    require(caller(request), Permission.VIEW)
    told = [
        {"name": job.name, "title": job.title, "description": job.description, "parameters": job.form()}
        for job in JOBS.values()
    ]
    return {"jobs": told}


@router.get("schedules", response={200: SchedulesOut, **REFUSALS})
def schedules(request: HttpRequest) -> dict[str, Any]:
    """Every scheduled report."""
    require(caller(request), Permission.VIEW)
    return {"schedules": [schedule_detail(report) for report in selectors.schedules()]}


@router.post("schedules", response={201: ScheduleOut, **REFUSALS})
def create_schedule(request: HttpRequest, body: ScheduleIn) -> Status:
    """Schedule a report, by cron or by interval."""
    try:
        report = services.create_schedule(values=body.dict(), by=caller(request))
    except (BadParameter, BadSchedule) as error:
        raise HttpError(422, str(error)) from None
    return Status(201, schedule_detail(report))


@router.patch("schedules/{int:schedule_id}", response={200: ScheduleOut, **REFUSALS})
def change_schedule(request: HttpRequest, schedule_id: int, body: ScheduleChange) -> dict[str, Any]:
    """Change what the body names."""
    values = body.dict(exclude_unset=True)
    try:
        return schedule_detail(services.change_schedule(report_id=schedule_id, values=values, by=caller(request)))
    except (BadParameter, BadSchedule) as error:
        raise HttpError(422, str(error)) from None


@router.delete("schedules/{int:schedule_id}", response={204: None, **REFUSALS})
def delete_schedule(request: HttpRequest, schedule_id: int) -> Status:
    """Drop a schedule; its runs stay."""
    services.delete_schedule(report_id=schedule_id, by=caller(request))
    return Status(204, None)


@router.get("runs", response={200: RunsOut, **REFUSALS})
def runs(
    request: HttpRequest, limit: int = Query(50, ge=1, le=500), before: int | None = None, job: str | None = None
) -> dict[str, Any]:
    """Runs, newest first; ``before`` is the id of the last one already seen."""
    require(caller(request), Permission.VIEW)
    return {"runs": [run_detail(run) for run in selectors.runs(limit=limit, before=before, job=job)]}


@router.post("runs", response={201: RunOut, **REFUSALS})
def create_run(request: HttpRequest, body: RunIn) -> Status:
    """Run a job now."""
    try:
        run = services.request_run(job=body.job, parameters=body.parameters, by=caller(request))
    except BadParameter as error:
        raise HttpError(422, str(error)) from None
    return Status(201, run_detail(run))


@router.get("runs/{int:run_id}", response={200: RunOut, **REFUSALS})
def run(request: HttpRequest, run_id: int) -> dict[str, Any]:
    """One run, with the end of its log."""
    require(caller(request), Permission.VIEW)
    return run_detail(selectors.run(run_id))


@router.post("runs/{int:run_id}/cancel", response={200: RunOut, 409: Message, **REFUSALS})
def cancel_run(request: HttpRequest, run_id: int) -> dict[str, Any]:
    """Stop a run; a running one answers ``cancelling`` and is ``cancelled`` a moment later."""
    try:
        return run_detail(services.cancel_run(run_id=run_id, by=caller(request)))
    except WrongState as error:
        raise HttpError(409, str(error)) from None


@router.get("runs/{int:run_id}/result", response={200: ResultOut, **REFUSALS})
def result(
    request: HttpRequest, run_id: int, limit: int = Query(1000, ge=1, le=10_000), offset: int = Query(0, ge=0)
) -> dict[str, Any]:
    """A page of a result's rows."""
    require(caller(request), Permission.VIEW)
    try:
        found = selectors.result(run_id)
    except NoResult as error:
        raise HttpError(404, str(error)) from None
    columns = [dataclasses.asdict(column) for column in found.columns]
    return {"columns": columns, "rows": found.page(offset, limit), "total": found.total}


@router.get("runs/{int:run_id}/result.csv", response={200: None, **REFUSALS})
def result_csv(request: HttpRequest, run_id: int) -> HttpResponse | StreamingHttpResponse:
    """The whole result as CSV."""
    require(caller(request), Permission.VIEW)
    found_run = selectors.run(run_id)
    try:
        pieces = selectors.result(run_id).csv()
    except NoResult as error:
        raise HttpError(404, str(error)) from None
    name = f"{found_run.job}-{run_id}.csv"
    return StreamingHttpResponse(
        _as_async(pieces),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _as_async(pieces: Iterator[str]) -> AsyncIterator[str]:
    """Read each piece off the event loop: Daphne would otherwise gather a plain iterator in memory first."""
    following = sync_to_async(lambda: next(pieces, None))
    while (piece := await following()) is not None:
        yield piece
