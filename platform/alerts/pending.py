"""What is beyond a threshold and does not fire yet: the collector keeps it in Redis, for the next one and the API."""

from __future__ import annotations

import time
from typing import Any, cast

import orjson

from alerts.models import Rule
from alerts.standing import GAP_S
from cluster import store

STANDINGS = "nsq:alerts:standings"
"""JSON, ``{"at", "pending"}``: when it was so, and by rule's id and picture's key when each went beyond its threshold;
in unix seconds."""


def pending(*, limit: int) -> dict[str, Any]:
    """PENDING of each, those first that fire next, and how many there are. What no collector has said anything of for
    so long that hold times begin anew is left out."""
    with store.connect() as redis:
        kept = cast(bytes | None, redis.get(STANDINGS))
    told: dict[str, Any] = orjson.loads(kept) if kept else {"at": 0.0, "pending": {}}
    if time.time() - told["at"] > GAP_S:
        return {"total": 0, "pending": []}
    rules = Rule.objects.filter(enabled=True).in_bulk([int(number) for number in told["pending"]])
    found = [
        (began + rules[int(number)].hold_s, key, rules[int(number)], began)
        for number, keys in told["pending"].items()
        if int(number) in rules
        for key, began in keys.items()
    ]
    found.sort(key=lambda each: each[:2])
    return {
        "total": len(found),
        "pending": [_detail(rule, key, began, fires) for fires, key, rule, began in found[:limit]],
    }


def _detail(rule: Rule, key: str, began: float, fires: float) -> dict[str, Any]:
    # The picture's keys: a node's id, a topic's name, `topic/channel`; no name holds a slash.
    topic, _, channel = ("", "", "") if rule.scope == "node" else key.partition("/")
    copied = ("severity", "scope", "metric", "comparison", "threshold", "hold_s")
    return {name: getattr(rule, name) for name in copied} | {
        "rule_id": rule.pk,
        "rule": rule.name,
        "unit": rule.watched.unit,
        "topic": topic,
        "channel": channel,
        "node": key if rule.scope == "node" else "",
        "began_at": int(began * 1000),
        "fires_at": int(fires * 1000),
    }
