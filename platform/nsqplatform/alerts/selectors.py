"""Reading alerts, rules, notifiers and silences."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime

from django.db.models import Count, Q, QuerySet
from django.http import Http404
from django.utils import timezone

from nsqanalytics.past_weeks import LEAST_WEEKS
from nsqplatform.alerts.bands import bands
from nsqplatform.alerts.catalogue import ARCHIVE
from nsqplatform.alerts.models import Alert, Notifier, Rule, Severity, Silence
from nsqplatform.alerts.readings import Matching, MetricReader, Watch, is_beyond, objective_table, subject_of
from nsqplatform.alerts.schemas import (
    AlertOut,
    CountsOut,
    PastWeeksOut,
    PreviewOut,
    PreviewRow,
    RuleOut,
    alert_detail,
    rule_detail,
)
from nsqplatform.alerts.unusual import Unusual
from nsqplatform.cluster import selectors as cluster_selectors
from nsqplatform.objectives.burns import burns
from nsqplatform.unix_time import unix_ms

PREVIEWED = 100


def rules() -> QuerySet[Rule]:
    return Rule.objects.prefetch_related("notifiers").annotate(
        firing_count=Count("alerts", filter=Q(alerts__state=Alert.State.FIRING))
    )


def rule(rule_id: int) -> Rule:
    """The rule, with its ``firing_count``. Raises Http404."""
    found = rules().filter(pk=rule_id).first()
    if found is None:
        raise Http404(f"there is no alert rule {rule_id}")
    return found


def described_rules(found: Iterable[Rule]) -> list[RuleOut]:
    """The rows of ``rules``, those that compare a figure with past weeks with what these give."""
    those = list(found)
    reader = None
    if any(each.watched.is_anomaly for each in those):
        snapshot, stored = cluster_selectors.snapshot(), bands()
        unusual = None if stored is None else Unusual(stored, None, time.time())
        reader = None if snapshot is None else MetricReader(snapshot, unusual=unusual)
    return [
        rule_detail(
            each,
            firing=getattr(each, "firing_count", 0),
            past_weeks=past_weeks(each, reader) if reader is not None and each.watched.is_anomaly else None,
        )
        for each in those
    ]


def past_weeks(watch: Watch, reader: MetricReader) -> PastWeeksOut:
    keys = list(Matching(watch).subjects(reader.rows(watch.watched.scope)))
    unusual = reader.unusual
    if unusual is None or not unusual.bands.has(watch):
        return PastWeeksOut(matched=len(keys), short=0, least_weeks=LEAST_WEEKS, found_at=None, error="")
    known = sum(unusual.band(watch.watched, key) is not None for key in keys)
    return PastWeeksOut(
        matched=len(keys),
        short=len(keys) - known,
        least_weeks=LEAST_WEEKS,
        found_at=int(unusual.bands.at * 1000),
        error=unusual.bands.error,
    )


def notifiers() -> QuerySet[Notifier]:
    return Notifier.objects.annotate(rule_count=Count("rules"))


def notifier(notifier_id: int) -> Notifier:
    """The notifier, with its ``rule_count``. Raises Http404."""
    found = notifiers().filter(pk=notifier_id).first()
    if found is None:
        raise Http404(f"there is no notifier {notifier_id}")
    return found


def alerts(
    *,
    state: str,
    severity: str | None = None,
    rule_id: int | None = None,
    subject: str = "",
    before: int | None = None,
    limit: int = 500,
) -> QuerySet[Alert]:
    """The alerts in a state, newest first. ``subject``: words that occur in topic, channel, node or objective.
    ``before``: id of the last alert already seen."""
    found = Alert.objects.filter(state=state)
    if severity is not None:
        found = found.filter(severity=severity)
    if rule_id is not None:
        found = found.filter(rule=rule_id)
    for word in subject.split():
        named = Q(topic__icontains=word) | Q(channel__icontains=word) | Q(node__icontains=word)
        named |= Q(objective__icontains=word)
        found = found.filter(named | Q(scope=Rule.Scope.ARCHIVE) if word.lower() in ARCHIVE else named)
    if before is not None:
        found = found.filter(pk__lt=before)
    return found[:limit]


def alert(alert_id: int) -> Alert:
    """The alert. Raises Http404."""
    found = Alert.objects.filter(pk=alert_id).first()
    if found is None:
        raise Http404(f"there is no alert {alert_id}")
    return found


def described(found: QuerySet[Alert]) -> list[AlertOut]:
    """The alerts with their silences and notices."""
    now = timezone.now()
    active = list(active_silences(at=now))
    return [
        alert_detail(each, unix_ms(silenced_until(each, active, at=now)))
        for each in found.prefetch_related("notices__notifier")
    ]


def active_silences(*, at: datetime) -> QuerySet[Silence]:
    return Silence.objects.filter(ends_at__gt=at).select_related("rule")


def silenced_until(alert: Alert, silences: Iterable[Silence], *, at: datetime) -> datetime | None:
    """The end of the last silence that covers the alert; None if none does, or if the alert does not fire."""
    if alert.state != Alert.State.FIRING:
        return None
    return max((silence.ends_at for silence in silences if silence.covers(alert, at=at)), default=None)


def counts() -> CountsOut:
    """Numbers of firing alerts. ``critical`` and ``warning`` count those that are neither acknowledged nor silenced."""
    now = timezone.now()
    active = list(active_silences(at=now))
    found = CountsOut(critical=0, warning=0, acknowledged=0, silenced=0)
    for each in Alert.objects.filter(state=Alert.State.FIRING):
        if each.acknowledged_at is not None:
            found.acknowledged += 1
        elif silenced_until(each, active, at=now) is not None:
            found.silenced += 1
        elif each.severity == Severity.CRITICAL:
            found.critical += 1
        else:
            found.warning += 1
    return found


def silences(*, ended: bool, before: int | None, limit: int) -> QuerySet[Silence]:
    """Active silences, or with ``ended`` the ended ones, newest first."""
    now = timezone.now()
    found = Silence.objects.filter(ends_at__lte=now) if ended else active_silences(at=now)
    if before is not None:
        found = found.filter(pk__lt=before)
    return found.select_related("rule")[:limit]


def silence(silence_id: int) -> Silence:
    """The silence. Raises Http404."""
    found = Silence.objects.select_related("rule").filter(pk=silence_id).first()
    if found is None:
        raise Http404(f"there is no silence {silence_id}")
    return found


class NoSnapshot(Exception):
    """The collector has not stored a snapshot yet."""


def preview(watch: Watch) -> PreviewOut:
    """Evaluate the rule against the newest snapshot. Raises NoSnapshot."""
    snapshot = cluster_selectors.snapshot()
    if snapshot is None:
        raise NoSnapshot("there is no snapshot of the cluster yet: is the collector running?")
    now, stored = time.time(), bands() if watch.watched.is_anomaly else None
    reader = MetricReader(
        snapshot,
        damaged_files=cluster_selectors.damaged_files(),
        objectives=objective_table(burns(), now=now),
        unusual=None if stored is None else Unusual(stored, None, now),
    )
    rows = reader.rows(watch.watched.scope)
    found: list[PreviewRow] = []
    for key in Matching(watch).subjects(rows):
        row = rows[key]
        reading = reader.read(watch.watched, row)
        subject = subject_of(watch.watched.scope, row)
        value = row[watch.watched.field] if watch.watched.is_anomaly else reading.value
        detail = reader.detail(watch.watched, row, watch.threshold) if watch.watched.is_anomaly else ""
        found.append(PreviewRow(**subject._asdict(), value=value, beyond=is_beyond(watch, reading), detail=detail))
    found.sort(key=lambda row: {True: 0, None: 1, False: 2}[row.beyond])
    return PreviewOut(
        taken_at=reader.snapshot.taken_at_ms,
        matched=len(found),
        beyond=sum(row.beyond is True for row in found),
        unknown=sum(row.beyond is None for row in found),
        rows=found[:PREVIEWED],
    )
