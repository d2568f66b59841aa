"""Restricts websockets to pages that this platform served; pages of other sites are refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from channels.security.websocket import OriginValidator, WebsocketDenier
from django.conf import settings

from nsqplatform.accounts import audit
from nsqplatform.accounts.tokens import bearer_token

_DEFAULT_PORTS = {"http": 80, "https": 443}


class OwnOrigin(OriginValidator):
    """Channels' check of ``Origin`` against ALLOWED_HOSTS; its host and port must also be those of the request.

    A cookie is sent to all ports of a host, so without the port, the page of any other service on this host could open
    a websocket. A request with a bearer token needs no origin: a browser never sends one by itself. Refusals are
    recorded.
    """

    def __init__(self, application: Any) -> None:
        super().__init__(application, settings.ALLOWED_HOSTS)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin", "")
        has_token = bearer_token(headers.get(b"authorization", "")) is not None
        if has_token or self._is_own(origin, headers.get(b"host", "")):
            return await self.application(scope, receive, send)
        await database_sync_to_async(audit.refused)(
            user=None,
            subject=f"websocket {scope['path']}",
            detail=f"another site: {origin or 'no Origin header'}",
            remote_address=(scope.get("client") or [""])[0],
        )
        return await WebsocketDenier()(scope, receive, send)

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether ``origin`` is an allowed host, and the one that the request was sent to."""
        try:
            of_page = urlsplit(origin)
            requested = urlsplit(f"//{host}")
            default = _DEFAULT_PORTS.get(of_page.scheme)
            same = (of_page.hostname, of_page.port or default) == (requested.hostname, requested.port or default)
        except ValueError:  # not a port
            return False
        return bool(of_page.hostname) and same and self.valid_origin(of_page)
