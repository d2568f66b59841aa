"""The last hour of one series."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from accounts.auth import needs
from accounts.roles import Permission
from accounts.schemas import Message
from cluster import history, store
from cluster.history import Scope

router = Router(tags=["cluster"])


class HistoryOut(Schema):
    step_s: int = Field(description="seconds from one record to the next")
    times: list[int] = Field(description="unix seconds, oldest first; empty for what nobody has seen")
    metrics: dict[str, list[float | None]] = Field(description="a column for each metric; null where it was not known")


@router.get(
    "history",
    auth=needs(Permission.VIEW),
    response={200: HistoryOut, 401: Message, 403: Message, 422: Message, 503: Message},
)
def last_hour(
    request: HttpRequest,
    scope: Scope,
    topic: str = Query("", max_length=300),
    channel: str = Query("", max_length=300),
    node: str = Query("", max_length=300),
) -> dict[str, Any]:
    """What the collector kept: rates as means over ``step_s``, all else as it was at that second."""
    needed = {"topic": (topic,), "channel": (topic, channel), "node": (node,), "cluster": ()}[scope]
    if not all(needed):
        raise HttpError(422, f"a history of scope {scope} needs {'topic and channel' if scope == 'channel' else scope}")
    with store.connect() as redis:
        ring = redis.get(history.key_of(scope, "/".join(needed)))
    assert ring is None or isinstance(ring, bytes)
    times, metrics = history.read(scope, ring or b"", int(time.time()))
    return {"step_s": history.STEP_S, "times": times, "metrics": metrics}
