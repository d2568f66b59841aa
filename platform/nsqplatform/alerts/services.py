"""The actions of people on alerts. Each checks permissions and values, and is recorded in the audit trail."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TypedDict

from django.core.exceptions import PermissionDenied, ValidationError
from django.core.validators import URLValidator, validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone
from kombu.exceptions import OperationalError as QueueUnreachable

from nsqplatform.accounts.audit import record
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.alerts import delivery, selectors, tasks
from nsqplatform.alerts.catalogue import METRICS, names_of
from nsqplatform.alerts.live import broadcast_alerts
from nsqplatform.alerts.models import Alert, Notifier, Rule, Silence
from nsqplatform.alerts.schemas import NotifierChange, NotifierIn, RuleChange, RuleIn, SilenceIn
from nsqplatform.clusters import current
from nsqplatform.patterns import is_pattern
from nsqplatform.unix_time import from_unix_ms

logger = logging.getLogger(__name__)

LEAST_SCORE, MOST_SCORE = 0.5, 100.0
"""Limits of a rule's score: a band of less than half the usual deviation has few usual hours."""


class NotFiring(Exception):
    """The alert is resolved."""


class AlertUpdate(TypedDict, total=False):
    """The fields of an alert that an action of a person sets."""

    acknowledged_by: str
    acknowledged_at: datetime | None
    note: str
    state: Alert.State
    resolved_at: datetime
    resolution: Alert.Resolution
    resolved_by: str


def broadcast_after_commit(*alert_ids: int) -> None:
    """Notify browsers and the collector of the change after commit, so that they read the new state."""
    transaction.on_commit(partial(broadcast_alerts, alert_ids, by_person=True))


# ---- rules


def unsaved_rule(values: RuleIn) -> Rule:
    """Return a checked rule with these values, not saved. Raises ValidationError that names the field."""
    return checked_rule(Rule(**values.dict(exclude={"notifiers"})))


def create_rule(*, values: RuleIn, by: User, remote_address: str) -> Rule:
    """Create a rule. Raises PermissionDenied, or ValidationError naming the field."""
    require(by, Permission.ALERT)
    rule = unsaved_rule(values)
    rule.created_by = by.username
    with transaction.atomic():
        save_rule(rule, values.notifiers)
        record(
            user=by,
            action="create alert rule",
            subject=rule.name,
            detail=summary_of(rule),
            remote_address=remote_address,
        )
        broadcast_after_commit()
    return selectors.rule(rule.pk)


def change_rule(*, rule_id: int, values: RuleChange, by: User, remote_address: str) -> Rule:
    """Change what is set in ``values``. Raises PermissionDenied, Http404, or ValidationError naming the field."""
    require(by, Permission.ALERT)
    rule = selectors.rule(rule_id)
    before = summary_of(rule)
    for name, value in values.dict(exclude_unset=True, exclude={"notifiers"}).items():
        setattr(rule, name, value)
    checked_rule(rule)
    with transaction.atomic():
        save_rule(rule, values.notifiers if "notifiers" in values.model_fields_set else None)
        after, changed = summary_of(rule), ", ".join(sorted(values.model_fields_set))
        detail = f"{before} → {after}" if after != before else changed
        record(user=by, action="change alert rule", subject=rule.name, detail=detail, remote_address=remote_address)
        broadcast_after_commit()
    return selectors.rule(rule_id)


def delete_rule(*, rule_id: int, by: User, remote_address: str) -> None:
    """Delete a rule. Its alerts stay; those that fire are resolved. Raises PermissionDenied or Http404."""
    require(by, Permission.ALERT)
    rule = selectors.rule(rule_id)
    with transaction.atomic():
        remove_rule(rule, by)
        record(
            user=by,
            action="delete alert rule",
            subject=rule.name,
            detail=summary_of(rule),
            remote_address=remote_address,
        )


def remove_rule(rule: Rule, by: User) -> None:
    """Delete the rule and resolve its alerts that fire, without an audit entry."""
    firing = list(rule.alerts.filter(state=Alert.State.FIRING).values_list("pk", flat=True))
    Alert.objects.filter(pk__in=firing).update(
        state=Alert.State.RESOLVED,
        resolved_at=timezone.now(),
        resolution=Alert.Resolution.RULE,
        resolved_by=by.username,
    )
    rule.delete()
    broadcast_after_commit(*firing)


def summary_of(rule: Rule) -> str:
    """The rule in one line, for the audit trail."""
    what = rule.metric if rule.watched.is_flag else f"{rule.metric} {rule.comparison} {rule.threshold:g}"
    if rule.watched.is_anomaly:
        what = f"{rule.metric} {rule.comparison} the band of score {rule.threshold:g}"
    where: str = {
        Rule.Scope.CHANNEL: f"{rule.topic_pattern}/{rule.channel_pattern}",
        Rule.Scope.TOPIC: rule.topic_pattern,
        Rule.Scope.NODE: rule.node_pattern,
        Rule.Scope.ARCHIVE: "",
        Rule.Scope.OBJECTIVE: rule.objective_pattern,
    }[Rule.Scope(rule.scope)]
    of = f"{rule.scope} {where}".strip()
    return f"{rule.severity}: {of} {what} for {rule.hold_s} s{'' if rule.enabled else ', disabled'}"


def checked_rule(rule: Rule) -> Rule:
    """Return the rule with the values that do not apply to its scope reset. Raises ValidationError naming the field."""
    rule.name = rule.name.strip()
    if not rule.name:
        raise ValidationError({"name": "a rule needs a name"})
    metric = METRICS.get((rule.scope, rule.metric))
    if metric is None:
        articles: dict[str, str] = {Rule.Scope.ARCHIVE: "the", Rule.Scope.OBJECTIVE: "an"}
        subject = f"{articles.get(rule.scope, 'a')} {rule.scope}"
        raise ValidationError(
            {"metric": f"{subject} has no metric {rule.metric!r}; it has {', '.join(names_of(rule.scope))}"}
        )
    if metric.is_flag:
        rule.comparison, rule.threshold = Rule.Comparison.ABOVE, 0.0
    elif metric.is_anomaly:
        if not LEAST_SCORE <= rule.threshold <= MOST_SCORE:
            fault = f"a score from {LEAST_SCORE:g} to {MOST_SCORE:g} is needed, such as 4; 1.96 is the 95 % band"
            raise ValidationError({"threshold": fault})
    elif rule.comparison == Rule.Comparison.OUTSIDE:
        raise ValidationError({"comparison": f"{rule.metric} has no band to be outside of: above or below"})
    if rule.scope not in (Rule.Scope.CHANNEL, Rule.Scope.TOPIC):
        rule.topic_pattern = rule.channel_pattern = "*"
    if rule.scope != Rule.Scope.NODE:
        rule.node_pattern = "*"
    if rule.scope != Rule.Scope.OBJECTIVE:
        rule.objective_pattern = "*"
    if rule.scope == Rule.Scope.TOPIC:
        rule.channel_pattern = "*"
    _check_patterns(topic_pattern=rule.topic_pattern, channel_pattern=rule.channel_pattern)
    return rule


def _check_patterns(**patterns: str) -> None:
    for field, pattern in patterns.items():
        if pattern and not is_pattern(pattern):
            raise ValidationError({field: f"{pattern!r} is not a glob of names, such as orders*"})


def save_rule(rule: Rule, names: Sequence[str] | None) -> None:
    """Save the rule with the notifiers of these names; None keeps its notifiers."""
    try:
        with transaction.atomic():
            rule.save()
    except IntegrityError:
        raise ValidationError({"name": f"there is a rule {rule.name!r} already"}) from None
    if names is not None:
        found = {notifier.name: notifier for notifier in Notifier.objects.filter(name__in=names)}
        if unknown := [name for name in names if name not in found]:
            raise ValidationError({"notifiers": f"there is no notifier {unknown[0]!r}"})
        rule.notifiers.set(found.values())
    if rule.watched.is_anomaly and rule.enabled:
        transaction.on_commit(partial(_find_bands, rule.name))


def _find_bands(rule_name: str) -> None:
    """Find the bands of a saved rule now. If the queue is unreachable, the next scheduled task finds them."""
    try:
        tasks.find_bands.delay(current.name())
    except (QueueUnreachable, OSError) as error:
        logger.warning("the rule's bands are found later", extra={"rule": rule_name, "error": str(error)})


# ---- notifiers


def create_notifier(*, values: NotifierIn, by: User, remote_address: str) -> Notifier:
    """Create a notifier. Raises PermissionDenied, or ValidationError naming the field."""
    require(by, Permission.ALERT)
    notifier = save_notifier(Notifier(**values.dict(), created_by=by.username))
    _record_notifier("create notifier", notifier, by, remote_address)
    return selectors.notifier(notifier.pk)


def change_notifier(*, notifier_id: int, values: NotifierChange, by: User, remote_address: str) -> Notifier:
    """Change what is set in ``values``. Raises PermissionDenied, Http404, or ValidationError naming the field."""
    require(by, Permission.ALERT)
    notifier = selectors.notifier(notifier_id)
    changed = sorted(values.model_fields_set)
    for name in changed:
        setattr(notifier, name, getattr(values, name))
    save_notifier(notifier, only=changed)
    _record_notifier("change notifier", notifier, by, remote_address, detail=", ".join(changed))
    return selectors.notifier(notifier_id)


def delete_notifier(*, notifier_id: int, by: User, remote_address: str) -> None:
    """Delete a notifier and remove it from its rules. Raises PermissionDenied or Http404."""
    require(by, Permission.ALERT)
    notifier = selectors.notifier(notifier_id)
    rules = ", ".join(notifier.rules.values_list("name", flat=True))
    notifier.delete()
    _record_notifier("delete notifier", notifier, by, remote_address, detail=f"used by: {rules}" if rules else "")


def test_notifier(*, notifier_id: int, by: User, remote_address: str) -> str:
    """Send a test message now, even if the notifier is disabled, and return the error, or an empty string.

    Raises PermissionDenied or Http404.
    """
    require(by, Permission.ALERT)
    notifier = selectors.notifier(notifier_id)
    error = delivery.send_test(notifier, by=by.username)
    delivery.record_outcome(notifier.pk, error)
    record(
        user=by,
        action="test notifier",
        subject=notifier.name,
        outcome="failed" if error else "done",
        detail=error,
        remote_address=remote_address,
    )
    return error


def _record_notifier(action: str, notifier: Notifier, by: User, remote_address: str, detail: str = "") -> None:
    record(user=by, action=action, subject=notifier.name, detail=detail, remote_address=remote_address)
    broadcast_after_commit()


def save_notifier(notifier: Notifier, only: Sequence[str] | None = None) -> Notifier:
    """Check and save the notifier, all its fields or ``only`` these. Raises ValidationError naming the field."""
    notifier.name = notifier.name.strip()
    if not notifier.name:
        raise ValidationError({"name": "a notifier needs a name"})
    if notifier.kind == Notifier.Kind.WEBHOOK:
        try:
            URLValidator(schemes=["http", "https"])(notifier.url)
        except ValidationError:
            raise ValidationError({"url": "an http or https address is needed"}) from None
    elif not notifier.recipients:
        raise ValidationError({"recipients": "at least one address is needed"})
    for address in notifier.recipients:
        try:
            validate_email(address)
        except ValidationError:
            raise ValidationError({"recipients": f"{address!r} is not an e-mail address"}) from None
    try:
        with transaction.atomic():
            notifier.save(update_fields=only)
    except IntegrityError:
        raise ValidationError({"name": f"there is a notifier {notifier.name!r} already"}) from None
    return notifier


# ---- alerts


def _require_attending(by: User, *, topic: str, otherwise: str = "nodes") -> None:
    """Raise PermissionDenied unless ``by`` may attend to alerts of ``topic``.

    An empty ``topic`` stands for alerts without one, such as those of nodes: ``otherwise`` names their subjects. An
    operator with topic patterns may not attend to these.
    """
    require(by, Permission.ATTEND, topic=topic or None)
    if not topic and limits_of(by):
        raise PermissionDenied(f"you may act on topics {', '.join(limits_of(by))}, not on {otherwise}")


def limits_of(user: User) -> list[str]:
    """The topic patterns that limit the user; empty: no limit."""
    return list(user.rights.topic_patterns) if user.rights.role == Role.OPERATOR else []


def acknowledge(*, alert_id: int, note: str, by: User, remote_address: str) -> Alert:
    """Acknowledge an alert: it sends no further notifications while it fires. Raises PermissionDenied, Http404 or
    NotFiring."""
    alert = _attended(alert_id, by)
    return _written(
        alert,
        {"acknowledged_by": by.username, "acknowledged_at": timezone.now(), "note": note},
        ("acknowledge alert", note),
        by,
        remote_address,
    )


def withdraw_acknowledgement(*, alert_id: int, by: User, remote_address: str) -> Alert:
    """Remove the acknowledgement: the alert notifies again. Raises PermissionDenied, Http404 or NotFiring."""
    alert = _attended(alert_id, by)
    return _written(
        alert,
        {"acknowledged_by": "", "acknowledged_at": None, "note": ""},
        ("withdraw acknowledgement", ""),
        by,
        remote_address,
    )


def close(*, alert_id: int, note: str, by: User, remote_address: str) -> Alert:
    """Resolve an alert, for example of a node that was removed. If the metric is still beyond the threshold, it fires
    again after the hold time. Raises PermissionDenied, Http404 or NotFiring."""
    alert = _attended(alert_id, by)
    over: AlertUpdate = {
        "state": Alert.State.RESOLVED,
        "resolved_at": timezone.now(),
        "resolution": Alert.Resolution.CLOSED,
        "resolved_by": by.username,
    }
    if note:
        over["note"] = note
    return _written(alert, over, ("close alert", note), by, remote_address)


def _attended(alert_id: int, by: User) -> Alert:
    require(by, Permission.ATTEND)
    alert = selectors.alert(alert_id)
    subjects: dict[str, str] = {Rule.Scope.ARCHIVE: "the archive", Rule.Scope.OBJECTIVE: "objectives"}
    otherwise = subjects.get(alert.scope, "nodes")
    _require_attending(by, topic=alert.topic, otherwise=otherwise)
    return alert


def _written(alert: Alert, values: AlertUpdate, entry: tuple[str, str], by: User, remote_address: str) -> Alert:
    """Change the alert if it still fires; otherwise raise NotFiring. The collector may resolve it concurrently."""
    with transaction.atomic():
        if not Alert.objects.filter(pk=alert.pk, state=Alert.State.FIRING).update(**values):
            raise NotFiring(f"alert {alert.pk} is already resolved")
        action, detail = entry
        record(
            user=by,
            action=action,
            topic=alert.topic,
            channel=alert.channel or None,
            subject=f"{alert.rule_name}: {alert.subject}",
            detail=detail,
            remote_address=remote_address,
        )
        broadcast_after_commit(alert.pk)
    alert.refresh_from_db()
    return alert


# ---- silences


def create_silence(*, values: SilenceIn, by: User, remote_address: str) -> Silence:
    """Suppress notifications of some alerts for a time. For an operator with topic patterns, the silence is limited to
    these topics. Raises PermissionDenied, Http404, or ValidationError naming the field."""
    require(by, Permission.ATTEND)
    ends_at = from_unix_ms(values.ends_at)
    silence = Silence(**values.dict() | {"ends_at": ends_at}, created_by=by.username, within=limits_of(by))
    check_silence(silence, by)
    with transaction.atomic():
        save_silence(silence)
        record(
            user=by,
            action="silence alerts",
            topic=silence.topic_pattern,
            channel=silence.channel_pattern or None,
            subject=described(silence),
            detail=f"until {ends_at:%Y-%m-%d %H:%M} UTC: {silence.reason}",
            remote_address=remote_address,
        )
    return silence


def check_silence(silence: Silence, by: User) -> None:
    """Check that ``by`` may create the silence. Raises PermissionDenied, Http404, or ValidationError naming the
    field."""
    patterns = (silence.topic_pattern, silence.channel_pattern, silence.node_pattern, silence.objective_pattern)
    if silence.rule_id is None and not any(patterns):
        raise ValidationError("a silence needs a rule or a pattern; the topic_pattern or node_pattern * matches all")
    if silence.ends_at <= timezone.now():
        raise ValidationError({"ends_at": "this time is past"})
    _check_patterns(topic_pattern=silence.topic_pattern, channel_pattern=silence.channel_pattern)
    if silence.rule_id is not None:
        selectors.rule(silence.rule_id)
    if silence.node_pattern or silence.objective_pattern:
        _require_attending(by, topic="", otherwise="nodes" if silence.node_pattern else "objectives")
    elif silence.topic_pattern and not set("*?[") & set(silence.topic_pattern):
        _require_attending(by, topic=silence.topic_pattern)


def save_silence(silence: Silence) -> None:
    """Save a new silence and broadcast the alerts that it covers."""
    silence.save()
    broadcast_after_commit(*_covered(silence))


def end_silence(*, silence_id: int, by: User, remote_address: str) -> Silence:
    """End a silence early. An operator with topic patterns can end those that are limited to these topics.

    Raises PermissionDenied or Http404. A silence that has ended is not changed.
    """
    require(by, Permission.ATTEND)
    silence = selectors.silence(silence_id)
    require_ending(silence, by)
    with transaction.atomic():
        if close_silence(silence, by):
            record(user=by, action="end silence", subject=described(silence), remote_address=remote_address)
    silence.refresh_from_db()
    return silence


def require_ending(silence: Silence, by: User) -> None:
    """Raise PermissionDenied unless ``by`` may end this silence. The caller has checked the permission ATTEND."""
    limits = limits_of(by)
    if limits and silence.created_by != by.username and not (silence.within and set(silence.within) <= set(limits)):
        raise PermissionDenied(f"you may act on topics {', '.join(limits)}; this silence covers others, too")


def close_silence(silence: Silence, by: User) -> bool:
    """End the silence now and broadcast the alerts that it covered. Returns False if it had already ended."""
    now, covered = timezone.now(), _covered(silence)
    if not Silence.objects.filter(pk=silence.pk, ends_at__gt=now).update(ends_at=now, ended_by=by.username):
        return False
    broadcast_after_commit(*covered)
    return True


def _covered(silence: Silence) -> list[int]:
    """Ids of the firing alerts that the silence covers."""
    now = timezone.now()
    firing = Alert.objects.filter(state=Alert.State.FIRING)
    return [alert.pk for alert in firing if silence.covers(alert, at=now)]


def described(silence: Silence) -> str:
    """The silence in one line, for the audit trail."""
    fields = {
        "rule": silence.rule.name if silence.rule else "",
        "topic": silence.topic_pattern,
        "channel": silence.channel_pattern,
        "node": silence.node_pattern,
        "objective": silence.objective_pattern,
    }
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value)
