"""Bodies of the reports' API, from which the web app's types are generated. Times are Unix milliseconds."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from ninja import Schema
from pydantic import BeforeValidator, ConfigDict, Field

from nsqplatform.accounts.schemas import Body, Line
from nsqplatform.reports.models import Report, ReportRun
from nsqplatform.reports.schedule import next_runs
from nsqplatform.unix_time import LATEST_MS, unix_ms
from nsqwire.units import Milliseconds

LONGEST_VALUE = 500


def _simple(value: object) -> object:
    """Refuse with one message what the union would refuse with one for each of its types."""
    if not isinstance(value, str | int | float | None):
        raise ValueError("it is neither a text nor a number")
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        raise ValueError(f"it has {len(value):,} characters; at most {LONGEST_VALUE} are possible")
    return value


ParameterValue = Annotated[
    Annotated[str, Field(max_length=LONGEST_VALUE)] | int | float | None, BeforeValidator(_simple)
]
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
    suggested: str | None = Field(None, description="the value that a new form begins with, in place of the default")
    minimum: float | None = None
    maximum: float | None = None


class ReportJobOut(Schema):
    name: str
    title: str
    description: str
    kind: Literal["report", "maintenance"]
    parameters: dict[str, ParameterOut]


class ReportJobsOut(Schema):
    jobs: list[ReportJobOut]


class RunIn(Body):
    model_config = ConfigDict(extra="forbid")

    job: str = Field(max_length=100)
    parameters: Parameters = {}
    time_limit_s: int = Field(7200, ge=10, le=7 * 86_400)
    keep_days: int = Field(90, ge=1, le=3650, description="how long the result is kept")


class StageOut(Schema):
    name: str
    started_at: Milliseconds
    fraction: float = Field(description="fraction of the run at the start of the stage")


class RunOut(Schema):
    id: int
    job: str
    title: str = Field(description="title of the job; its name if there is no such job any more")
    worst: str = Field(description="column of its result in which the largest figure is the worst; empty without one")
    parameters: Parameters
    state: RunState
    progress: float = Field(description="0 to 1")
    stage: str
    stages: list[StageOut]
    left_s: int | None = Field(description="estimated seconds until it ends; null if unknown")
    requested_by: str
    schedule_id: int | None = Field(description="id of its schedule; null without one")
    attempt: int
    not_before: Milliseconds | None = Field(description="earliest start of a retry")
    time_limit_s: int
    keep_days: int
    result_kept_until: Milliseconds | None = Field(description="null without a result")
    result_dropped_at: Milliseconds | None
    created_at: Milliseconds
    started_at: Milliseconds | None
    finished_at: Milliseconds | None
    rows: int | None
    error: str | None
    log_tail: str


class RunMessage(Schema):
    """A websocket message: a run that changed."""

    type: Literal["run"]
    run: RunOut


class RunsOut(Schema):
    runs: list[RunOut] = Field(description="newest first")


class ScheduleIn(Body):
    model_config = ConfigDict(extra="forbid")

    name: Line = Field(min_length=1, max_length=100)
    job: str = Field(max_length=100)
    parameters: Parameters = {}
    cron: str | None = Field(
        None,
        max_length=200,
        description="five fields (minute hour day-of-month month day-of-week), or @hourly, @daily, @weekly, …",
    )
    every_seconds: int | None = Field(None, ge=60, le=366 * 86_400)
    time_zone: str = Field("UTC", max_length=64)
    enabled: bool = True
    overlap: Overlap = Field("skip", description="what happens if a run is due while the previous one has not finished")
    retries: int = Field(0, ge=0, le=10)
    retry_after_s: int = Field(
        60, ge=1, le=86_400, description="delay before the first retry; it doubles with each further retry"
    )
    time_limit_s: int = Field(7200, ge=10, le=7 * 86_400)
    keep_days: int = Field(90, ge=1, le=3650, description="how long results are kept")
    notify_on: NotifyOn = "never"
    notify_webhook: Line = Field(
        "", max_length=500, description="an http or https URL; only administrators can read it in full"
    )
    notify_email: Line = Field("", max_length=500, description="addresses, separated by commas")


class ScheduleChange(ScheduleIn):
    """Only given fields are changed; setting one of ``cron`` and ``every_seconds`` clears the other."""

    name: Line = Field("", min_length=1, max_length=100)
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
    notify_webhook: str = Field(description="the host only, except for administrators")
    notify_email: str
    last_run_at: Milliseconds | None = Field(description="when the schedule last created a run")
    next_run_at: Milliseconds | None
    skipped_count: int = Field(description="number of times that it was due and created no run")
    last_skipped_at: Milliseconds | None
    last_skip_reason: str
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
    unit: str = Field(description="empty if the figure has no unit")
    meaning: str = Field(description="what the figure is; empty for columns of earlier versions")


class RowsIn(Schema):
    """Selects the rows of a result that match all given values."""

    topic: str | None = Field(None, max_length=100)
    channel: str | None = Field(None, max_length=100, description="empty: rows of topics, without a channel")
    figure: str | None = Field(None, max_length=100, description="of results with a row per figure")
    since: Milliseconds | None = Field(
        None, ge=0, le=LATEST_MS, description="earliest start of a row's window, Unix milliseconds"
    )
    until: Milliseconds | None = Field(
        None, ge=0, le=LATEST_MS, description="latest start of a row's window, exclusive, Unix milliseconds"
    )
    words: str = Field("", max_length=200, description="each must occur in one of the row's texts; case-insensitive")


class ResultPage(Schema):
    columns: list[ColumnOut]
    rows: list[list[str | int | float | None]]
    total: int = Field(description="number of rows of the result")
    matching: int = Field(description="number of rows that match")
    hours: str = Field(description="hours of the week, in UTC, that are compared; empty for all hours of both periods")
    pdf: bool = Field(description="whether the platform's machine has a browser that makes result.pdf")
    covered: dict[str, int] = Field(
        description="covered_since and covered_until of the period; before_since and before_until of the compared one"
    )


class GroupOut(Schema):
    topic: str
    channel: str | None = Field(description="null for rows of a topic")
    worst: float | None = Field(description="largest figure of the run's column worst; null without one")


class GroupsOut(Schema):
    groups: list[GroupOut] = Field(description="the worst first")


class SeriesOut(Schema):
    step_ms: int = Field(description="time between points; 0 with a single point")
    window_count: int = Field(description="number of windows in all points together")
    points: list[list[int | float | None]] = Field(description="time, then the figures in the requested order")


class HeatCellOut(Schema):
    at: Milliseconds = Field(description="start of its column")
    band: int = Field(description="between bounds_ms[band] and bounds_ms[band + 1]")
    count: int = Field(description="number of messages, at least 1")


class HeatOut(Schema):
    step_ms: int = Field(description="length of a column; 0 with a single one")
    bounds_ms: list[float] = Field(description="bounds of the bands of latency, ascending; one more than bands")
    times: list[int] = Field(description="starts of all columns, also of those without messages")
    cells: list[HeatCellOut] = Field(description="oldest first; a band without messages has none")


ObjectiveName = Literal["latency", "backlog", "success"]


class CalendarDay(Schema):
    at: Milliseconds
    held: int
    total: int


class CalendarOut(Schema):
    days: list[CalendarDay]


_RUN = (
    *("id", "job", "title", "worst", "parameters", "state", "progress", "stage", "stages", "left_s"),
    *("requested_by", "attempt", "time_limit_s", "keep_days", "rows", "error", "log_tail"),
)
_RUN_TIMES = ("not_before", "result_kept_until", "result_dropped_at", "created_at", "started_at", "finished_at")
_SCHEDULE = (
    *("id", "name", "job", "parameters", "cron", "every_seconds", "time_zone", "enabled", "overlap", "retries"),
    *("retry_after_s", "time_limit_s", "keep_days", "notify_on", "notify_webhook", "notify_email", "created_by"),
    *("skipped_count", "last_skip_reason"),
)
_SCHEDULE_TIMES = ("last_run_at", "last_skipped_at")


def run_detail(run: ReportRun) -> RunOut:
    """A run, as in the API and the websocket's messages."""
    times = {name: unix_ms(getattr(run, name)) for name in _RUN_TIMES}
    values = {name: getattr(run, name) for name in _RUN} | times | {"schedule_id": run.report_id}
    return RunOut.model_validate(values)


def schedule_detail(report: Report, *, secrets: bool) -> ScheduleOut:
    """A schedule, as in the API. A webhook's URL often contains a key: without ``secrets``, only its host is shown."""
    detail = {name: getattr(report, name) for name in _SCHEDULE}
    if report.notify_webhook and not secrets:
        detail["notify_webhook"] = f"{urlsplit(report.notify_webhook).hostname}/…"
    due = next_runs(report, count=1)[0] if report.enabled else None
    times = {name: unix_ms(getattr(report, name)) for name in _SCHEDULE_TIMES}
    return ScheduleOut.model_validate(detail | times | {"next_run_at": unix_ms(due)})


class ArchiveScheduleOut(Schema):
    id: int
    name: str


class ArchiveDayOut(Schema):
    at: int = Field(description="start of the UTC day, Unix milliseconds")
    bytes: int


class ArchiveDatasetOut(Schema):
    """A part of the archive; times in Unix milliseconds. Parts that do not grow, and empty ones, have only the first
    seven."""

    name: str
    title: str
    grows: bool = Field(description="it grows by the day, and retention keeps it short")
    files: int
    bytes: int
    oldest: int | None = None
    newest: int | None = None
    kept_days: float | None = Field(default=None, description="null: nothing is removed")
    growth_bytes_per_day: int | None = Field(default=None, description="mean of growth_days days; null: not known yet")
    growth_days: int = 0
    growth_known_at: int | None = Field(default=None, description="when the growth will be known, if it is not")
    bytes_in_30_days: int | None = None
    bytes_in_90_days: int | None = None
    bytes_at_retention: int | None = None
    retention_reached_at: int | None = Field(default=None, description="when the oldest hour expires or has expired")


class IcebergTableOut(Schema):
    name: str
    files: int
    rows: int
    changed_at: int | None


class IcebergOut(Schema):
    """The last registration of files in an Iceberg catalog."""

    catalog: str
    tried_at: int
    error: str
    tables: list[IcebergTableOut]


class ArchiveOut(Schema):
    """The archive's size as a task has listed it. Sums are null if a part of them is not known."""

    place: str
    listed_at: int | None = Field(default=None, description="null: not listed yet, or not to be listed")
    error: str = Field(default="", description="why the archive cannot be listed")
    schedule: ArchiveScheduleOut | None = Field(default=None, description="that removes old data; null: nothing does")
    datasets: list[ArchiveDatasetOut]
    bytes: int
    growth_bytes_per_day: int | None = None
    bytes_in_30_days: int | None = None
    bytes_in_90_days: int | None = None
    bytes_at_retention: int | None = None
    retention_reached_at: int | None = None
    days: list[ArchiveDayOut] = Field(description="bytes of the last days' hours, oldest first")
    free_bytes: int | None = Field(default=None, description="of the archive's disk; null for an object store")
    disk_bytes: int | None = None
    full_at: int | None = Field(default=None, description="when the disk is full if nothing else is written to it")
    iceberg: IcebergOut | None = Field(default=None, description="null: never registered")
