"""The actions of people on objectives. Each checks permissions and values, and is recorded in the audit trail."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.http import Http404

from nsqplatform.accounts.audit import record
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.objectives.models import Objective
from nsqplatform.objectives.schemas import ObjectiveChange, ObjectiveIn
from nsqplatform.patterns import is_pattern
from nsqwire.counted import counted

COUNTED = ("kind", "threshold_ms", "topic_pattern", "channel_pattern")
"""The values that determine what is counted. A change of one deletes the counts."""


def create_objective(*, values: ObjectiveIn, by: User, remote_address: str) -> Objective:
    """Create an objective. Raises PermissionDenied, or ValidationError naming the field."""
    require(by, Permission.ALERT)
    objective = checked(Objective(**values.dict(), created_by=by.username))
    with transaction.atomic():
        save(objective)
        _record("create objective", objective, by, remote_address, summary_of(objective))
    return objective


def change_objective(*, objective_id: int, values: ObjectiveChange, by: User, remote_address: str) -> Objective:
    """Change what is set in ``values``. Raises PermissionDenied, Http404, or ValidationError naming the field."""
    require(by, Permission.ALERT)
    with transaction.atomic():
        objective = locked(objective_id)
        before = summary_of(objective)
        change(objective, values.dict(exclude_unset=True))
        after, changed = summary_of(objective), ", ".join(sorted(values.model_fields_set))
        detail = f"{before} → {after}" if after != before else changed
        _record("change objective", objective, by, remote_address, detail)
    return objective


def delete_objective(*, objective_id: int, by: User, remote_address: str) -> None:
    """Delete an objective with its counts. Raises PermissionDenied or Http404."""
    require(by, Permission.ALERT)
    with transaction.atomic():
        objective = locked(objective_id)
        _record("delete objective", objective, by, remote_address, summary_of(objective))
        objective.delete()


def locked(objective_id: int) -> Objective:
    """The objective, locked until the end of the transaction, so that the collector stores no counts of it meanwhile.

    Raises Http404.
    """
    found = Objective.objects.select_for_update().filter(pk=objective_id).first()
    if found is None:
        raise Http404(f"there is no objective {objective_id}")
    return found


def change(objective: Objective, values: dict[str, object]) -> None:
    """Set and save the values of a locked objective. If they change what is counted, the counts are deleted.

    Raises ValidationError naming the field.
    """
    before = [getattr(objective, name) for name in COUNTED]
    for name, value in values.items():
        setattr(objective, name, value)
    checked(objective)
    if [getattr(objective, name) for name in COUNTED] != before:
        objective.revision += 1
        objective.counted_since = objective.counted_until = None
        objective.counts.all().delete()
        objective.lasts.all().delete()
    save(objective)


def checked(objective: Objective) -> Objective:
    """Return the objective with the values that do not apply to its kind reset. Raises ValidationError naming the
    field."""
    objective.name = objective.name.strip()
    if not objective.name:
        raise ValidationError({"name": "an objective needs a name"})
    if objective.kind == Objective.Kind.SUCCESS:
        objective.threshold_ms = None
    elif objective.threshold_ms is None:
        raise ValidationError({"threshold_ms": "a latency objective needs a threshold"})
    for field in ("topic_pattern", "channel_pattern"):
        pattern = getattr(objective, field)
        if not is_pattern(pattern):
            raise ValidationError({field: f"{pattern!r} is not a glob of names, such as orders*"})
    return objective


def save(objective: Objective) -> None:
    try:
        with transaction.atomic():
            objective.save()
    except IntegrityError:
        raise ValidationError({"name": f"there is an objective {objective.name!r} already"}) from None


def summary_of(objective: Objective) -> str:
    """The objective in one line, for the audit trail."""
    what = "success" if objective.threshold_ms is None else f"latency up to {objective.threshold_ms:g} ms"
    where = f"{objective.topic_pattern}/{objective.channel_pattern}"
    return f"{objective.target_percent:g} % of {where} {what} over {counted(objective.window_days, 'day')}"


def _record(action: str, objective: Objective, by: User, remote_address: str, detail: str) -> None:
    record(user=by, action=action, subject=objective.name, detail=detail, remote_address=remote_address)
