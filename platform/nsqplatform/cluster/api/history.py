"""The last hour of one series."""

from __future__ import annotations

import time

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster import store
from nsqplatform.cluster.history import records
from nsqwire.figures import Scope

router = Router(tags=["cluster"])


class HistoryOut(Schema):
    step_s: int = Field(description="seconds from one record to the next")
    times: list[int] = Field(description="unix seconds, oldest first; empty for an unknown series")
    metrics: dict[str, list[float | None]] = Field(description="a column for each metric; null where it is unknown")


@router.get(
    "history",
    auth=needs(Permission.VIEW),
    response={200: HistoryOut, 401: Message, 403: Message, 422: InvalidRequest, 503: Message},
)
def last_hour(
    request: HttpRequest,
    scope: Scope,
    topic: str = Query("", max_length=300),
    channel: str = Query("", max_length=300),
    node: str = Query("", max_length=300),
) -> HistoryOut:
    """The records of the last hour: rates are means over ``step_s``, other figures as they were at that second."""
    needed = {"topic": (topic,), "channel": (topic, channel), "node": (node,), "cluster": ()}[scope]
    if not all(needed):
        raise HttpError(422, f"a history of scope {scope} needs {'topic and channel' if scope == 'channel' else scope}")
    with store.connect() as redis:
        ring = redis.get(records.key_of(scope, "/".join(needed)))
    assert ring is None or isinstance(ring, bytes)
    times, metrics = records.read(scope, ring or b"", int(time.time()))
    return HistoryOut(step_s=records.STEP_S, times=times, metrics=metrics)
