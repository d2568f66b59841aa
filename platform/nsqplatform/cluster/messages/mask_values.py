"""The fields of a mask in requests and definitions."""

from __future__ import annotations

from typing import Annotated, Literal

from ninja import Schema
from pydantic import ConfigDict, Field

from nsqplatform.accounts.schemas import Line

Path = Annotated[Line, Field(min_length=1, max_length=200)]
Paths = Annotated[list[Path], Field(min_length=1, max_length=50)]


class MaskValues(Schema):
    model_config = ConfigDict(extra="forbid")

    topic_pattern: Line = Field(min_length=1, max_length=64, description="a glob, as in operators' topic patterns")
    paths: Paths = Field(description="JSON paths (RFC 9535), such as $.card.number")
    visible_to: Literal["operator", "admin"] = Field("admin", description="the lowest role that sees the values")
