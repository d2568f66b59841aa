"""Bodies of the reports' API; the web app's types are made from these. Times are unix milliseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import ConfigDict, Field

from reports.models import Report, ReportRun

ParameterValue = str | int | float | None
Parameters = dict[str, ParameterValue]


class ParameterOut(Schema):
    type: Literal["string", "integer", "datetime"]
    title: str
    description: str
    default: ParameterValue
    choices: list[str] | None = None
    minimum: int | None = None


class JobOut(Schema):
    name: str
    title: str
    description: str
    parameters: dict[str, ParameterOut]


class JobsOut(Schema):
    jobs: list[JobOut]


class RunIn(Schema):
    model_config = ConfigDict(extra="forbid")

    job: str
    parameters: Parameters = {}


class RunOut(Schema):
    id: int
    job: str
    parameters: Parameters
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    progress: float = Field(description="0 to 1")
    stage: str
    requested_by: str
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
    job: str
    parameters: Parameters = {}
    cron: str | None = Field(None, description="five fields: minute hour day-of-month month day-of-week")
    every_seconds: int | None = Field(None, ge=60, le=366 * 86_400)
    time_zone: str = "UTC"
    enabled: bool = True


class ScheduleChange(Schema):
    """Only what is given is changed; giving one of ``cron`` and ``every_seconds`` drops the other."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("", min_length=1, max_length=100)
    job: str = ""
    parameters: Parameters = {}
    cron: str | None = None
    every_seconds: int | None = Field(None, ge=60, le=366 * 86_400)
    time_zone: str = ""
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
    last_run_at: int | None
    created_by: str


class SchedulesOut(Schema):
    schedules: list[ScheduleOut]


class ColumnOut(Schema):
    name: str
    type: Literal["timestamp", "string", "integer", "number"]
    unit: str = Field(description="empty where the figure has none")


class ResultOut(Schema):
    columns: list[ColumnOut]
    rows: list[list[str | int | float | None]]
    total: int


def run_detail(run: ReportRun) -> dict[str, Any]:
    """RUN, as the API and the websocket tell it."""
    plain = ("id", "job", "parameters", "state", "progress", "stage", "requested_by", "rows", "error", "log_tail")
    times = ("created_at", "started_at", "finished_at")
    return {name: getattr(run, name) for name in plain} | {name: _unix_ms(getattr(run, name)) for name in times}


def schedule_detail(report: Report) -> dict[str, Any]:
    """SCHEDULE, as the API tells it."""
    plain = ("id", "name", "job", "parameters", "cron", "every_seconds", "time_zone", "enabled", "created_by")
    task = report.periodic_task
    return {name: getattr(report, name) for name in plain} | {"last_run_at": _unix_ms(task and task.last_run_at)}


def _unix_ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)
