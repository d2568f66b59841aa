"""Checks the host to which a connection was sent, and the site of the page that sent it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from nsqplatform.accounts import audit
from nsqplatform.accounts.connection import Receive, Scope, Send, bearer, header
from nsqplatform.accounts.forwarded import client_of_scope

_DEFAULT_PORTS = {"http": 80, "https": 443}


class OwnOrigin:
    """Restricts websockets to pages that this platform served: ``Origin`` is the requested host, one of ALLOWED_HOSTS.

    A request with a bearer token needs no origin: a browser never sends one by itself. Refusals are recorded.
    """

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        if bearer(scope) is not None or (is_own_host(scope) and is_own_page(scope)):
            return await self.application(scope, receive, send)
        await database_sync_to_async(audit.refused)(
            user=None,
            subject=f"websocket {scope['path']}",
            detail=f"another site: {header(scope, b'origin') or 'no Origin header'}",
            remote_address=client_of_scope(scope),
        )
        return await WebsocketDenier()(scope, receive, send)


def is_own_host(scope: Scope) -> bool:
    """Whether the connection was sent to one of ALLOWED_HOSTS, or names no host, as HTTP/1.0 permits.

    Otherwise a site whose name resolves to this server could send requests from its pages as if they were ours.
    """
    host = header(scope, b"host")
    return not host or validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS)


def is_own_page(scope: Scope) -> bool:
    """Whether ``Origin`` has the host and port that the connection was sent to; false without the header.

    A cookie is sent to all ports of a host, so without the port, the page of any other service on this host could send
    requests as the user.
    """
    try:
        of_page = urlsplit(header(scope, b"origin"))
        requested = urlsplit(f"//{header(scope, b'host')}")
        default = _DEFAULT_PORTS.get(of_page.scheme)
        same = (of_page.hostname, of_page.port or default) == (requested.hostname, requested.port or default)
    except ValueError:  # not a port
        return False
    return bool(of_page.hostname) and same
