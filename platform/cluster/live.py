"""Telling every open browser something, from any process."""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

CLUSTER = "cluster"
"""The group of every websocket on ``/ws/cluster``."""


async def abroadcast(group: str, message: dict[str, Any]) -> None:
    """Send ``message``, as JSON text, to each websocket of ``group``.

    ``message["type"]`` is one of the types in docs/architecture.md, Websocket. Raises redis' ConnectionError.
    """
    event = {"type": "broadcast", "text": json.dumps(message, separators=(",", ":"))}
    if message["type"] == "delta":
        event |= {"base": message["base"], "version": message["version"]}
    await get_channel_layer().group_send(group, event)


def broadcast(group: str, message: dict[str, Any]) -> None:
    """:func:`abroadcast`, from code that is not on an event loop: views, tasks, commands."""
    async_to_sync(abroadcast)(group, message)
