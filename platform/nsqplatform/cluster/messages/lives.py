"""The lives of sampled messages, from the archive."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
from typing_extensions import TypedDict

from nsqanalytics.life_events import life_of
from nsqplatform.clusters import current


class ArchiveUnreadable(Exception):
    """The archive cannot be read; the text has the reason."""


class LifeEvent(TypedDict):
    """An event of a message. ``at_us`` is in Unix microseconds, by the clock of the node. ``channel`` is null for what
    happened in the topic itself; the last four are null if there is nothing to say."""

    at_us: int
    node: str
    channel: str | None
    event: str
    attempts: int
    reason: str | None
    delay_ms: int | None
    client_id: str | None
    client_address: str | None


def message_life(topic: str, message_id: str, since: datetime, until: datetime) -> tuple[list[LifeEvent], list[str]]:
    """The events of a message in [since, until), in their order, and the files that could not be read, with reasons.

    There are no events if it was not sampled, or is unknown. Raises ArchiveUnreadable.
    """
    try:
        rows, unreadable = life_of(current.archive(), topic, message_id, since, until)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveUnreadable(f"the archive cannot be read: {str(error).splitlines()[0]}") from error
    rows = rows.append_column("at_us", rows["at"].cast(pa.int64()))
    found: list[LifeEvent] = rows.select(list(LifeEvent.__annotations__)).to_pylist()
    return found, unreadable
