"""Alerts over HTTP: firing and resolved alerts, rules, notifiers and silences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Router, Status
from ninja.errors import HttpError

from nsqplatform.accounts.auth import actor, caller, needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Line, Message
from nsqplatform.alerts import live, selectors, services
from nsqplatform.alerts import pending as pendings
from nsqplatform.alerts.catalogue import METRICS
from nsqplatform.alerts.models import Alert, Notifier, Rule, Silence
from nsqplatform.alerts.schemas import (
    AlertCountsOut,
    AlertOut,
    AlertsOut,
    AlertState,
    ManyNoteIn,
    ManyOut,
    MetricOut,
    MetricsOut,
    NoteIn,
    NotifierChange,
    NotifierIn,
    NotifierOut,
    NotifiersOut,
    PendingsOut,
    PreviewOut,
    RuleChange,
    RuleIn,
    RuleOut,
    RulesOut,
    RuleValues,
    SeverityName,
    SilenceIn,
    SilenceOut,
    SilencesOut,
    SuggestedOut,
    TestOut,
    notifier_detail,
    silence_detail,
)
from nsqplatform.alerts.selectors import NoSnapshot
from nsqplatform.alerts.services import NotFiring
from nsqplatform.alerts.suggested import SUGGESTED

router = Router(tags=["alerts"])
REFUSALS: dict[int, Any] = {401: Message, 403: Message, 404: Message, 422: InvalidRequest}


# ---- alerts


@router.get("", auth=needs(Permission.VIEW), response={200: AlertsOut, **REFUSALS})
def alerts(
    request: HttpRequest,
    state: AlertState = "firing",
    severity: SeverityName | None = None,
    rule: int | None = Query(None, ge=1, lt=2**63),
    subject: Line = Query("", max_length=300, description="words that occur in topic, channel, node or objective"),
    before: int | None = Query(None, ge=0, lt=2**63, description="id of the last one already seen"),
    limit: int = Query(500, ge=1, le=2000),
) -> AlertsOut:
    """Firing or resolved alerts."""
    version = live.version()  # read first, so that later messages have a higher version
    found = selectors.alerts(state=state, severity=severity, rule_id=rule, subject=subject, before=before, limit=limit)
    return AlertsOut(version=version, counts=selectors.counts(), alerts=selectors.described(found))


@router.get("counts", auth=needs(Permission.VIEW), response={200: AlertCountsOut, **REFUSALS})
def counts(request: HttpRequest) -> AlertCountsOut:
    """Number of firing alerts: unacknowledged by severity, acknowledged, silenced."""
    return AlertCountsOut(version=live.version(), counts=selectors.counts())


@router.get("pending", auth=needs(Permission.VIEW), response={200: PendingsOut, **REFUSALS})
def pending(request: HttpRequest, limit: int = Query(500, ge=1, le=2000)) -> PendingsOut:
    """Pending alerts: subjects that have been beyond a threshold for less than the rule's hold time. Empty if no
    collector runs."""
    return pendings.pending(limit=limit)


@router.post("acknowledge", auth=needs(Permission.ATTEND), response={200: ManyOut, **REFUSALS})
def acknowledge_many(request: HttpRequest, body: ManyNoteIn) -> ManyOut:
    """Acknowledge several alerts, each independently of the others."""
    return _each(request, body, services.acknowledge)


@router.post("close", auth=needs(Permission.ATTEND), response={200: ManyOut, **REFUSALS})
def close_many(request: HttpRequest, body: ManyNoteIn) -> ManyOut:
    """Close several alerts, each independently of the others."""
    return _each(request, body, services.close)


def _each(request: HttpRequest, body: ManyNoteIn, do: Callable[..., Alert]) -> ManyOut:
    done: list[int] = []
    refused: dict[int, str] = {}
    for alert_id in dict.fromkeys(body.alerts):
        try:
            do(alert_id=alert_id, note=body.note, **actor(request))
            done.append(alert_id)
        except (PermissionDenied, Http404, NotFiring) as error:
            refused[alert_id] = str(error)
    return ManyOut(alerts=selectors.described(Alert.objects.filter(pk__in=done)), refused=refused)


@router.get("{int:alert_id}", auth=needs(Permission.VIEW), response={200: AlertOut, **REFUSALS})
def alert(request: HttpRequest, alert_id: int) -> AlertOut:
    """One alert."""
    return _described(selectors.alert(alert_id))


@router.post(
    "{int:alert_id}/acknowledge", auth=needs(Permission.ATTEND), response={200: AlertOut, 409: Message, **REFUSALS}
)
def acknowledge(request: HttpRequest, alert_id: int, body: NoteIn) -> AlertOut:
    """Acknowledge an alert: it sends no further notifications while it fires."""
    return _attended(services.acknowledge, alert_id=alert_id, note=body.note, **actor(request))


@router.delete(
    "{int:alert_id}/acknowledge", auth=needs(Permission.ATTEND), response={200: AlertOut, 409: Message, **REFUSALS}
)
def withdraw_acknowledgement(request: HttpRequest, alert_id: int) -> AlertOut:
    """Withdraw the acknowledgement."""
    return _attended(services.withdraw_acknowledgement, alert_id=alert_id, **actor(request))


@router.post("{int:alert_id}/close", auth=needs(Permission.ATTEND), response={200: AlertOut, 409: Message, **REFUSALS})
def close(request: HttpRequest, alert_id: int, body: NoteIn) -> AlertOut:
    """Close an alert, for example of a node that was removed. If its condition persists, it fires again after the hold
    time."""
    return _attended(services.close, alert_id=alert_id, note=body.note, **actor(request))


def _attended(do: Callable[..., Alert], **asked: Any) -> AlertOut:
    try:
        return _described(do(**asked))
    except NotFiring as error:
        raise HttpError(409, str(error)) from None


def _described(alert: Alert) -> AlertOut:
    return selectors.described(Alert.objects.filter(pk=alert.pk))[0]


# ---- rules


@router.get("metrics", auth=needs(Permission.VIEW), response={200: MetricsOut, **REFUSALS})
def metrics(request: HttpRequest) -> MetricsOut:
    """The metrics that a rule can watch."""
    return MetricsOut(metrics=[MetricOut.model_validate(metric) for metric in METRICS.values()])


@router.get("rules", auth=needs(Permission.VIEW), response={200: RulesOut, **REFUSALS})
def rules(request: HttpRequest) -> RulesOut:
    """All rules."""
    return RulesOut(rules=selectors.described_rules(selectors.rules()))


@router.post("rules", auth=needs(Permission.ALERT), response={201: RuleOut, **REFUSALS})
def create_rule(request: HttpRequest, body: RuleIn) -> Status[RuleOut]:
    """Create a rule; the collector evaluates it within seconds."""
    return Status(201, _rule(services.create_rule(values=body, **actor(request))))


@router.get("rules/suggested", auth=needs(Permission.VIEW), response={200: SuggestedOut, **REFUSALS})
def suggested(request: HttpRequest) -> SuggestedOut:
    """Suggested rules: bodies for ``POST alerts/rules``."""
    return SuggestedOut(rules=[RuleValues(**RuleIn.model_validate(each).dict()) for each in SUGGESTED])


@router.post("rules/preview", auth=needs(Permission.ALERT), response={200: PreviewOut, 503: Message, **REFUSALS})
def preview(request: HttpRequest, body: RuleIn) -> PreviewOut:
    """Evaluate a rule against the newest snapshot, without saving it."""
    try:
        return selectors.preview(services.unsaved_rule(body))
    except NoSnapshot as error:
        raise HttpError(503, str(error)) from None


@router.get("rules/{int:rule_id}", auth=needs(Permission.VIEW), response={200: RuleOut, **REFUSALS})
def rule(request: HttpRequest, rule_id: int) -> RuleOut:
    """One rule."""
    return _rule(selectors.rule(rule_id))


@router.patch("rules/{int:rule_id}", auth=needs(Permission.ALERT), response={200: RuleOut, **REFUSALS})
def change_rule(request: HttpRequest, rule_id: int, body: RuleChange) -> RuleOut:
    """Change the given values."""
    return _rule(services.change_rule(rule_id=rule_id, values=body, **actor(request)))


@router.delete("rules/{int:rule_id}", auth=needs(Permission.ALERT), response={204: None, **REFUSALS})
def delete_rule(request: HttpRequest, rule_id: int) -> Status[None]:
    """Delete a rule. Its alerts stay; those that fire are resolved."""
    services.delete_rule(rule_id=rule_id, **actor(request))
    return Status(204, None)


def _rule(rule: Rule) -> RuleOut:
    """The response for a row of selectors.rules."""
    return selectors.described_rules([rule])[0]


# ---- notifiers


@router.get("notifiers", auth=needs(Permission.VIEW), response={200: NotifiersOut, **REFUSALS})
def notifiers(request: HttpRequest) -> NotifiersOut:
    """All notifiers, with the outcome of the last delivery."""
    return NotifiersOut(notifiers=[_notifier(notifier, request) for notifier in selectors.notifiers()])


@router.post("notifiers", auth=needs(Permission.ALERT), response={201: NotifierOut, **REFUSALS})
def create_notifier(request: HttpRequest, body: NotifierIn) -> Status[NotifierOut]:
    """Create a notifier, which rules can refer to."""
    return Status(201, _notifier(services.create_notifier(values=body, **actor(request)), request))


@router.patch("notifiers/{int:notifier_id}", auth=needs(Permission.ALERT), response={200: NotifierOut, **REFUSALS})
def change_notifier(request: HttpRequest, notifier_id: int, body: NotifierChange) -> NotifierOut:
    """Change the given values."""
    return _notifier(services.change_notifier(notifier_id=notifier_id, values=body, **actor(request)), request)


@router.delete("notifiers/{int:notifier_id}", auth=needs(Permission.ALERT), response={204: None, **REFUSALS})
def delete_notifier(request: HttpRequest, notifier_id: int) -> Status[None]:
    """Delete a notifier and remove it from its rules."""
    services.delete_notifier(notifier_id=notifier_id, **actor(request))
    return Status(204, None)


@router.post("notifiers/{int:notifier_id}/test", auth=needs(Permission.ALERT), response={200: TestOut, **REFUSALS})
def test_notifier(request: HttpRequest, notifier_id: int) -> TestOut:
    """Send a test message now, and return the outcome."""
    error = services.test_notifier(notifier_id=notifier_id, **actor(request))
    return TestOut(delivered=not error, error=error)


def _notifier(notifier: Notifier, request: HttpRequest) -> NotifierOut:
    """The response for a row of selectors.notifiers."""
    secrets = caller(request).may(Permission.ALERT)
    return notifier_detail(notifier, rules=getattr(notifier, "rule_count", 0), secrets=secrets)


# ---- silences


@router.get("silences", auth=needs(Permission.VIEW), response={200: SilencesOut, **REFUSALS})
def silences(
    request: HttpRequest,
    ended: bool = False,
    before: int | None = Query(None, ge=0, lt=2**63, description="id of the last one already seen"),
    limit: int = Query(100, ge=1, le=500),
) -> SilencesOut:
    """Active or ended silences."""
    firing = list(Alert.objects.filter(state=Alert.State.FIRING))
    found = selectors.silences(ended=ended, before=before, limit=limit)
    return SilencesOut(silences=[_silence(silence, firing) for silence in found])


@router.post("silences", auth=needs(Permission.ATTEND), response={201: SilenceOut, **REFUSALS})
def create_silence(request: HttpRequest, body: SilenceIn) -> Status[SilenceOut]:
    """Suppress notifications of some alerts until the given time."""
    silence = services.create_silence(values=body, **actor(request))
    return Status(201, _silence(silence, list(Alert.objects.filter(state=Alert.State.FIRING))))


@router.delete("silences/{int:silence_id}", auth=needs(Permission.ATTEND), response={200: SilenceOut, **REFUSALS})
def end_silence(request: HttpRequest, silence_id: int) -> SilenceOut:
    """End a silence now; it stays in the list of ended silences."""
    return _silence(services.end_silence(silence_id=silence_id, **actor(request)), [])


def _silence(silence: Silence, firing: list[Alert]) -> SilenceOut:
    now = timezone.now()
    covered = [alert for alert in firing if silence.covers(alert, at=now)]
    return silence_detail(silence, active=silence.ends_at > now, covered=covered)
