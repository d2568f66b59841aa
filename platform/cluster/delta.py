"""The difference of two pictures, for those who look at one view of them."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from cluster.picture import EVERYTHING, KINDS, Picture, Row, Rows, View, columns, shares
from cluster.rows import Changes, Delta

NUMBERS = {
    "nodes": ("topic_count", "channel_count", "client_count", "depth", "publish_rate", "finish_rate"),
    "topics": (
        "depth",
        "backend_depth",
        "message_count",
        "message_bytes",
        "channel_count",
        "client_count",
        "in_flight_count",
        "publish_rate",
        "byte_rate",
        "oldest_age_ms",
    ),
    "channels": (
        "depth",
        "backend_depth",
        "in_flight_count",
        "deferred_count",
        "requeue_count",
        "timeout_count",
        "message_count",
        "client_count",
        "publish_rate",
        "finish_rate",
        "requeue_rate",
        "timeout_rate",
        "oldest_age_ms",
        "p50_ms",
        "p99_ms",
        "p50_range_ms",
        "p99_range_ms",
    ),
}
"""What may change without the row being told anew."""
WORDS = {
    "nodes": (
        "hostname",
        "broadcast_address",
        "tcp_port",
        "http_port",
        "version",
        "state",
        "error",
        "health",
        "start_time",
    ),
    "topics": ("name", "paused"),
    "channels": ("name", "paused"),
}
NUMBERS_OF, WORDS_OF = ({kind: itemgetter(*names) for kind, names in fields.items()} for fields in (NUMBERS, WORDS))
PLACE = itemgetter("node", "paused")


def delta(before: Picture, after: Picture, view: View = EVERYTHING) -> Delta:
    """What a browser that holds ``before`` needs to hold ``after``, as far as it looks.

    Whoever looks at everything is not told how the shares of single nodes change: they are half of all there is to
    tell, and no page shows them of more than one topic or node.
    """
    was, now = before.rows(view), after.rows(view)
    nodes, topics, channels = (changes(kind, was[kind], now[kind], with_shares=view != EVERYTHING) for kind in KINDS)
    return {
        "type": "delta",
        "version": after.version,
        "base": before.version,
        "taken_at": after.taken_at,
        "nodes": nodes,
        "topics": topics,
        "channels": channels,
    }


def changes(kind: str, before: Rows, after: Rows, *, with_shares: bool) -> Changes:
    """New rows, and those whose words changed, whole; of the others the columns in which any of them changed."""
    words, numbers = WORDS_OF[kind], NUMBERS_OF[kind]
    with_shares = with_shares and kind != "nodes"
    put: list[Row] = []
    keys: list[str] = []
    was: list[tuple[Any, ...]] = []
    now: list[tuple[Any, ...]] = []
    shared: list[Row] = []
    shares_changed = False
    for key, row in after.items():
        old = before.get(key)
        if old is None or words(old) != words(row) or (kind != "nodes" and places(old) != places(row)):
            put.append(row)
            continue
        old_numbers, new_numbers = numbers(old), numbers(row)
        differs = with_shares and old["nodes"] != row["nodes"]
        if differs or old_numbers != new_numbers:
            shares_changed = shares_changed or differs
            keys.append(key)
            was.append(old_numbers)
            now.append(new_numbers)
            shared.append(row)
    changed: dict[str, list[Any]] = {
        name: list(new)
        for name, old_column, new in zip(NUMBERS[kind], zip(*was, strict=True), zip(*now, strict=True), strict=False)
        if old_column != new
    }
    if shares_changed:
        changed["nodes"] = [shares(row) for row in shared]
    return {
        "put": columns(put),
        "set": {"keys": keys, **changed} if changed else {},
        "drop": [key for key in before if key not in after],
    }


def places(row: Row) -> list[Any]:
    """Which nodes hold it, and which of them paused it."""
    return [*map(PLACE, row["nodes"])]
