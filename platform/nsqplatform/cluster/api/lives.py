"""The life of one sampled message."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import AfterValidator, AwareDatetime, Field

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.ranges import check_range
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster.api.schemas import Name
from nsqplatform.cluster.messages.lives import ArchiveUnreadable, LifeEvent, message_life

router = Router(tags=["messages"])

DAY = timedelta(days=1)
LONGEST = timedelta(days=400)
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_SAMPLED_ID = re.compile("[0-9a-f]{16}")


def _sampled_id(text: str) -> str:
    if not _SAMPLED_ID.fullmatch(text.lower()):
        raise ValueError("an id is 16 hex digits")
    return text.lower()


SampledId = Annotated[str, AfterValidator(_sampled_id)]
"""The id of a message, in lower case."""


class LifeOut(Schema):
    topic: str
    message_id: str
    since: datetime
    until: datetime
    events: list[LifeEvent] = Field(description="in their order; none if the message was not sampled then")
    unreadable: list[str] = Field(
        description="damaged files, whose events are missing: the path of each in the archive, and the reason"
    )


@router.get(
    "messages/{id}/life",
    auth=needs(Permission.VIEW),
    response={200: LifeOut, 401: Message, 403: Message, 422: InvalidRequest, 503: Message},
)
def life(
    request: HttpRequest,
    id: SampledId,
    topic: Name,
    since: AwareDatetime | None = Query(
        None, alias="from", description="RFC 3339 with a zone, or Unix seconds; a day before `to` unless given"
    ),
    until: AwareDatetime | None = Query(None, alias="to", description="the same; now unless given"),
) -> LifeOut:
    """What happened to a sampled message: when, in which channel, at which attempt, and by whom.

    Nodes record it for one in n messages of a topic, if a policy has ``sample_lives``. The collector archives it within
    some ten seconds.
    """
    check_range(since, until, names=("from", "to"))
    end = until or datetime.now(UTC)
    for name, at in (("from", since), ("to", end)):
        if at is not None and not EARLIEST <= at <= LATEST:
            raise HttpError(422, f"{name}: {at} is not between 1970 and 2100")
    start = since or end - DAY
    if not start < end <= start + LONGEST:
        raise HttpError(422, f"from must be before to, and at most {LONGEST.days} days before it")
    try:
        events, unreadable = message_life(topic, id, start, end)
    except ArchiveUnreadable as error:
        raise HttpError(503, str(error)) from error
    return LifeOut(topic=topic, message_id=id, since=start, until=end, events=events, unreadable=unreadable)
