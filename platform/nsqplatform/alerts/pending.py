"""Pending alerts: beyond the threshold for less than the hold time. The collector stores them in Redis."""

from __future__ import annotations

import time
from typing import TypedDict, cast

import orjson

from nsqplatform.alerts.models import Rule
from nsqplatform.alerts.schemas import PendingOut, PendingsOut
from nsqplatform.alerts.subject_state import GAP_S
from nsqplatform.cluster import store
from nsqplatform.clusters.current import Key
from nsqwire.units import Seconds

PENDING = Key("alerts:pending")
"""JSON of Stored."""


class Stored(TypedDict):
    """Times are Unix seconds. ``pending``: rule id -> row key -> time at which it went beyond the threshold."""

    at: Seconds
    pending: dict[str, dict[str, Seconds]]


def pending(*, limit: int) -> PendingsOut:
    """The pending alerts, in the order in which they will fire. Empty if no collector has stored any for GAP_S."""
    with store.connect() as redis:
        kept = cast(bytes | None, redis.get(PENDING()))
    stored: Stored = orjson.loads(kept) if kept else {"at": 0.0, "pending": {}}
    if time.time() - stored["at"] > GAP_S:
        return PendingsOut(total=0, pending=[])
    rules = Rule.objects.filter(enabled=True).in_bulk([int(number) for number in stored["pending"]])
    found = [
        (began + rules[int(number)].hold_s, key, rules[int(number)], began)
        for number, keys in stored["pending"].items()
        if int(number) in rules
        for key, began in keys.items()
    ]
    found.sort(key=lambda each: each[:2])
    return PendingsOut(
        total=len(found), pending=[_detail(rule, key, began, fires) for fires, key, rule, began in found[:limit]]
    )


def _detail(rule: Rule, key: str, began: Seconds, fires: Seconds) -> PendingOut:
    # The snapshot's keys: a node's id, a topic's name, `topic/channel`; no name contains a slash.
    topic, _, channel = ("", "", "") if rule.scope in ("node", "archive", "objective") else key.partition("/")
    copied = ("severity", "scope", "metric", "comparison", "threshold", "hold_s")
    values = {name: getattr(rule, name) for name in copied} | {
        "rule_id": rule.pk,
        "rule": rule.name,
        "unit": rule.watched.unit,
        "topic": topic,
        "channel": channel,
        "node": key if rule.scope == "node" else "",
        "objective": key if rule.scope == "objective" else "",
        "began_at": int(began * 1000),
        "fires_at": int(fires * 1000),
    }
    return PendingOut.model_validate(values)
