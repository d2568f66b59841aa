"""nsqadmin's endpoints, called as scripts call them: through the web process's ASGI application, from any address."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
from asgiref.sync import sync_to_async

from tests.harness.waiting import DEADLINE_S


class NsqadminApi:
    """The application on an event loop of its own. ``peer`` is the address that a request seems to come from."""

    def __init__(self) -> None:
        from nsqplatform.accounts.forwarded import Forwarded
        from nsqplatform.clusters.asgi import OfCluster
        from nsqplatform.console.handler import SynchronousHandler
        from nsqplatform.nsqadmin.asgi import NsqadminEndpoints

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.application = Forwarded(OfCluster(NsqadminEndpoints(SynchronousHandler())))

    def request(
        self, method: str, path: str, body: Any = None, *, peer: str = "127.0.0.1", **headers: str
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.application, client=(peer, 51234))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                if isinstance(body, (bytes, str)):
                    return await client.request(method, path, content=body, headers=named)
                return await client.request(method, path, headers=named, **({} if body is None else {"json": body}))

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(90)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        return self.request("POST", path, body, **more)

    def delete(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        return self.request("DELETE", path, body, **more)

    def close(self) -> None:
        from django.db import connections

        asyncio.run_coroutine_threadsafe(sync_to_async(connections.close_all)(), self._loop).result(DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
