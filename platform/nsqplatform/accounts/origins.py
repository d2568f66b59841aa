"""Restricts websockets to pages that this platform served; pages of other sites are refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from channels.db import database_sync_to_async
from channels.security.websocket import OriginValidator
from django.conf import settings

from nsqplatform.accounts import audit


class OwnOrigin(OriginValidator):
    """Channels' check of ``Origin`` against ALLOWED_HOSTS, which also records refusals."""

    def __init__(self, application: Any) -> None:
        super().__init__(application, settings.ALLOWED_HOSTS)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        origin = dict(scope["headers"]).get(b"origin", b"").decode("latin-1")
        if not self.valid_origin(urlparse(origin)):
            await database_sync_to_async(audit.refused)(
                user=None,
                subject=f"websocket {scope['path']}",
                detail=f"another site: {origin or 'no Origin header'}",
                remote_address=(scope.get("client") or [""])[0],
            )
        return await super().__call__(scope, receive, send)
