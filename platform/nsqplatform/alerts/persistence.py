"""The collector's reads and writes of alerts in the database. The functions block; the collector calls them in a
thread."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from nsqplatform.alerts.engine import Fired, Resolved
from nsqplatform.alerts.models import Alert, Rule, Silence

CLOSED_WITHIN = timedelta(minutes=10)
"""The collector reads alerts that people closed within this time."""


def rules() -> list[Rule]:
    return list(Rule.objects.all())


def recently_closed() -> list[tuple[int, str, float]]:
    """The alerts that people closed within CLOSED_WITHIN: rule, key, and time in Unix seconds."""
    closed = Alert.objects.filter(
        state=Alert.State.RESOLVED,
        resolved_at__gt=timezone.now() - CLOSED_WITHIN,
        resolution=Alert.Resolution.CLOSED,
        rule__isnull=False,
    )
    return [
        (alert.rule_id, alert.subject, alert.resolved_at.timestamp())
        for alert in closed
        if alert.rule_id is not None and alert.resolved_at is not None
    ]


def firing() -> list[Alert]:
    return list(Alert.objects.filter(state=Alert.State.FIRING))


def sweep() -> None:
    """Delete alerts and silences that ended longer ago than ``--audit-retention``."""
    keep: timedelta = settings.NSQADMIN.audit_retention
    if keep:
        Alert.objects.filter(state=Alert.State.RESOLVED, resolved_at__lt=timezone.now() - keep).delete()
        Silence.objects.filter(ends_at__lt=timezone.now() - keep).delete()


def save(events: Iterable[Fired | Resolved]) -> list[int]:
    """Save fired and resolved alerts, in order and in one transaction; return their ids."""
    changed: list[int] = []
    with transaction.atomic():
        rule_ids = set(Rule.objects.values_list("pk", flat=True))
        fires = {
            (alert.rule_id, alert.topic, alert.channel, alert.node, alert.objective): alert.pk
            for alert in Alert.objects.filter(state=Alert.State.FIRING).only(
                "rule_id", "topic", "channel", "node", "objective"
            )
        }
        for event in events:
            if isinstance(event, Resolved):
                pk = fires.pop((event.rule_id or None, *event.subject), None)
                if pk is not None and _resolve(pk, event):
                    changed.append(pk)
            elif event.rule.pk in rule_ids and (event.rule.pk, *event.subject) not in fires:
                alert = alert_of(event)
                alert.save(force_insert=True)
                fires[event.rule.pk, *event.subject] = alert.pk
                changed.append(alert.pk)
    return changed


def _resolve(pk: int, event: Resolved) -> bool:
    """Resolve the alert; return False if a person has closed it already."""
    over = {
        "state": Alert.State.RESOLVED,
        "resolved_at": at(event.at),
        "resolution": event.resolution,
    }
    return bool(Alert.objects.filter(pk=pk, state=Alert.State.FIRING).update(**over))


def alert_of(event: Fired) -> Alert:
    """The alert of an event, not saved, with a copy of the rule's values."""
    rule, subject = event.rule, event.subject
    return Alert(
        rule_id=rule.pk,
        rule_name=rule.name,
        description=rule.description,
        severity=rule.severity,
        scope=rule.scope,
        metric=rule.metric,
        comparison=rule.comparison,
        threshold=rule.threshold,
        hold_s=rule.hold_s,
        topic=subject.topic,
        channel=subject.channel,
        node=subject.node,
        objective=subject.objective,
        value=event.value,
        detail=event.detail[:500],
        holders=list(event.holders),
        began_at=at(event.began),
        fired_at=at(event.at),
    )


def at(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
