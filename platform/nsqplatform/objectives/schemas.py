"""Bodies of the objectives' API, from which the web app's types are generated. Times are Unix milliseconds."""

from __future__ import annotations

from typing import Literal

from ninja import Schema
from pydantic import ConfigDict, Field

from nsqplatform.accounts.schemas import Body, Line
from nsqwire.units import Milliseconds

KindName = Literal["latency", "success"]
MAX_THRESHOLD_MS = 30 * 86_400_000
MAX_TARGET_PERCENT = 99.9999
"""One bad message in a million. With a higher target, rounding errors would be a part of the error budget."""


class ObjectiveIn(Body):
    model_config = ConfigDict(extra="forbid")

    name: Line = Field(min_length=1, max_length=100)
    kind: KindName = Field(
        description="latency: of finished messages, good are those finished within threshold_ms of being published; "
        "success: of deliveries, good are those finished, bad those requeued or timed out"
    )
    threshold_ms: float | None = Field(
        None, ge=0.001, le=MAX_THRESHOLD_MS, allow_inf_nan=False, description="of latency; null for success"
    )
    target_percent: float = Field(
        gt=0, le=MAX_TARGET_PERCENT, allow_inf_nan=False, description="the share of good messages, such as 99.9"
    )
    window_days: int = Field(30, ge=1, le=90)
    topic_pattern: Line = Field("*", min_length=1, max_length=64, description="a glob, as in alert rules")
    channel_pattern: Line = Field("*", min_length=1, max_length=64)


class ObjectiveChange(ObjectiveIn):
    """Only the given values are changed."""

    name: Line = Field("", min_length=1, max_length=100)
    kind: KindName = "latency"
    target_percent: float = Field(99.0, gt=0, le=MAX_TARGET_PERCENT, allow_inf_nan=False)


class BurnOut(Schema):
    """The pair of times of a burn-rate alert."""

    metric: str = Field(description="metric of the scope objective, which alert rules watch")
    long: str = Field(description="such as 1h")
    short: str = Field(description="such as 5m")
    limit: float = Field(description="usual threshold of a rule, as a multiple of the rate that uses up the budget")
    long_rate: float | None = Field(description="burn rate over the long time; null until messages are counted")
    short_rate: float | None


class ObjectiveOut(Schema):
    id: int
    name: str
    kind: KindName
    threshold_ms: float | None
    limit_ms: float | None = Field(
        description="the latency up to which messages are counted as good: the upper bound of the histogram's bucket "
        "that contains the threshold, at most 2.2 % above it; null for success"
    )
    target_percent: float
    window_days: int
    topic_pattern: str
    channel_pattern: str
    created_by: str
    created_at: Milliseconds
    counted_since: Milliseconds | None = Field(description="null until the collector has counted")
    counted_until: Milliseconds | None
    window_since: Milliseconds | None = Field(description="start of the window, a whole hour, which ends counted_until")
    good: int = Field(description="messages in the window")
    bad: int
    good_percent: float | None = Field(description="null if no message was counted")
    allowed: float = Field(description="bad messages that the target allows for as many messages")
    left: float = Field(description="allowed bad messages that are left; negative if the budget is overspent")
    left_percent: float | None = Field(description="left, as a share of allowed; null if no message was counted")
    burns: list[BurnOut] = Field(description="the fastest first")
    uncounted_nodes: list[str] = Field(
        description="nodes with matching channels without a latency histogram, such as Go's nsqd: not counted"
    )


class ObjectivesOut(Schema):
    objectives: list[ObjectiveOut] = Field(description="by name")


class BudgetHistoryOut(Schema):
    """The hours of the window that have messages, oldest first, as columns."""

    at: list[Milliseconds] = Field(description="start of each hour")
    good: list[int]
    bad: list[int]
    left_percent: list[float] = Field(
        description="what was left of the window's budget at the end of the hour, in percent"
    )


class ObjectiveDetailOut(ObjectiveOut):
    history: BudgetHistoryOut
