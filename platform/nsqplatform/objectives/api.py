"""Objectives over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status

from nsqplatform.accounts.auth import actor, needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.objectives import selectors, services
from nsqplatform.objectives.models import Objective
from nsqplatform.objectives.schemas import (
    ObjectiveChange,
    ObjectiveDetailOut,
    ObjectiveIn,
    ObjectiveOut,
    ObjectivesOut,
)

router = Router(tags=["objectives"])
REFUSALS: dict[int, Any] = {401: Message, 403: Message, 404: Message, 422: InvalidRequest}


@router.get("", auth=needs(Permission.VIEW), response={200: ObjectivesOut, **REFUSALS})
def objectives(request: HttpRequest) -> ObjectivesOut:
    """All objectives, with their budgets and burn rates."""
    return ObjectivesOut(objectives=selectors.described(Objective.objects.all()))


@router.post("", auth=needs(Permission.ALERT), response={201: ObjectiveOut, **REFUSALS})
def create_objective(request: HttpRequest, body: ObjectiveIn) -> Status[ObjectiveOut]:
    """Create an objective; the collector counts messages from now on."""
    return Status(201, _described(services.create_objective(values=body, **actor(request))))


@router.get("{int:objective_id}", auth=needs(Permission.VIEW), response={200: ObjectiveDetailOut, **REFUSALS})
def objective(request: HttpRequest, objective_id: int) -> ObjectiveDetailOut:
    """One objective, with the hours of its window."""
    return selectors.detail(selectors.objective(objective_id))


@router.patch("{int:objective_id}", auth=needs(Permission.ALERT), response={200: ObjectiveOut, **REFUSALS})
def change_objective(request: HttpRequest, objective_id: int, body: ObjectiveChange) -> ObjectiveOut:
    """Change the given values. A change of kind, threshold or patterns deletes the counts."""
    return _described(services.change_objective(objective_id=objective_id, values=body, **actor(request)))


@router.delete("{int:objective_id}", auth=needs(Permission.ALERT), response={204: None, **REFUSALS})
def delete_objective(request: HttpRequest, objective_id: int) -> Status[None]:
    """Delete an objective with its counts. Its firing alerts are resolved."""
    services.delete_objective(objective_id=objective_id, **actor(request))
    return Status(204, None)


def _described(objective: Objective) -> ObjectiveOut:
    return selectors.described([objective])[0]
