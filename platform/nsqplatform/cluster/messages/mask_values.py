"""The fields of a mask in requests and definitions."""

from __future__ import annotations

from typing import Annotated, Literal

from ninja import Schema
from pydantic import AfterValidator, ConfigDict, Field

from nsqplatform.accounts.schemas import Line
from nsqwire.headers import MAX_HEADERS, is_header_name

Path = Annotated[Line, Field(min_length=1, max_length=200)]
Paths = Annotated[list[Path], Field(min_length=1, max_length=50)]


def _header(name: str) -> str:
    if not is_header_name(name):
        raise ValueError(f"{name!r} is not the name of a header: 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'")
    return name.lower()


HeaderName = Annotated[str, AfterValidator(_header)]
HeaderNames = Annotated[list[HeaderName], Field(max_length=MAX_HEADERS)]


class MaskValues(Schema):
    model_config = ConfigDict(extra="forbid")

    topic_pattern: Line = Field(min_length=1, max_length=64, description="a glob, as in operators' topic patterns")
    paths: Paths = Field(description="JSON paths (RFC 9535), such as $.card.number")
    visible_to: Literal["operator", "admin"] = Field("admin", description="the lowest role that sees the values")
    visible_headers: HeaderNames = Field(
        [],
        description="headers whose values all who may read messages see; all others are hidden like the paths",
    )
