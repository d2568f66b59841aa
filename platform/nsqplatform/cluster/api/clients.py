"""Searching the cluster's consumers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster.clients.search import Clients, FoundClient, ask_first, directory, matching

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
FIRST_LIMIT = 100
"""Up to this many clients, in the order of topics, only the nodes of the first topics are queried."""


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
    # A page requests some clients before all. Of a large cluster, those are known long before all nodes have answered.
    is_first = q == "" and order == "topic" and not descending and limit <= FIRST_LIMIT
    if is_first and directory().kept is None and (first := ask_first(limit)) is not None:
        return answered(
            first.clients, _ordered(first.clients.rows, order, descending)[:limit], first.total, first.total
        )
    known = directory().clients()
    found = _ordered(matching(known.rows, q), order, descending)
    return answered(known, found[:limit], len(found), len(known.rows))


def answered(clients: Clients, rows: list[FoundClient], found: int, total: int) -> ClientsOut:
    unanswered = [UnansweredOut(node=node, error=error) for node, error in clients.unanswered.items()]
    return ClientsOut(total=total, found=found, clients=rows, unanswered=unanswered)


def _ordered(rows: Iterable[FoundClient], order: Order, descending: bool) -> list[FoundClient]:
    return sorted(rows, key=lambda row: (row[order], row["topic"], row["channel"], row["hostname"]), reverse=descending)
