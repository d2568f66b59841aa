"""Request and response bodies of the cluster API. Their rows are declared in :mod:`cluster.snapshots.rows`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from ninja import Schema
from pydantic import AfterValidator, Field, PastDatetime, field_validator

from nsqcluster import Action, Result
from nsqplatform.cluster.actions.services import RewindPart
from nsqplatform.cluster.snapshots.rows import ChannelRow, NodeRow, TopicRow
from nsqwire.names import is_valid_name
from nsqwire.units import Milliseconds


def _valid_name(name: str) -> str:
    if not is_valid_name(name):
        raise ValueError("a name is 1 to 64 of the characters .a-zA-Z0-9_-, and may end in #ephemeral")
    return name


Name = Annotated[str, AfterValidator(_valid_name)]


class SnapshotOut(Schema):
    version: int
    taken_at: Milliseconds = Field(description="Unix milliseconds")
    nodes: list[NodeRow]
    topics: list[TopicRow]
    channels: list[ChannelRow]


class RegistryOut(Schema):
    address: str
    error: str | None = Field(description="null if it answered the last query")


class ActionIn(Schema):
    action: Action
    topic: Name
    channel: Name | None = None


class TombstoneIn(Schema):
    topic: Name
    node: str = Field(max_length=300, description="a node's id")


class RewindIn(Schema):
    topic: Name
    channel: Name
    since: PastDatetime = Field(description="with its zone; messages published since then are delivered again")

    @field_validator("since")
    @classmethod
    def _has_zone(cls, since: datetime) -> datetime:
        if since.tzinfo is None:
            raise ValueError("the time needs its zone, such as Z or +02:00")
        return since


class ActionOut(Schema):
    outcome: Literal["done", "partial", "failed"]
    results: list[Result]


class RewindPreviewOut(Schema):
    counted_at: Milliseconds = Field(description="Unix milliseconds")
    nodes: list[RewindPart]
