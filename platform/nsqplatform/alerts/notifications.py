"""Determines the due notifications from the database: firing alerts, their rules' notifiers, and the notifications that
were sent. A notification that was lost in a crash, or that a webhook refused, is therefore due again; no queue is
needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Prefetch
from django.utils import timezone

from nsqplatform.alerts import selectors
from nsqplatform.alerts.message import Event
from nsqplatform.alerts.models import Alert, Notice, Notifier

NOTIFY_WITHIN = timedelta(days=1)
"""No notification is sent about an alert that was resolved longer than this ago."""


@dataclass(frozen=True)
class Due:
    """One message to one notifier."""

    notifier: Notifier
    event: Event
    alerts: Sequence[Alert]


def due() -> list[Due]:
    """The notifications that are due: one message for each notifier and event, with all its alerts."""
    now = timezone.now()
    notices = Prefetch("notices", Notice.objects.select_related("notifier"))
    groups: dict[tuple[int, Event], list[Alert]] = defaultdict(list)
    notifiers: dict[int, Notifier] = {}
    silences = list(selectors.active_silences(at=now))
    firing = Alert.objects.filter(state=Alert.State.FIRING, rule__isnull=False, acknowledged_at=None)
    for alert in firing.select_related("rule").prefetch_related(notices, "rule__notifiers"):
        if alert.rule is None or selectors.silenced_until(alert, silences, at=now) is not None:
            continue
        sent = {notice.notifier_id: notice.sent_at for notice in alert.notices.all()}
        for notifier in alert.rule.notifiers.all():
            event = _of_firing(alert.rule.repeat_s, sent.get(notifier.pk), now)
            if notifier.enabled and event is not None:
                notifiers[notifier.pk] = notifier
                groups[notifier.pk, event].append(alert)
    over = Notice.objects.filter(
        state=Alert.State.FIRING,
        notifier__enabled=True,
        alert__state=Alert.State.RESOLVED,
        alert__resolved_at__gt=now - NOTIFY_WITHIN,
    )
    alerts = Alert.objects.prefetch_related(notices)
    for notice in over.select_related("notifier").prefetch_related(Prefetch("alert", alerts)):
        notifiers[notice.notifier_id] = notice.notifier
        groups[notice.notifier_id, "resolved"].append(notice.alert)
    return [Due(notifiers[pk], event, alerts) for (pk, event), alerts in groups.items()]


def _of_firing(repeat_s: int | None, sent_at: datetime | None, now: datetime) -> Event | None:
    if sent_at is None:
        return "firing"
    if repeat_s is not None and now - sent_at >= timedelta(seconds=repeat_s):
        return "still firing"
    return None


def record_sent(message: Due) -> None:
    """Record that the message was sent."""
    state = Alert.State.RESOLVED if message.event == "resolved" else Alert.State.FIRING
    _record(message.notifier.pk, message.alerts, state)


def _record(notifier_id: int, alerts: Iterable[Alert], state: str) -> None:
    there = set(Notifier.objects.filter(pk=notifier_id).values_list("pk", flat=True))
    kept = set(Alert.objects.filter(pk__in=[alert.pk for alert in alerts]).values_list("pk", flat=True))
    now = timezone.now()
    Notice.objects.bulk_create(
        [Notice(alert_id=pk, notifier_id=notifier_id, state=state, sent_at=now) for pk in kept if there],
        update_conflicts=True,
        unique_fields=["alert", "notifier"],
        update_fields=["state", "sent_at"],
    )
