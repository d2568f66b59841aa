"""The parameters of each job, declared once for the command line, the API and the form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from nsqanalytics.hours_of_week import common_hours
from nsqanalytics.parameters import BadParameter, Parameter, refuse_future, written
from nsqanalytics.span import DAY, HOUR, WEEK, Span

WINDOWS = {"5m": timedelta(minutes=5), "1h": HOUR, "1d": DAY}
LARGEST = 1e12
"""Bound of targets and sizes: more than any message takes or any disk holds, and few enough digits to be read."""
PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")

_NODE = re.compile(r"[^\s,]+:[0-9]+")

Period = Annotated[
    timedelta,
    Parameter(
        kind="duration", title="Period", default="24h", description="How far back to report, for example 6h or 7d."
    ),
]
Until = Annotated[
    datetime | None,
    Parameter(kind="time", title="Until", description="End of the period; now if empty."),
]
Topic = Annotated[
    str,
    Parameter(
        kind="text",
        title="Topic",
        description="Only these topics, for example orders or orders.*, invoices; all if empty.",
    ),
]
Channel = Annotated[str, Parameter(kind="text", title="Channel", description="Only this channel; all if empty.")]
Node = Annotated[
    str,
    Parameter(kind="text", title="Node", description="Only this node's part, as host:port; all together if empty."),
]
Window = Annotated[
    str,
    Parameter(
        kind="choice",
        title="Window",
        default="1h",
        choices=tuple(WINDOWS),
        description="Length of a window, aligned to UTC hours and days.",
    ),
]
ComparedWith = Annotated[
    str,
    Parameter(
        kind="choice",
        title="Compared with",
        default="none",
        suggested="period",
        choices=("none", "period", "week"),
        description="What each row is compared with: the period before, the same time of an earlier week, or nothing.",
    ),
]
MinimumCount = Annotated[
    int,
    Parameter(
        kind="integer",
        title="Minimum for p99.9",
        default=1000,
        minimum=1,
        description="A window with fewer messages has no p99.9.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class JobParameters:
    """The parameters of a job."""

    def check(self, now: datetime) -> None:
        """Raise BadParameter if they contain a time after ``now``, or do not fit it otherwise."""
        refuse_future(self, now)


@dataclass(frozen=True, kw_only=True)
class Scope(JobParameters):
    """The part of the archive that a report is about."""

    period: Period
    until: Until
    topic: Topic
    channel: Channel
    node: Node

    def check(self, now: datetime) -> None:
        """Raise BadParameter if a time is in the future, or the node is not a host and a port."""
        super().check(now)
        if self.node and not _NODE.fullmatch(self.node):
            raise BadParameter(f"{self.node!r} is not a node, such as 10.0.0.1:4151", "node")

    def span(self, now: datetime) -> Span:
        """Return the exact period, which need not begin or end at a window's boundary."""
        until = self.until or now
        return Span(until - self.period, until)

    @property
    def step(self) -> timedelta:
        """The length of the windows that are read; longer ones are made of them."""
        return HOUR

    def read(self, now: datetime) -> list[Span]:
        """Return the spans that are read: the period, and those that it is compared with."""
        return [self.span(now)]


@dataclass(frozen=True, kw_only=True)
class WindowedScope(Scope):
    """The part of the archive that a report is about, in windows."""

    window: Window

    @property
    def step(self) -> timedelta:
        """The length of the report's windows."""
        return WINDOWS[self.window]


@dataclass(frozen=True, kw_only=True)
class ComparedScope(Scope):
    """The part of the archive that a report is about, and the earlier period that its rows are compared with."""

    compared_with: ComparedWith

    def shift(self, window: timedelta) -> timedelta | None:
        """Return how much earlier the other period is, None for no comparison.

        It is the period's length, or a week for a shorter period, rounded up to whole windows or weeks: windows of both
        periods then begin at the same places, and the periods do not overlap.
        """
        if self.compared_with == "none":
            return None
        step = WEEK if self.compared_with == "week" else window
        return -(-self.period // step) * step

    def read(self, now: datetime) -> list[Span]:
        """Return the period, and the earlier one if there is one."""
        span, shift = self.span(now), self.shift(self.step)
        return [span] if shift is None else [span, span.earlier(shift)]


@dataclass(frozen=True, kw_only=True)
class LatencyParameters(WindowedScope, ComparedScope):
    """Parameters of the latency report."""

    minimum_count: MinimumCount


@dataclass(frozen=True, kw_only=True)
class ThroughputParameters(WindowedScope, ComparedScope):
    """Parameters of the throughput report."""


@dataclass(frozen=True, kw_only=True)
class ObjectivesParameters(WindowedScope):
    """Parameters of the objectives report."""

    counting: Annotated[
        str,
        Parameter(
            kind="choice",
            title="Counting",
            default="windows",
            choices=("windows", "messages"),
            description="By windows, all messages of a window meet or miss the latency and the backlog target. By "
            "messages, each meets or misses the latency target, and each delivery succeeds or fails, as for the "
            "objectives of the Objectives page.",
        ),
    ]
    percentile: Annotated[
        str,
        Parameter(
            kind="choice",
            title="Percentile",
            default="p99",
            choices=PERCENTILES,
            description="The latency percentile that the target applies to, by windows.",
        ),
    ]
    latency_ms: Annotated[
        float,
        Parameter(
            kind="number",
            title="Latency target, ms",
            default=1000,
            minimum=0,
            maximum=LARGEST,
            description="Met up to this latency.",
        ),
    ]
    backlog: Annotated[
        float,
        Parameter(
            kind="number",
            title="Backlog target, messages",
            default=10_000,
            minimum=0,
            maximum=LARGEST,
            description="Met if the depth is never above this, by windows.",
        ),
    ]
    objective_percent: Annotated[
        float,
        Parameter(
            kind="number",
            title="Objective, %",
            default=99.0,
            minimum=0,
            maximum=100,
            description="Share of messages that should meet the target; the rest is the error budget.",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class CapacityParameters(Scope):
    """Parameters of the capacity report."""

    period: Annotated[
        timedelta,
        Parameter(kind="duration", title="Period", default="7d", description="How far back to look, for example 28d."),
    ]
    horizon: Annotated[
        timedelta,
        Parameter(
            kind="duration",
            title="Horizon",
            default="7d",
            description="How far ahead to look: up to 7d by a forecast, further by a straight line.",
        ),
    ]
    utilisation_percent: Annotated[
        float,
        Parameter(
            kind="number",
            title="Utilisation, %",
            default=70.0,
            minimum=1,
            maximum=100,
            description="How busy consumers may be in the busiest hour.",
        ),
    ]
    free_gb: Annotated[
        float | None,
        Parameter(
            kind="number",
            title="Free disk space, GB",
            minimum=0,
            maximum=LARGEST,
            description="What a channel's backlog may still grow by; without it, no disk is reported as full.",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class ForecastParameters(Scope):
    """Parameters of the forecast."""

    period: Annotated[
        timedelta,
        Parameter(
            kind="duration",
            title="History",
            default="28d",
            description="How much history the forecast is made from: at least 5d; from 3 weeks on, it knows weekdays.",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class AnomaliesParameters(Scope):
    """Parameters of the report on anomalies."""

    period: Annotated[
        timedelta,
        Parameter(kind="duration", title="Period", default="7d", description="The hours that are judged."),
    ]
    weeks: Annotated[
        int,
        Parameter(
            kind="integer",
            title="Past weeks",
            default=4,
            minimum=3,
            maximum=26,
            description="How many weeks before each hour it is compared with, as far as the archive has them.",
        ),
    ]
    threshold: Annotated[
        float,
        Parameter(
            kind="number",
            title="Score",
            default=4.0,
            minimum=2,
            maximum=100,
            description="Deviations from the expected value, in units of their usual size, that are unusual.",
        ),
    ]

    def history(self, now: datetime) -> Span:
        """Return the span of the hours that are needed: the period, the past weeks, and a week for their levels."""
        span = self.span(now)
        return Span(span.since - (self.weeks + 1) * WEEK, span.until)

    def read(self, now: datetime) -> list[Span]:
        """Return the span of the hours that are needed."""
        return [self.history(now)]


@dataclass(frozen=True, kw_only=True)
class DeadParameters(ComparedScope):
    """Parameters of the report on dead messages."""


@dataclass(frozen=True, kw_only=True)
class CompareParameters(Scope):
    """Parameters of the comparison of two periods."""

    before: Annotated[
        timedelta,
        Parameter(
            kind="duration",
            title="Compared with",
            default="7d",
            description="How much earlier the other period is: 24h, for example, or 7d; at least the period's length.",
        ),
    ]
    before_until: Annotated[
        datetime | None,
        Parameter(
            kind="time",
            title="End of the other period",
            description="In place of how much earlier it is: any past time; the other period is as long.",
        ),
    ]
    hours: Annotated[
        str,
        Parameter(
            kind="choice",
            title="Hours",
            default="all",
            choices=("all", "week"),
            description="All, or only the hours of the week (UTC) that both periods have, each equally often.",
        ),
    ]
    minimum_count: MinimumCount

    def other(self, now: datetime) -> Span:
        """Return the period that the report's is compared with. Raises BadParameter if the two overlap."""
        span = self.span(now)
        if self.before_until is None:
            return span.earlier(self.before)
        other = Span(self.before_until - self.period, self.before_until)
        if other.until > span.since and other.since < span.until:
            raise BadParameter(
                f"the period that ends at {other.until.isoformat()} overlaps the one that ends at "
                f"{span.until.isoformat()}; both are {written(self.period)} long",
                "before_until",
            )
        return other

    def read(self, now: datetime) -> list[Span]:
        """Return both periods."""
        return [self.span(now), self.other(now)]

    def check(self, now: datetime) -> None:
        """Raise BadParameter as other reports do, if the two periods overlap, and if they have no hour to compare."""
        super().check(now)
        other = self.other(now)
        # Eight days have every hour of the week.
        if self.hours == "week" and self.period < 8 * DAY and not common_hours(self.span(now), other)[0]:
            raise BadParameter("the two periods have no whole hour of the week in common", "hours")

    def __post_init__(self) -> None:
        """Raises BadParameter if the two periods would overlap whatever the time is."""
        if self.before_until is None and self.before < self.period:
            raise BadParameter(
                f"{written(self.before)} is less than the period of {written(self.period)}, so that the two "
                f"periods would overlap; at least {written(self.period)} fits",
                "before",
            )


@dataclass(frozen=True, kw_only=True)
class LivesParameters(Scope):
    """Parameters of the report on sampled messages."""


@dataclass(frozen=True, kw_only=True)
class RollupParameters(JobParameters):
    """Parameters of rolling up."""

    period: Annotated[
        timedelta,
        Parameter(kind="duration", title="Period", default="90d", description="How far back hours are rolled up."),
    ]
    until: Until


@dataclass(frozen=True, kw_only=True)
class CompactParameters(JobParameters):
    """Parameters of compaction."""

    older_than: Annotated[
        timedelta,
        Parameter(
            kind="duration",
            title="Older than",
            default="1m",
            description="Compacts hours that ended at least this long ago.",
        ),
    ]
    until: Until


@dataclass(frozen=True, kw_only=True)
class RetainParameters(JobParameters):
    """Parameters of retention."""

    samples: Annotated[
        timedelta,
        Parameter(
            kind="duration",
            title="Samples",
            default="30d",
            description="How long samples and events of sampled messages are kept.",
        ),
    ]
    rollups: Annotated[
        timedelta,
        Parameter(kind="duration", title="Rollups", default="400d", description="How long rollups are kept."),
    ]
    until: Until
