"""Searching the cluster's consumers."""

from __future__ import annotations

from typing import Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster.clients.search import FoundClient, directory, matching

router = Router(tags=["cluster"])

Order = Literal[
    "topic",
    "node",
    "hostname",
    "remote_address",
    "user_agent",
    "ready_count",
    "in_flight_count",
    "finish_count",
    "requeue_count",
    "connected_s",
]


class UnansweredOut(Schema):
    node: str
    error: str


class ClientsOut(Schema):
    total: int = Field(description="clients of the whole cluster")
    found: int = Field(description="number of these that match")
    clients: list[FoundClient]
    unanswered: list[UnansweredOut] = Field(description="nodes that did not answer")


@router.get(
    "clients", auth=needs(Permission.VIEW), response={200: ClientsOut, 401: Message, 422: InvalidRequest, 503: Message}
)
def clients(
    request: HttpRequest,
    q: str = Query("", max_length=200),
    order: Order = "topic",
    descending: bool = False,
    limit: int = Query(100, ge=1, le=5000),
) -> ClientsOut:
    """Clients whose names, addresses, topic or channel contain every word of ``q``. The nodes are queried now."""
    known = directory().clients()
    found = matching(known.rows, q)
    found.sort(key=lambda row: (row[order], row["topic"], row["channel"], row["hostname"]), reverse=descending)
    return ClientsOut(
        total=len(known.rows),
        found=len(found),
        clients=found[:limit],
        unanswered=[UnansweredOut(node=node, error=error) for node, error in known.unanswered.items()],
    )
