"""What the collector knows of the objectives beside their counts, in Redis."""

from __future__ import annotations

from typing import TypedDict, cast

import orjson

from nsqplatform.cluster import store
from nsqplatform.clusters.current import Key
from nsqwire.units import Seconds

STATUS = Key("objectives:status")
"""JSON of Status."""


class Status(TypedDict):
    """``at``: Unix seconds. ``uncounted``: by an objective's id, the nodes with matching channels that have no
    histogram, so that their messages are not counted."""

    at: Seconds
    uncounted: dict[str, list[str]]


def status() -> Status:
    """What a collector has stored in the last hour; otherwise empty."""
    with store.connect() as redis:
        kept = cast(bytes | None, redis.get(STATUS()))
    return orjson.loads(kept) if kept else {"at": 0.0, "uncounted": {}}
