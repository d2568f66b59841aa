"""The definitions file: TOML with a version and a list of tables for each section.

::

    version = 1

    [[topics]]
    name = "orders.eu"

    [[topics.channels]]
    name = "billing"
    paused = true

    [[rules]]
    name = "Backlog"
    scope = "channel"
    metric = "depth"
    threshold = 1000.0

An omitted value is the default. An import does not change a section that the file omits; an empty section, in contrast,
defines no entries. Sections and entries are sorted, so that equal definitions are equal files.
"""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from typing import Annotated, Literal

import tomli_w
from ninja import Schema
from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, JsonValue, ValidationError

from nsqplatform.accounts.schemas import ClusterRoles, Line, Patterns, RoleName
from nsqplatform.alerts.schemas import NotifierIn, RuleIn
from nsqplatform.cluster.messages.mask_values import MaskValues, Path
from nsqplatform.clusters.declaration import DEFAULT
from nsqplatform.definitions.errors import FieldFault, InvalidDefinitions
from nsqplatform.objectives.schemas import ObjectiveIn
from nsqplatform.reports.schemas import ScheduleIn
from nsqplatform.saved_views.schemas import Address
from nsqwire.names import is_valid_name

VERSION = 1
MAX_ENTRIES = 100_000


class Definition(Schema):
    model_config = ConfigDict(extra="forbid")


def _persistent_name(name: str) -> str:
    if not is_valid_name(name):
        raise ValueError("a name is 1 to 64 of the characters .a-zA-Z0-9_-")
    if name.endswith("#ephemeral"):
        raise ValueError("an ephemeral topic or channel ends with its last client, and cannot be defined")
    return name


Name = Annotated[str, AfterValidator(_persistent_name)]


def _whole_milliseconds(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC).replace(microsecond=at.microsecond // 1000 * 1000)
    except OverflowError:
        raise ValueError("this time is before the year 1 or after 9999 in UTC") from None


Moment = Annotated[AwareDatetime, AfterValidator(_whole_milliseconds)]


class ChannelDefinition(Definition):
    name: Name
    paused: bool = False


class TopicDefinition(Definition):
    name: Name
    paused: bool = False
    channels: list[ChannelDefinition] = Field([], max_length=MAX_ENTRIES)


class PolicyDefinition(Definition):
    topic_pattern: Line = Field(min_length=1, max_length=100)
    channel_pattern: Line = Field("*", min_length=1, max_length=100)
    policy: dict[str, JsonValue] = Field(max_length=100, description="keys and values, which the nodes check")


class SilenceDefinition(Definition):
    """A silence has no name: a silence with different values is a different silence."""

    rule: Line = Field("", max_length=100, description="name of a rule; empty: any rule")
    topic_pattern: Line = Field("", max_length=64)
    channel_pattern: Line = Field("", max_length=64)
    node_pattern: Line = Field("", max_length=300)
    objective_pattern: Line = Field("", max_length=100)
    within: Patterns = Field([], description="topic patterns of an operator, which limit it; empty: no limit")
    reason: Line = Field(min_length=1, max_length=500)
    ends_at: Moment


class MaskDefinition(MaskValues):
    """All masks of one topic pattern and role as one entry, which can have more paths than a single mask."""

    paths: list[Path] = Field(min_length=1, max_length=MAX_ENTRIES)


class ViewDefinition(Definition):
    name: Line = Field(min_length=1, max_length=100)
    address: Address = Field(max_length=2000, description="path and query of a page, such as /topics?q=orders")


class PersonDefinition(Definition):
    username: Line = Field(min_length=1, max_length=150)
    role: RoleName
    topic_patterns: Patterns = []
    everywhere: bool = True
    cluster_roles: ClusterRoles = {}
    is_active: bool = True


class Document(Definition):
    """All sections, in the order of the file. None: the file omits the section."""

    version: Literal[1]
    cluster: Line = Field(DEFAULT, max_length=32, description="the cluster of all sections but people")
    topics: list[TopicDefinition] | None = Field(None, max_length=MAX_ENTRIES)
    policies: list[PolicyDefinition] | None = Field(None, max_length=MAX_ENTRIES)
    notifiers: list[NotifierIn] | None = Field(None, max_length=MAX_ENTRIES)
    objectives: list[ObjectiveIn] | None = Field(None, max_length=MAX_ENTRIES)
    rules: list[RuleIn] | None = Field(None, max_length=MAX_ENTRIES)
    silences: list[SilenceDefinition] | None = Field(None, max_length=MAX_ENTRIES)
    schedules: list[ScheduleIn] | None = Field(None, max_length=MAX_ENTRIES)
    masks: list[MaskDefinition] | None = Field(None, max_length=MAX_ENTRIES)
    views: list[ViewDefinition] | None = Field(None, max_length=MAX_ENTRIES)
    people: list[PersonDefinition] | None = Field(None, max_length=MAX_ENTRIES)


SECTIONS: tuple[str, ...] = tuple(name for name in Document.model_fields if name not in ("version", "cluster"))


def to_toml(document: Document) -> str:
    """The document as TOML."""
    values = {"version": document.version} | document.model_dump(exclude_defaults=True)
    return tomli_w.dumps(values)


def from_toml(text: str) -> Document:
    """Parse a file's text. Raises InvalidDefinitions, which names each invalid value by its path."""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number with thousands of digits
        raise InvalidDefinitions([FieldFault("", f"this is not TOML: {error}")]) from None
    if values.get("version") != VERSION:
        raise InvalidDefinitions([FieldFault("version", f"this platform reads definitions of version {VERSION}")])
    try:
        return Document.model_validate(values)
    except ValidationError as error:
        faults = [
            FieldFault(".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, "))
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise InvalidDefinitions(faults) from None
