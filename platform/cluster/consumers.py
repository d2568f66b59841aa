"""The websocket ``/ws/cluster``."""

from __future__ import annotations

from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.urls import path

from cluster.live import CLUSTER


class ClusterConsumer(AsyncWebsocketConsumer):
    """One browser."""

    async def connect(self) -> None:
        if not self.scope["user"].is_authenticated:
            await self.close()
            return
        await self.channel_layer.group_add(CLUSTER, self.channel_name)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(CLUSTER, self.channel_name)

    async def broadcast(self, event: dict[str, Any]) -> None:
        await self.send(text_data=event["text"])


websocket_urls = [path("ws/cluster", ClusterConsumer.as_asgi())]
