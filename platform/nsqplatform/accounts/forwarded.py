"""The client's address behind a proxy: ``X-Forwarded-For``, which is trusted from ``--trusted-proxy-cidr`` only."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from django.conf import settings
from django.http import HttpRequest

from nsqplatform.accounts.connection import Application, Receive, Scope, Send
from nsqplatform.accounts.networks import Network, within

HEADER = b"x-forwarded-for"
_WITH_PORT = re.compile(r"\[([^\]]+)\](?::\d+)?|([0-9.]+):\d+")


class Forwarded:
    """Sets ``scope["client"]`` to the client behind trusted proxies, for audit trail, log, sessions and limits.

    Whether a user header is trusted depends on the connection's own address, ``peer_of``.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (connected := scope.get("client")):
            peer = connected[0]
            values = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == HEADER]
            client = client_of(peer, values, settings.NSQADMIN.proxy_networks) if values else peer
            scope = scope.copy()
            scope["peer"] = peer
            if client != peer:
                scope["client"] = (client, 0)
        await self.application(scope, receive, send)


def client_of(peer: str, values: Iterable[str], trusted: Sequence[Network]) -> str:
    """The client's address: the first one, from ``peer`` leftwards through the header, that is not a trusted proxy.

    If all are trusted, it is the leftmost; if an address cannot be parsed, the one to its right. ``values`` are the
    values of the header. Each proxy appends the address of its client, so the client may have written anything to the
    left of the result, and it is not trusted.
    """
    client = peer
    for hop in reversed([hop.strip() for value in values for hop in value.split(",")]):
        if not within(client, trusted):
            break
        found = _WITH_PORT.fullmatch(hop)
        address = (found[1] or found[2]) if found else hop
        try:
            ipaddress.ip_address(address)
        except ValueError:
            break
        client = address
    return client


def client_of_scope(scope: Scope) -> str:
    """The client's IP address; empty for a connection through a Unix socket."""
    client = scope.get("client")
    return client[0] if client else ""


def peer_of_scope(scope: Scope) -> str:
    """The IP address of the connection itself, regardless of headers."""
    return scope.get("peer") or client_of_scope(scope)


def peer_of_request(request: HttpRequest) -> str:
    """As peer_of_scope, for a Django request."""
    scope: Scope | None = getattr(request, "scope", None)
    return peer_of_scope(scope) if scope is not None else str(request.META.get("REMOTE_ADDR", ""))
