"""The paths of the clusters: pages, API and websockets below ``/c/NAME`` are those of the cluster NAME."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from nsqplatform.clusters import current
from nsqplatform.clusters.declaration import DEFAULT

PREFIX = "/c/"


class OfCluster:
    """Sets the current cluster to the one that the path names, and removes its name from the path. Other paths are
    those of the default cluster."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        base: str = settings.NSQADMIN.base
        path: str = scope.get("path", "")
        if scope["type"] not in ("http", "websocket") or not path.startswith(base + PREFIX):
            with current.entered(DEFAULT):
                await self.application(scope, receive, send)
            return
        cluster, _, rest = path.removeprefix(base + PREFIX).partition("/")
        if cluster == DEFAULT or cluster not in current.names():
            await _refuse(scope["type"], receive, send)
            return
        inner = {**scope, "path": f"{base}/{rest}"}
        if scope.get("raw_path"):
            inner["raw_path"] = scope["raw_path"].replace(f"{PREFIX}{cluster}".encode(), b"", 1) or b"/"
        with current.entered(cluster):
            await self.application(inner, receive, send)


async def _refuse(kind: str, receive: Any, send: Any) -> None:
    if kind == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4404})
        return
    headers = [(b"Content-Type", b"application/json; charset=utf-8"), (b"X-Content-Type-Options", b"nosniff")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"message":"NOT_FOUND"}'})
