"""Notification messages of alerts: text for people, fields for programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from ninja import Schema

from nsqplatform.alerts.models import Alert
from nsqplatform.alerts.schemas import AlertOut, alert_detail
from nsqplatform.clusters import current
from nsqplatform.number_format import number
from nsqplatform.outbound import address_of

Event = Literal["firing", "still firing", "resolved", "test"]
MAX_NAMED = 20
"""Maximum number of alerts listed in one message; the others are counted."""
RESOLUTIONS: dict[str, str] = {
    Alert.Resolution.CLEARED: "",
    Alert.Resolution.GONE: " It no longer exists.",
    Alert.Resolution.RULE: " The rule was changed or deleted.",
}


class Fields(Schema):
    """The fields of a notification for programs. ``alerts`` has at most MAX_NAMED of the ``total`` alerts."""

    event: Event
    cluster: str
    total: int
    alerts: list[AlertOut]


@dataclass(frozen=True)
class Message:
    """A notification. ``title`` is one line; ``text`` is for people; ``fields`` are JSON for programs."""

    title: str
    text: str
    fields: Fields


def message_of(event: Event, alerts: Sequence[Alert]) -> Message:
    """One message for all alerts, critical ones first."""
    ordered = sorted(alerts, key=lambda alert: (alert.severity != "critical", alert.rule_name, alert.subject))
    first, more = ordered[0], len(ordered) - 1
    title = current.with_title(
        f"[{first.severity}] {event}: {first.rule_name}: {first.subject}{f' and {more} more' if more else ''}"
    )
    named = ordered[:MAX_NAMED]
    lines = [line_of(alert) for alert in named]
    if len(ordered) > len(named):
        lines.append(f"… and {len(ordered) - len(named)} more")
    advice = dict.fromkeys(alert.description for alert in named if alert.description)
    if event != "resolved":
        lines += advice
    return Message(
        title=title,
        text="\n".join([title, *lines, address_of("/alerts")]),
        fields=Fields(
            event=event,
            cluster=current.name(),
            total=len(ordered),
            alerts=[alert_detail(alert, None) for alert in named],
        ),
    )


def test_message(by: str) -> Message:
    title = current.with_title("[test] NSQ alerts are delivered here")
    return Message(
        title=title,
        text="\n".join([title, f"Sent by {by} to test this notifier.", address_of("/alerts")]),
        fields=Fields(event="test", cluster=current.name(), total=0, alerts=[]),
    )


def line_of(alert: Alert) -> str:
    """One alert in one line, such as ``orders/billing: depth 1,234 messages, above 1,000 for 60 s``. The alert's detail
    is in parentheses."""
    metric = alert.watched
    detail = f" ({alert.detail})" if alert.detail else ""
    if metric.is_flag:
        condition = f"node is {metric.title.lower()}{detail}"
    else:
        title, value = metric.title.lower(), "unknown" if alert.value is None else number(alert.value)
        unit = "" if metric.unit == title else f" {unit_of(alert.value, metric.unit)}"
        condition = f"{title} {value}{unit}"
        condition += detail if metric.is_anomaly else f", {alert.comparison} {number(alert.threshold)}{detail}"
    if alert.state == Alert.State.FIRING:
        return f"{alert.subject}: {condition}{f' for {lasting(alert.hold_s)}' if alert.hold_s else ''}"
    took = lasting(((alert.resolved_at or alert.fired_at) - alert.fired_at) // timedelta(seconds=1))
    by = f" Closed by {alert.resolved_by}." if alert.resolution == Alert.Resolution.CLOSED else ""
    return f"{alert.subject}: resolved after {took}; condition: {condition}.{by}{RESOLUTIONS.get(alert.resolution, '')}"


def unit_of(value: float | None, unit: str) -> str:
    """The unit beside a value: ``messages``, but ``message`` beside 1."""
    return re.sub(r"(?<=\w)s(?=/s$|$)", "", unit) if value == 1 else unit


def lasting(seconds: int) -> str:
    """A duration for people: ``45 s``, ``3 min``, ``2 h 5 min``, ``3 days``."""
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    if seconds < 172_800:
        hours, minutes = divmod(seconds // 60, 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{seconds // 86_400} days"
