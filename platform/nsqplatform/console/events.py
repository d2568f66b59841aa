"""Events of the cluster, or of a part of it, within a window: the markers of charts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Literal, NamedTuple

from django.db.models import Q

from nsqplatform.accounts.models import AuditEntry
from nsqplatform.alerts.models import Alert
from nsqplatform.cluster import selectors
from nsqplatform.cluster.models import NodeEvent
from nsqplatform.marks.models import EVERYTHING
from nsqplatform.marks.services import marks
from nsqplatform.reports.models import ReportRun
from nsqplatform.unix_time import unix_ms
from nsqwire.units import Milliseconds

Kind = Literal[
    "paused",
    "unpaused",
    "emptied",
    "rewound",
    "deleted",
    "tombstoned",
    "drain_begun",
    "drain_cancelled",
    "handed_over",
    "node_down",
    "node_up",
    "node_restarted",
    "alert_fired",
    "report_run",
    "marked",
]
ACTIONS: dict[str, Kind] = {
    "pause": "paused",
    "unpause": "unpaused",
    "empty": "emptied",
    "rewind": "rewound",
    "delete": "deleted",
    "tombstone": "tombstoned",
    "drain": "drain_begun",
    "cancel drain": "drain_cancelled",
    "hand over": "handed_over",
}
NODE_KINDS: dict[str, Kind] = {"down": "node_down", "up": "node_up", "restarted": "node_restarted"}
MAX_EVENTS = 500
"""Maximum number of events in a response, the newest ones."""
MAX_MARKS = 100
"""Maximum number of marks among them: a script can post thousands, and alerts must not disappear behind these."""
_RUN_STATES: dict[str, str] = {
    ReportRun.State.QUEUED: "is queued",
    ReportRun.State.RUNNING: "is running",
    ReportRun.State.SUCCEEDED: "succeeded",
    ReportRun.State.FAILED: "failed",
    ReportRun.State.CANCELLED: "was cancelled",
}
"""The predicate of a report's event, by the state of its run."""


class Subject(NamedTuple):
    """The cluster; or a topic, with its channels; or a channel; or a node. Empty names do not apply."""

    topic: str = ""
    channel: str = ""
    node: str = ""


class Event(NamedTuple):
    """``at`` is in Unix milliseconds; ``by`` is empty for events without a user; names that do not apply are empty."""

    at: Milliseconds
    kind: Kind
    detail: str
    by: str = ""
    topic: str = ""
    channel: str = ""
    node: str = ""
    id: int | None = None
    """Of the alert, the run or the mark."""


def events(subject: Subject, since: datetime, until: datetime) -> list[Event]:
    """The newest MAX_EVENTS events of the subject from ``since`` on and before ``until``; oldest first."""
    found = [
        *islice(_actions(subject, since, until), MAX_EVENTS),
        *islice(_alerts(subject, since, until), MAX_EVENTS),
        *islice(_runs(subject, since, until), MAX_EVENTS),
        *islice(_nodes(subject, since, until), MAX_EVENTS),
        *islice(_marks(subject, since, until), MAX_MARKS),
    ]
    # Each source gives its newest first; times are rounded, so those of one millisecond must not stay in that order.
    found.reverse()
    found.sort(key=lambda event: event.at)
    return found[-MAX_EVENTS:]


def _actions(subject: Subject, since: datetime, until: datetime) -> Iterator[Event]:
    entries = AuditEntry.objects.filter(
        at__gte=since, at__lt=until, action__in=ACTIONS, outcome__in=("done", "partial")
    ).order_by("-at")
    # Of a job, the entries of its subjects, or for the whole cluster the job's own.
    if subject.topic or subject.node:
        entries = entries.filter(subject_count=None)
    else:
        entries = entries.filter(Q(job=None) | Q(subject_count__isnull=False))
    if subject.topic:
        entries = entries.filter(topic=subject.topic)
    if subject.channel:  # an action on a topic also affects its channels
        entries = entries.filter(Q(channel=subject.channel) | Q(channel__isnull=True) | Q(channel=""))
    if subject.node:
        entries = entries.filter(
            changed_nodes__node=subject.node, changed_nodes__at__gte=since, changed_nodes__at__lt=until
        ).order_by("-changed_nodes__at")
    for entry in entries.defer("results")[:MAX_EVENTS]:
        name = entry.topic + (f" / {entry.channel}" if entry.channel else "") or entry.subject
        partly = " on some nodes" if entry.outcome == "partial" else ""
        yield Event(
            at=unix_ms(entry.at),
            kind=ACTIONS[entry.action],
            detail=f"{name}{partly}",
            by=entry.user,
            topic=entry.topic,
            channel=entry.channel or "",
        )


def _alerts(subject: Subject, since: datetime, until: datetime) -> Iterator[Event]:
    alerts = Alert.objects.filter(fired_at__gte=since, fired_at__lt=until).order_by("-fired_at")
    if subject.topic:
        alerts = alerts.filter(topic=subject.topic)
    if subject.channel:
        alerts = alerts.filter(channel__in=(subject.channel, ""))
    if subject.node:
        alerts = alerts.filter(node=subject.node)
    for alert in alerts[:MAX_EVENTS]:
        yield Event(
            at=unix_ms(alert.fired_at),
            kind="alert_fired",
            detail=f"{alert.rule_name}: {alert.subject}",
            topic=alert.topic,
            channel=alert.channel,
            node=alert.node,
            id=alert.pk,
        )


def _runs(subject: Subject, since: datetime, until: datetime) -> Iterator[Event]:
    """Runs for the whole cluster, or for the subject's topic or channel."""
    if subject.node:
        return
    runs = ReportRun.objects.filter(started_at__gte=since, started_at__lt=until).order_by("-started_at")
    if subject.topic:
        runs = runs.filter(parameters__topic=subject.topic)
    if subject.channel:
        of_channel = Q(parameters__channel__in=(subject.channel, ""))
        of_topic = Q(parameters__channel__isnull=True) | Q(parameters__channel=None)  # no key; null
        runs = runs.filter(of_channel | of_topic)
    for run in runs[:MAX_EVENTS]:
        assert run.started_at is not None
        topic, channel = (run.parameters.get(name) or "" for name in ("topic", "channel"))
        yield Event(
            at=unix_ms(run.started_at),
            kind="report_run",
            detail=f"{run.title} {_RUN_STATES.get(run.state, run.state)}",
            by=run.requested_by,
            topic=topic,
            channel=channel,
            id=run.pk,
        )


def _marks(subject: Subject, since: datetime, until: datetime) -> Iterator[Event]:
    for mark in marks(since, until, topic=subject.topic, everything=bool(subject.node)):
        of = "" if mark.topic_pattern == EVERYTHING else f" ({mark.topic_pattern})"
        yield Event(at=unix_ms(mark.at), kind="marked", detail=f"{mark.text}{of}", by=mark.created_by, id=mark.pk)


def _nodes(subject: Subject, since: datetime, until: datetime) -> Iterator[Event]:
    """For a topic or channel: the events of its current nodes."""
    found = NodeEvent.objects.filter(at__gte=since, at__lt=until).order_by("-at")
    if subject.node:
        found = found.filter(node=subject.node)
    elif subject.topic:
        found = found.filter(node__in=selectors.cluster().seen.get(subject.topic, ()))
    for event in found[:MAX_EVENTS]:
        yield Event(at=unix_ms(event.at), kind=NODE_KINDS[event.kind], detail=event.detail, node=event.node)
