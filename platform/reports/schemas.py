"""Bodies of the reports' API; the web app's types are made from these. Times are unix milliseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from ninja import Schema
from pydantic import ConfigDict, Field

from reports.models import Report, ReportRun
from reports.schedule import next_runs

ParameterValue = Annotated[str, Field(max_length=500)] | int | float | None
Parameters = dict[str, ParameterValue]
RunState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Overlap = Literal["skip", "queue", "cancel"]
NotifyOn = Literal["never", "failure", "completion"]


class ParameterOut(Schema):
    type: Literal["string", "integer", "number", "datetime"]
    title: str
    description: str
    default: ParameterValue
    choices: list[str] | None = None
    minimum: float | None = None
    maximum: float | None = None


class JobOut(Schema):
    name: str
    title: str
    description: str
    kind: Literal["report", "maintenance"]
    parameters: dict[str, ParameterOut]


class JobsOut(Schema):
    jobs: list[JobOut]


class RunIn(Schema):
    model_config = ConfigDict(extra="forbid")

    job: str = Field(max_length=100)
    parameters: Parameters = {}
    time_limit_s: int = Field(7200, ge=10, le=7 * 86_400)
    keep_days: int = Field(90, ge=1, le=3650, description="how long the result is kept")


class StageOut(Schema):
    name: str
    started_at: int
    fraction: float = Field(description="of the run, when this began")


class RunOut(Schema):
    id: int
    job: str
    parameters: Parameters
    state: RunState
    progress: float = Field(description="0 to 1")
    stage: str
    stages: list[StageOut]
    requested_by: str
    schedule_id: int | None = Field(description="of the schedule it belongs to")
    attempt: int
    not_before: int | None = Field(description="a retry waits until then")
    time_limit_s: int
    keep_days: int
    result_kept_until: int | None = Field(description="null while there is no result")
    result_dropped_at: int | None
    created_at: int
    started_at: int | None
    finished_at: int | None
    rows: int | None
    error: str | None
    log_tail: str


class RunsOut(Schema):
    runs: list[RunOut] = Field(description="newest first")


class ScheduleIn(Schema):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    job: str = Field(max_length=100)
    parameters: Parameters = {}
    cron: str | None = Field(
        None, max_length=200, description="five fields: minute hour day-of-month month day-of-week"
    )
    every_seconds: int | None = Field(None, ge=60, le=366 * 86_400)
    time_zone: str = Field("UTC", max_length=64)
    enabled: bool = True
    overlap: Overlap = Field("skip", description="what becomes of a run that is due while the last one is not over")
    retries: int = Field(0, ge=0, le=10)
    retry_after_s: int = Field(60, ge=1, le=86_400, description="before the first retry; doubled for each next one")
    time_limit_s: int = Field(7200, ge=10, le=7 * 86_400)
    keep_days: int = Field(90, ge=1, le=3650, description="how long results are kept")
    notify_on: NotifyOn = "never"
    notify_webhook: str = Field("", max_length=500, description="http or https; administrators alone read it whole")
    notify_email: str = Field("", max_length=500, description="addresses, with commas between")


class ScheduleChange(ScheduleIn):
    """Only what is given is changed; giving one of ``cron`` and ``every_seconds`` drops the other."""

    name: str = Field("", min_length=1, max_length=100)
    job: str = Field("", max_length=100)
    parameters: Parameters = {}
    cron: str | None = Field(None, max_length=200)
    every_seconds: int | None = Field(None, ge=60, le=366 * 86_400)
    time_zone: str = Field("", max_length=64)
    enabled: bool = True


class ScheduleOut(Schema):
    id: int
    name: str
    job: str
    parameters: Parameters
    cron: str | None
    every_seconds: int | None
    time_zone: str
    enabled: bool
    overlap: Overlap
    retries: int
    retry_after_s: int
    time_limit_s: int
    keep_days: int
    notify_on: NotifyOn
    notify_webhook: str = Field(description="its host alone, unless an administrator asks")
    notify_email: str
    last_run_at: int | None
    next_run_at: int | None
    created_by: str


class WhenIn(Schema):
    model_config = ConfigDict(extra="forbid")

    cron: str | None = Field(None, max_length=200)
    every_seconds: int | None = Field(None, ge=60, le=366 * 86_400)
    time_zone: str = Field("UTC", max_length=64)


class NextRunsOut(Schema):
    next_runs: list[int]


class SchedulesOut(Schema):
    schedules: list[ScheduleOut]


class ColumnOut(Schema):
    name: str
    type: Literal["timestamp", "string", "integer", "number"]
    unit: str = Field(description="empty where the figure has none")


class ResultPage(Schema):
    columns: list[ColumnOut]
    rows: list[list[str | int | float | None]]
    total: int


_RUN = (
    *("id", "job", "parameters", "state", "progress", "stage", "stages", "requested_by", "attempt", "time_limit_s"),
    *("keep_days", "rows", "error", "log_tail"),
)
_RUN_TIMES = ("not_before", "result_kept_until", "result_dropped_at", "created_at", "started_at", "finished_at")
_SCHEDULE = (
    *("id", "name", "job", "parameters", "cron", "every_seconds", "time_zone", "enabled", "overlap", "retries"),
    *("retry_after_s", "time_limit_s", "keep_days", "notify_on", "notify_webhook", "notify_email", "created_by"),
)


def run_detail(run: ReportRun) -> dict[str, Any]:
    """RUN, as the API and the websocket tell it."""
    times = {name: unix_ms(getattr(run, name)) for name in _RUN_TIMES}
    return {name: getattr(run, name) for name in _RUN} | times | {"schedule_id": run.report_id}


def schedule_detail(report: Report, *, secrets: bool) -> dict[str, Any]:
    """SCHEDULE, as the API tells it. A webhook's address often holds a key: without ``secrets``, its host alone."""
    task = report.periodic_task
    detail = {name: getattr(report, name) for name in _SCHEDULE}
    if report.notify_webhook and not secrets:
        detail["notify_webhook"] = f"{urlsplit(report.notify_webhook).hostname}/…"
    due = next_runs(report, count=1)[0] if report.enabled else None
    return detail | {"last_run_at": unix_ms(task and task.last_run_at), "next_run_at": unix_ms(due)}


def unix_ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)
