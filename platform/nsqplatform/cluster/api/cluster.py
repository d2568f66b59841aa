"""The snapshot of the cluster, and the actions of operators."""

from __future__ import annotations

import time

import orjson
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.decorators import decorate_view
from ninja.errors import HttpError

from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster import selectors
from nsqplatform.cluster.actions import services
from nsqplatform.cluster.actions.notification import notify, notify_all, origin_of
from nsqplatform.cluster.actions.topic_nodes import address_of_node, node_addresses
from nsqplatform.cluster.api.schemas import (
    ActionIn,
    ActionOut,
    RegistryOut,
    RewindIn,
    RewindPreviewOut,
    SnapshotOut,
    TombstoneIn,
)
from nsqplatform.compression import compressed

router = Router(tags=["cluster"])


@router.get("snapshot", auth=needs(Permission.VIEW), response={200: SnapshotOut, 401: Message, 503: Message})
@decorate_view(compressed)  # megabytes, without secrets that a compressed length could reveal
def snapshot(request: HttpRequest) -> HttpResponse:
    """The whole snapshot, as of the collector's last poll."""
    newest = selectors.snapshot()
    if newest is None:
        raise HttpError(503, "there is no snapshot of the cluster yet: is the collector running?")
    # Not validated again: it has the schema's shape, and can be megabytes.
    return HttpResponse(orjson.dumps(newest.rows), content_type="application/json")


@router.get("registries", auth=needs(Permission.VIEW), response={200: list[RegistryOut], 401: Message, 503: Message})
def registries(request: HttpRequest) -> list[RegistryOut]:
    """The registries that the collector queries, with their health."""
    return [RegistryOut(address=address, error=error) for address, error in sorted(selectors.registries().items())]


@router.post(
    "actions",
    auth=needs(Permission.ACT),
    response={200: ActionOut, 401: Message, 403: Message, 404: Message, 422: InvalidRequest, 502: Message},
)
def actions(request: HttpRequest, body: ActionIn) -> ActionOut:
    """Pause, unpause, empty, delete or create a topic or channel on every node that has it."""
    entry = services.act(
        user=caller(request),
        action=body.action,
        topic=body.topic,
        channel=body.channel,
        remote_address=remote_address(request),
    )
    notify_all(origin_of(request), body.action, body.topic, body.channel)
    return ActionOut.model_validate({"outcome": entry.outcome, "results": entry.results})


@router.get(
    "rewinds",
    auth=needs(Permission.ACT),
    response={200: RewindPreviewOut, 401: Message, 403: Message, 404: Message, 422: InvalidRequest, 502: Message},
)
def preview_rewind(request: HttpRequest, rewound: Query[RewindIn]) -> RewindPreviewOut:
    """Count the messages that a rewind to that time would redeliver on each node; nothing is changed."""
    counted_at = int(time.time() * 1000)
    parts = services.preview_rewind(
        user=caller(request), topic=rewound.topic, channel=rewound.channel, since=rewound.since
    )
    return RewindPreviewOut(counted_at=counted_at, nodes=parts)


@router.post(
    "rewinds",
    auth=needs(Permission.ACT),
    response={200: ActionOut, 401: Message, 403: Message, 404: Message, 422: InvalidRequest, 502: Message},
)
def rewind(request: HttpRequest, body: RewindIn) -> ActionOut:
    """Redeliver every message accepted since that time, on every node that still stores it."""
    entry = services.rewind(
        user=caller(request),
        topic=body.topic,
        channel=body.channel,
        since=body.since,
        remote_address=remote_address(request),
    )
    notify(origin_of(request), "rewind_channel", body.topic, body.channel)
    return ActionOut.model_validate({"outcome": entry.outcome, "results": entry.results})


@router.post(
    "tombstones",
    auth=needs(Permission.ACT),
    response={200: ActionOut, 401: Message, 403: Message, 404: Message, 422: InvalidRequest, 502: Message},
)
def tombstone(request: HttpRequest, body: TombstoneIn) -> ActionOut:
    """Remove a topic from one node: lookups no longer list the node for it, and the node deletes it."""
    known = selectors.cluster()
    entry = services.tombstone(
        user=caller(request),
        topic=body.topic,
        node=body.node,
        address=address_of_node(known, async_to_sync(node_addresses)(known, body.topic), body.node),
        remote_address=remote_address(request),
    )
    notify(origin_of(request), "tombstone_topic_producer", body.topic, node=body.node)
    return ActionOut.model_validate({"outcome": entry.outcome, "results": entry.results})
