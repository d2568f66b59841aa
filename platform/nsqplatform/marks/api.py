"""``/api/v1/marks``: marks on charts, posted by people and their CI."""

from __future__ import annotations

from itertools import islice

from django.http import HttpRequest
from ninja import Query, Router, Status

from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.ranges import check_range
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.marks import services
from nsqplatform.marks.schemas import MarkIn, MarkOut, MarksOut, mark_detail
from nsqplatform.unix_time import LATEST_MS, from_unix_ms
from nsqwire.units import Milliseconds

router = Router(tags=["marks"])
REFUSALS = {401: Message, 403: Message, 422: InvalidRequest}


@router.get("", auth=needs(Permission.VIEW), response={200: MarksOut, **REFUSALS})
def marks(
    request: HttpRequest,
    since: Milliseconds = Query(0, ge=0, le=LATEST_MS, description="Unix milliseconds"),
    until: Milliseconds = Query(LATEST_MS, ge=0, le=LATEST_MS, description="Unix milliseconds, not included"),
    topic: str = Query("", max_length=300, description="only marks of this topic"),
    limit: int = Query(100, ge=1, le=500),
) -> MarksOut:
    """Marks, the newest first."""
    check_range(since, until)
    found = services.marks(from_unix_ms(since), from_unix_ms(until), topic=topic)
    return MarksOut(marks=[mark_detail(mark) for mark in islice(found, limit)])


@router.post("", auth=needs(Permission.MARK), response={201: MarkOut, **REFUSALS})
def post_mark(request: HttpRequest, body: MarkIn) -> Status[MarkOut]:
    """Mark a time on the charts of the cluster and of matching topics, such as that of a deployment."""
    mark = services.post(
        text=body.text,
        at=None if body.at is None else from_unix_ms(body.at),
        topic_pattern=body.topic_pattern,
        by=caller(request),
        remote_address=remote_address(request),
    )
    return Status(201, mark_detail(mark))


@router.delete("{int:mark_id}", auth=needs(Permission.MARK), response={204: None, 404: Message, **REFUSALS})
def delete_mark(request: HttpRequest, mark_id: int) -> Status[None]:
    """Delete a mark."""
    services.delete(mark_id=mark_id, by=caller(request), remote_address=remote_address(request))
    return Status(204, None)
