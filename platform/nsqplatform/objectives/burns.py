"""The burn rates of the objectives, which the collector stores in Redis once a minute for alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

import orjson

from nsqplatform.cluster import store
from nsqplatform.clusters.current import Key
from nsqplatform.objectives.burn import PAIRS, SPANS_S, Counted, burn_rate, smaller
from nsqplatform.objectives.models import Objective
from nsqplatform.objectives.persistence import messages_since
from nsqwire.units import Seconds

BURNS = Key("objectives")
"""JSON of Burns."""
EXPIRES_S = 3600
STALE_S = 180.0
"""Burn rates that are older than this are unknown."""


class Burns(TypedDict):
    """``at``: the end of the times, in Unix seconds. ``rates``: by an objective's name and the span."""

    at: Seconds
    rates: dict[str, dict[str, float]]


def rates_of(objectives: Sequence[Objective], at: Seconds) -> dict[int, dict[str, float]]:
    """The burn rates over each of SPANS_S that ends ``at``, by objective and span, from the stored counts."""
    since = {each.pk: each.counted_since for each in objectives if each.counted_since is not None}
    counted = messages_since(since, {name: at - span_s for name, span_s in SPANS_S.items()}, at)
    return {
        each.pk: {
            name: burn_rate(
                counted.get(each.pk, {}).get(name, Counted()),
                target_percent=each.target_percent,
                span_s=span_s,
                counted_s=at - since[each.pk],
            )
            for name, span_s in SPANS_S.items()
        }
        for each in objectives
        if each.pk in since
    }


def burns_of(objectives: Sequence[Objective], at: Seconds) -> Burns:
    rates = rates_of(objectives, at)
    return {"at": at, "rates": {each.name: rates[each.pk] for each in objectives if each.pk in rates}}


def parse(kept: bytes | str | None) -> Burns | None:
    """The value of BURNS; None if there is none."""
    return orjson.loads(kept) if kept else None


def burns() -> Burns | None:
    """The burn rates that a collector stored in the last hour; None if there are none."""
    with store.connect() as redis:
        return parse(cast(bytes | None, redis.get(BURNS())))


def columns_of(burns: Burns | None, now: Seconds) -> Mapping[str, list[object]]:
    """A column for each span and each pair of burn.PAIRS, and the names. Rates that are stale are None."""
    if burns is None:
        return {}
    is_known = abs(now - burns["at"]) <= STALE_S
    columns: dict[str, list[object]] = {"name": [*burns["rates"]]}
    rows = burns["rates"].values()
    columns |= {span: [rates[span] if is_known else None for rates in rows] for span in SPANS_S}
    columns |= {each.metric: [smaller(rates, each) if is_known else None for rates in rows] for each in PAIRS}
    return columns
