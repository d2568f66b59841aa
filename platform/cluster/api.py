"""The cluster's picture, and what an operator does to it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.errors import HttpError

from accounts.auth import caller
from accounts.roles import Permission
from accounts.schemas import Message
from accounts.services import require
from cluster import selectors, services
from cluster.actions import ClusterUnreachable, NotInCluster
from cluster.models import AuditEntry
from cluster.schemas import ActionIn, ActionOut, AuditOut, SnapshotOut

router = Router(tags=["cluster"])


@router.get("snapshot", response={200: SnapshotOut, 401: Message, 503: Message})
def snapshot(request: HttpRequest) -> HttpResponse:
    """The whole picture, as of the collector's last beat."""
    require(caller(request), Permission.VIEW)
    kept = selectors.snapshot_json()
    if kept is None:
        raise HttpError(503, "there is no picture of the cluster yet: is the collector running?")
    # As the collector wrote it: it has the schema's shape already, and may be megabytes.
    return HttpResponse(kept, content_type="application/json")


@router.post("actions", response={200: ActionOut, 401: Message, 403: Message, 404: Message, 422: Message, 502: Message})
def actions(request: HttpRequest, body: ActionIn) -> dict[str, Any]:
    """Pause, unpause, empty, delete or create a topic or channel, everywhere it is."""
    try:
        entry = services.act(
            user=caller(request),
            action=body.action,
            topic=body.topic,
            channel=body.channel,
            remote_address=request.META.get("REMOTE_ADDR", ""),
        )
    except NotInCluster as error:
        raise HttpError(404, str(error)) from None
    except ClusterUnreachable as error:
        raise HttpError(502, str(error)) from None
    return {"outcome": entry.outcome, "results": entry.results}


@router.get("audit", response={200: AuditOut, 401: Message, 422: Message})
def audit(
    request: HttpRequest, before: int | None = None, limit: int = Query(50, ge=1, le=500)
) -> dict[str, list[dict[str, Any]]]:
    """Who did what, newest first; ``before`` is the id of the last entry already seen."""
    require(caller(request), Permission.VIEW)
    return {"entries": [described(entry) for entry in selectors.audit_entries(before=before, limit=limit)]}


def described(entry: AuditEntry) -> dict[str, Any]:
    return {
        "id": entry.pk,
        "at": int(entry.at.timestamp() * 1000),
        "user": entry.user,
        "action": entry.action,
        "topic": entry.topic,
        "channel": entry.channel,
        "outcome": entry.outcome,
        "results": entry.results,
        "remote_address": entry.remote_address,
    }
