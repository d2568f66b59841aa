"""Computes, from rollups, the bands of the rules that compare figures with past weeks.

It takes seconds for a thousand channels, so a task does it: every half hour, and when such a rule is saved.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from nsqanalytics.usual_hours import Usual, Wanted, usual_hours
from nsqplatform.alerts.bands import HOUR_S, HOURS_AHEAD, Hour, Stored, name_of, watched_by
from nsqplatform.alerts.catalogue import METRICS
from nsqplatform.alerts.models import Rule
from nsqplatform.clusters import current
from nsqplatform.patterns import matcher
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)


def found_bands(rules: Sequence[Rule], now: Seconds) -> Stored:
    """Return the bands of the subjects that these rules match. ``now`` is in Unix seconds."""
    hour = int(now // HOUR_S)
    first = hour - 1
    stored: Stored = {"at": now, "first": first, "bands": {}, "rules": [*map(watched_by, rules)], "error": ""}
    try:
        usual = usual_hours(current.archive(), first, hour + HOURS_AHEAD, wanted_by(rules))
    except (OSError, pa.ArrowException) as error:
        logger.error("cannot read the rollups; unusual figures are unknown", extra={"error": str(error)})
        return stored | {"error": f"the rollups cannot be read: {error}"}
    metrics: dict[tuple[str, str], str] = {
        (each.scope, each.figure): name_of(each) for each in METRICS.values() if each.is_anomaly
    }
    bands: dict[str, dict[str, list[Hour]]] = defaultdict(dict)
    for (topic, channel, figure), found in usual.items():
        scope, key = ("channel", f"{topic}/{channel}") if channel else ("topic", topic)
        bands[metrics[scope, figure]][key] = hours_of(found)
    return stored | {"bands": bands}


def hours_of(usual: Usual) -> list[Hour]:
    rows = zip(usual.expected.tolist(), usual.scale.tolist(), usual.weeks.tolist(), strict=True)
    return [(expected, scale, weeks) if np.isfinite(expected) else None for expected, scale, weeks in rows]


def wanted_by(rules: Iterable[Rule]) -> Wanted:
    """The figures of a topic or channel that one of the rules compares with past weeks."""
    wanted: list[tuple[str, str, Callable[[str], object], Callable[[str], object]]] = [
        (rule.scope, rule.watched.figure, matcher(rule.topic_pattern), matcher(rule.channel_pattern))
        for rule in rules
        if rule.watched.is_anomaly
    ]

    def figures(topic: str, channel: str) -> set[str]:
        of = "channel" if channel else "topic"
        return {
            figure
            for scope, figure, of_topic, of_channel in wanted
            if scope == of and of_topic(topic) and (not channel or of_channel(channel))
        }

    return figures
