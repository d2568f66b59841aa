"""Bodies of the alerts' API, from which the web app's types are generated. Times are Unix milliseconds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal
from urllib.parse import urlsplit

from ninja import Schema
from pydantic import ConfigDict, Field

from nsqplatform.accounts.schemas import Body, Line
from nsqplatform.alerts.models import Alert, Notifier, Rule, Silence
from nsqplatform.unix_time import LATEST_MS, unix_ms
from nsqwire.units import Milliseconds

ScopeName = Literal["channel", "topic", "node", "archive", "objective"]
SeverityName = Literal["warning", "critical"]
Comparison = Literal["above", "below", "outside"]
AlertState = Literal["firing", "resolved"]
MAX_DURATION_S = 7 * 86_400


class MetricOut(Schema):
    scope: ScopeName
    name: str
    title: str
    unit: str = Field(description="of values, and of thresholds unless is_anomaly; empty for a flag")
    is_flag: bool = Field(description="true or false: the rule's comparison is above, its threshold 0")
    is_anomaly: bool = Field(
        description="compared with past weeks: the threshold is a score, and the comparison may be outside"
    )
    description: str


class MetricsOut(Schema):
    metrics: list[MetricOut]


class _Closed(Body):
    model_config = ConfigDict(extra="forbid")


# ---- rules


Names = Annotated[list[Annotated[Line, Field(min_length=1, max_length=100)]], Field(max_length=20)]


class RuleIn(_Closed):
    name: Line = Field(min_length=1, max_length=100)
    description: Line = Field("", max_length=500, description="what to do about the alert; part of each notification")
    enabled: bool = True
    severity: SeverityName = "warning"
    scope: ScopeName
    metric: Line = Field(max_length=32, description="a metric of the scope, from GET alerts/metrics")
    comparison: Comparison = "above"
    threshold: float = Field(
        0.0,
        ge=-1e15,
        le=1e15,
        allow_inf_nan=False,
        description="in the metric's unit; of an anomaly a score, half the width of the band in usual deviations: "
        "1.28 is a band with about 80 % of usual hours, 1.96 one with 95 %, and 4 that of the report",
    )
    topic_pattern: Line = Field("*", min_length=1, max_length=64, description="a glob, as in operators' topic patterns")
    channel_pattern: Line = Field("*", min_length=1, max_length=64)
    node_pattern: Line = Field(
        "*", min_length=1, max_length=300, description="a glob, matched with a node's id and hostname"
    )
    objective_pattern: Line = Field("*", min_length=1, max_length=100, description="a glob of objectives' names")
    hold_s: int = Field(
        60, ge=0, le=MAX_DURATION_S, description="time beyond the threshold after which the alert fires"
    )
    resolve_after_s: int = Field(
        30, ge=0, le=MAX_DURATION_S, description="time within the threshold after which it is resolved"
    )
    repeat_s: int | None = Field(
        None,
        ge=60,
        le=MAX_DURATION_S,
        description="interval of repeated notifications until it is acknowledged; null: none",
    )
    notifiers: Names = Field([], description="names of notifiers; empty: shown on the page only")


class RuleChange(RuleIn):
    """Only the given values are changed."""

    name: Line = Field("", min_length=1, max_length=100)
    scope: ScopeName = "channel"
    metric: Line = Field("", max_length=32)


class RuleValues(Schema):
    """A whole rule, as it can be posted."""

    name: str
    description: str
    enabled: bool
    severity: SeverityName
    scope: ScopeName
    metric: str
    comparison: Comparison
    threshold: float
    topic_pattern: str
    channel_pattern: str
    node_pattern: str
    objective_pattern: str
    hold_s: int
    resolve_after_s: int
    repeat_s: int | None
    notifiers: list[str]


class PastWeeksOut(Schema):
    """What past weeks give for a rule that compares a figure with them, in the present hour."""

    matched: int = Field(description="number of subjects that match the patterns")
    short: int = Field(description="number of these without a band: fewer past weeks than least_weeks have this hour")
    least_weeks: int
    found_at: Milliseconds | None = Field(description="when the bands were found; null: none are found for it yet")
    error: str = Field(description="why the archive's rollups cannot be read; empty if they can")


class RuleOut(RuleValues):
    id: int
    past_weeks: PastWeeksOut | None = Field(description="null unless the metric is an anomaly, or without a snapshot")
    firing: int = Field(description="number of its firing alerts")
    created_by: str
    created_at: Milliseconds


class RulesOut(Schema):
    rules: list[RuleOut] = Field(description="by name")


class SuggestedOut(Schema):
    rules: list[RuleValues] = Field(description="suggestions, which do not exist until they are created")


class PreviewRow(Schema):
    topic: str
    channel: str
    node: str
    objective: str
    value: float | None
    beyond: bool | None = Field(description="null: unknown, because a node does not answer or there is no value yet")
    detail: str = Field(description="of an anomaly: what is usual; empty for other metrics")


class PreviewOut(Schema):
    """The result of evaluating a rule against the newest snapshot, regardless of the hold time."""

    taken_at: Milliseconds
    matched: int = Field(description="number of subjects that match the patterns")
    beyond: int = Field(description="number of these that are beyond the threshold now")
    unknown: int = Field(description="number of these whose value is unknown")
    rows: list[PreviewRow] = Field(description="subjects beyond the threshold first, at most 100")


# ---- notifiers


Recipient = Annotated[Line, Field(min_length=3, max_length=254)]


class NotifierIn(_Closed):
    name: Line = Field(min_length=1, max_length=100)
    kind: Literal["webhook", "email"]
    url: Line = Field(
        "", max_length=500, description="a webhook's http or https URL; only administrators can read it in full"
    )
    recipients: list[Recipient] = Field([], max_length=20, description="of e-mail")
    enabled: bool = True


class NotifierChange(NotifierIn):
    """Only the given values are changed."""

    name: Line = Field("", min_length=1, max_length=100)
    kind: Literal["webhook", "email"] = "webhook"


class NotifierOut(Schema):
    id: int
    name: str
    kind: Literal["webhook", "email"]
    url: str = Field(description="the host only, except for administrators")
    recipients: list[str]
    enabled: bool
    rules: int = Field(description="number of rules that use it")
    last_sent_at: Milliseconds | None
    last_error: str = Field(description="empty if the last delivery succeeded")
    last_error_at: Milliseconds | None
    created_by: str
    created_at: Milliseconds


class NotifiersOut(Schema):
    notifiers: list[NotifierOut] = Field(description="by name")


class TestOut(Schema):
    delivered: bool
    error: str = Field(description="empty if it was delivered")


# ---- alerts


class NoticeOut(Schema):
    notifier: str
    state: AlertState = Field(description="state in the last notification")
    sent_at: Milliseconds


class AlertOut(Schema):
    id: int
    rule_id: int | None = Field(description="null if the rule was deleted")
    rule: str
    description: str
    severity: SeverityName
    scope: ScopeName
    metric: str
    unit: str
    comparison: Comparison
    threshold: float
    hold_s: int
    topic: str = Field(description="empty if the scope is node, archive or objective")
    channel: str = Field(description="empty unless the scope is channel")
    node: str = Field(description="a node's id; empty unless the scope is node")
    objective: str = Field(description="an objective's name; empty unless the scope is objective")
    state: AlertState
    value: float | None = Field(description="when it fired")
    detail: str = Field(
        description="a node's error if it is down or unhealthy; the archive's damaged files; an objective's burn "
        "rates; what is usual if a figure is unusual"
    )
    began_at: Milliseconds = Field(description="when it went beyond the threshold")
    fired_at: Milliseconds
    resolved_at: Milliseconds | None
    resolution: Literal["", "cleared", "gone", "closed", "rule"] = Field(
        description="cleared: back within the threshold; gone: the subject no longer exists; closed: by a person; "
        "rule: the rule was changed, disabled or deleted"
    )
    resolved_by: str
    acknowledged_by: str
    acknowledged_at: Milliseconds | None
    note: str = Field(description="note of the person who acknowledged or closed it")
    silenced_until: Milliseconds | None = Field(description="null if no silence covers it")
    notices: list[NoticeOut]


class CountsOut(Schema):
    """Numbers of firing alerts. The first two count alerts that are neither acknowledged nor silenced."""

    critical: int
    warning: int
    acknowledged: int
    silenced: int


class AlertCountsOut(Schema):
    version: int = Field(description="as in the websocket's messages; a higher version is newer")
    counts: CountsOut


class AlertsOut(AlertCountsOut):
    alerts: list[AlertOut] = Field(description="newest first")


class AlertsMessage(AlertCountsOut):
    """A websocket message: changed alerts, in their current state.

    Versions increase by one; after a gap, all alerts must be requested.
    """

    type: Literal["alerts"]
    alerts: list[AlertOut]


class PendingOut(Schema):
    rule_id: int
    rule: str
    severity: SeverityName
    scope: ScopeName
    metric: str
    unit: str = Field(description="unit of the threshold; empty for a flag")
    comparison: Comparison
    threshold: float
    hold_s: int
    topic: str
    channel: str
    node: str
    objective: str
    began_at: Milliseconds = Field(description="when it went beyond the threshold")
    fires_at: Milliseconds = Field(
        description="when it fires if the condition persists; in the past if the rule has 1,000 firing alerts"
    )


class PendingsOut(Schema):
    total: int
    pending: list[PendingOut] = Field(description="in the order in which they will fire; up to two seconds old")


class NoteIn(_Closed):
    note: Line = Field("", max_length=500)


class ManyNoteIn(NoteIn):
    alerts: list[Annotated[int, Field(ge=1, lt=2**63)]] = Field(min_length=1, max_length=500, description="ids")


class ManyOut(Schema):
    """``alerts``: the changed alerts; ``refused``: reason by id, for the others."""

    alerts: list[AlertOut]
    refused: dict[int, str]


# ---- silences


class SilenceIn(_Closed):
    """An omitted field matches everything; at least one of the first five is required."""

    rule_id: int | None = Field(None, ge=1, lt=2**63)
    topic_pattern: Line = Field("", max_length=64)
    channel_pattern: Line = Field("", max_length=64)
    node_pattern: Line = Field("", max_length=300)
    objective_pattern: Line = Field("", max_length=100)
    reason: Line = Field(min_length=1, max_length=500)
    ends_at: Milliseconds = Field(ge=0, le=LATEST_MS)


class SilenceOut(Schema):
    id: int
    rule_id: int | None
    rule: str = Field(description="the rule's name; empty: any rule")
    topic_pattern: str
    channel_pattern: str
    node_pattern: str
    objective_pattern: str
    within: list[str] = Field(
        description="topic patterns of the operator who created it, which limit it; empty: no limit"
    )
    reason: str
    created_by: str
    created_at: Milliseconds
    ends_at: Milliseconds
    ended_by: str = Field(description="the user who ended it early; empty: not ended early")
    active: bool
    alerts: int = Field(description="firing alerts that it covers now")


class SilencesOut(Schema):
    silences: list[SilenceOut] = Field(description="newest first")


# ---- from the models


_RULE = (
    *("id", "name", "description", "enabled", "severity", "scope", "metric", "comparison", "threshold"),
    *("topic_pattern", "channel_pattern", "node_pattern", "objective_pattern"),
    *("hold_s", "resolve_after_s", "repeat_s", "created_by"),
)
_NOTIFIER = ("id", "name", "kind", "url", "recipients", "enabled", "last_error", "created_by")
_ALERT = (
    *("id", "rule_id", "description", "severity", "scope", "metric", "comparison", "threshold", "hold_s"),
    *("topic", "channel", "node", "objective", "state", "value", "detail"),
    *("resolution", "resolved_by", "acknowledged_by", "note"),
)
_ALERT_TIMES = ("began_at", "fired_at", "resolved_at", "acknowledged_at")
_SILENCE = (
    *("id", "rule_id", "topic_pattern", "channel_pattern", "node_pattern", "objective_pattern"),
    *("within", "reason", "created_by", "ended_by"),
)


def rule_detail(rule: Rule, *, firing: int, past_weeks: PastWeeksOut | None) -> RuleOut:
    values = {name: getattr(rule, name) for name in _RULE} | {
        "notifiers": [notifier.name for notifier in rule.notifiers.all()],
        "firing": firing,
        "past_weeks": past_weeks,
        "created_at": unix_ms(rule.created_at),
    }
    return RuleOut.model_validate(values)


def notifier_detail(notifier: Notifier, *, rules: int, secrets: bool) -> NotifierOut:
    """A webhook's URL often contains a key: without ``secrets``, only its host is shown."""
    values = {name: getattr(notifier, name) for name in _NOTIFIER}
    if notifier.url and not secrets:
        values["url"] = f"{urlsplit(notifier.url).hostname}/…"
    times = ("created_at", "last_sent_at", "last_error_at")
    return NotifierOut.model_validate(
        values | {"rules": rules} | {name: unix_ms(getattr(notifier, name)) for name in times}
    )


def alert_detail(alert: Alert, silenced_until: Milliseconds | None) -> AlertOut:
    """The alert as in the API, websocket messages and webhooks. ``silenced_until`` is in Unix milliseconds."""
    values = (
        {name: getattr(alert, name) for name in _ALERT}
        | {name: unix_ms(getattr(alert, name)) for name in _ALERT_TIMES}
        | {
            "rule": alert.rule_name,
            "unit": alert.watched.unit,
            "silenced_until": silenced_until,
            "notices": [
                {"notifier": notice.notifier.name, "state": notice.state, "sent_at": unix_ms(notice.sent_at)}
                for notice in alert.notices.all()
            ],
        }
    )
    return AlertOut.model_validate(values)


def silence_detail(silence: Silence, *, active: bool, covered: Collection[Alert]) -> SilenceOut:
    values = {name: getattr(silence, name) for name in _SILENCE} | {
        "rule": silence.rule.name if silence.rule else "",
        "created_at": unix_ms(silence.created_at),
        "ends_at": unix_ms(silence.ends_at),
        "active": active,
        "alerts": len(covered),
    }
    return SilenceOut.model_validate(values)
