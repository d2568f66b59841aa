"""Bodies of the marks' API. Times are Unix milliseconds."""

from __future__ import annotations

from ninja import Schema
from pydantic import ConfigDict, Field

from nsqplatform.accounts.schemas import Body, Line
from nsqplatform.marks.models import EVERYTHING, Mark
from nsqplatform.unix_time import LATEST_MS, unix_ms
from nsqwire.units import Milliseconds


class MarkIn(Body):
    model_config = ConfigDict(extra="forbid")

    text: Line = Field(min_length=1, max_length=200, description="what happened, such as deploy 1.2")
    at: Milliseconds | None = Field(None, ge=0, le=LATEST_MS, description="Unix milliseconds; default: now")
    topic_pattern: Line = Field(
        EVERYTHING, min_length=1, max_length=64, description="glob of the topics whose charts it is on; default: all"
    )


class MarkOut(Schema):
    id: int
    at: Milliseconds = Field(description="Unix milliseconds")
    text: str
    topic_pattern: str
    created_by: str


class MarksOut(Schema):
    marks: list[MarkOut] = Field(description="newest first")


def mark_detail(mark: Mark) -> MarkOut:
    return MarkOut(
        id=mark.pk,
        at=unix_ms(mark.at),
        text=mark.text,
        topic_pattern=mark.topic_pattern,
        created_by=mark.created_by,
    )
