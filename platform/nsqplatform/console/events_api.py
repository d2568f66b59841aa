"""The events of a window over HTTP."""

from __future__ import annotations

import time

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.ranges import check_range
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.console.events import MAX_EVENTS, Kind, Subject, events
from nsqplatform.unix_time import LATEST_MS, from_unix_ms
from nsqwire.figures import Scope
from nsqwire.units import Milliseconds

router = Router(tags=["cluster"])
HOUR_MS = 3_600_000


class EventOut(Schema):
    at: Milliseconds = Field(description="Unix milliseconds")
    kind: Kind
    detail: str = Field(
        description="the topic and channel of an action, the rule of an alert, the title and state of a report, "
        "the error of a node, the text of a mark"
    )
    by: str = Field(description="who did it, or posted the mark; empty for alerts and nodes")
    topic: str
    channel: str
    node: str
    id: int | None = Field(description="of the alert, run or mark")


class EventsOut(Schema):
    events: list[EventOut] = Field(description=f"oldest first; the newest {MAX_EVENTS} if there are more")


@router.get(
    "events",
    auth=needs(Permission.VIEW),
    response={200: EventsOut, 401: Message, 403: Message, 422: InvalidRequest, 503: Message},
)
def events_of(
    request: HttpRequest,
    scope: Scope = "cluster",
    topic: str = Query("", max_length=300),
    channel: str = Query("", max_length=300),
    node: str = Query("", max_length=300),
    since: Milliseconds | None = Query(
        None, ge=0, le=LATEST_MS, description="Unix milliseconds; default: an hour before until"
    ),
    until: Milliseconds | None = Query(
        None, ge=0, le=LATEST_MS, description="Unix milliseconds, not included; default: now"
    ),
) -> EventsOut:
    """Actions of users (paused, emptied, rewound, deleted, …), alerts that fired, report runs, nodes, marks."""
    needed = {"topic": (topic,), "channel": (topic, channel), "node": (node,), "cluster": ()}[scope]
    if not all(needed):
        raise HttpError(422, f"events of scope {scope} need {'topic and channel' if scope == 'channel' else scope}")
    check_range(since, until)
    until = int(time.time() * 1000) + 1 if until is None else until
    since = max(0, until - HOUR_MS) if since is None else since
    subject = Subject(node=node) if scope == "node" else Subject(*needed)
    found = events(subject, from_unix_ms(since), from_unix_ms(until))
    return EventsOut(events=[EventOut(**event._asdict()) for event in found])
