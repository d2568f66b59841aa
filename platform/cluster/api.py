"""The cluster's picture, and what an operator does to it."""

from __future__ import annotations

from typing import Any

import orjson
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from ninja import Router
from ninja.errors import HttpError

from accounts.auth import caller, needs
from accounts.roles import Permission
from accounts.schemas import Message
from cluster import selectors, services
from cluster.holders import address_of_node, holders
from cluster.notification import notify, notify_all, origin_of
from cluster.schemas import ActionIn, ActionOut, RewindIn, SnapshotOut, TombstoneIn

router = Router(tags=["cluster"])


@router.get("snapshot", auth=needs(Permission.VIEW), response={200: SnapshotOut, 401: Message, 503: Message})
def snapshot(request: HttpRequest) -> HttpResponse:
    """The whole picture, as of the collector's last beat."""
    picture = selectors.picture()
    if picture is None:
        raise HttpError(503, "there is no picture of the cluster yet: is the collector running?")
    # It has the schema's shape already, and may be megabytes.
    return HttpResponse(orjson.dumps(picture.snapshot), content_type="application/json")


@router.post(
    "actions",
    auth=needs(Permission.ACT),
    response={200: ActionOut, 401: Message, 403: Message, 404: Message, 422: Message, 502: Message},
)
def actions(request: HttpRequest, body: ActionIn) -> dict[str, Any]:
    """Pause, unpause, empty, delete or create a topic or channel, everywhere it is."""
    entry = services.act(
        user=caller(request),
        action=body.action,
        topic=body.topic,
        channel=body.channel,
        remote_address=request.META.get("REMOTE_ADDR", ""),
    )
    notify_all(origin_of(request), body.action, body.topic, body.channel)
    return {"outcome": entry.outcome, "results": entry.results}


@router.post(
    "rewinds",
    auth=needs(Permission.ACT),
    response={200: ActionOut, 401: Message, 403: Message, 404: Message, 422: Message, 502: Message},
)
def rewind(request: HttpRequest, body: RewindIn) -> dict[str, Any]:
    """Have a channel given again what it was given since then, on every node that still keeps it."""
    entry = services.rewind(
        user=caller(request),
        topic=body.topic,
        channel=body.channel,
        since=body.since,
        remote_address=request.META.get("REMOTE_ADDR", ""),
    )
    notify(origin_of(request), "rewind_channel", body.topic, body.channel)
    return {"outcome": entry.outcome, "results": entry.results}


@router.post(
    "tombstones",
    auth=needs(Permission.ACT),
    response={200: ActionOut, 401: Message, 403: Message, 404: Message, 422: Message, 502: Message},
)
def tombstone(request: HttpRequest, body: TombstoneIn) -> dict[str, Any]:
    """Take a topic off one node: consumers are no longer sent there, and the node deletes it."""
    known = selectors.cluster()
    entry = services.tombstone(
        user=caller(request),
        topic=body.topic,
        node=body.node,
        address=address_of_node(known, async_to_sync(holders)(known, body.topic), body.node),
        remote_address=request.META.get("REMOTE_ADDR", ""),
    )
    notify(origin_of(request), "tombstone_topic_producer", body.topic, node=body.node)
    return {"outcome": entry.outcome, "results": entry.results}
