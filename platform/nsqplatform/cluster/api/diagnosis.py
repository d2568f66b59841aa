"""The cause of a channel's backlog."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster.diagnosis.sentence import Cause
from nsqplatform.cluster.diagnosis.services import diagnosis_of

router = Router(tags=["cluster"])


class DiagnosisOut(Schema):
    cause: Cause
    text: str = Field(description="one sentence without a full stop")


@router.get(
    "diagnosis",
    auth=needs(Permission.VIEW),
    response={200: DiagnosisOut, 401: Message, 403: Message, 404: Message, 422: InvalidRequest, 503: Message},
)
def diagnosis(
    request: HttpRequest,
    topic: str = Query(max_length=300),
    channel: str = Query(max_length=300),
    time_zone: str = Query("UTC", max_length=64, description="of times in the text, such as Europe/Vienna"),
) -> DiagnosisOut:
    """One sentence about the cause of a channel's backlog: slow consumers, no consumers, or a pause."""
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise HttpError(422, f"time_zone: there is no time zone {time_zone}") from None
    found = diagnosis_of(topic, channel, zone)
    return DiagnosisOut(cause=found.cause, text=found.text)
