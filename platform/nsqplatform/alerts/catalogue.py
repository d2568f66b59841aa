"""The metrics that a rule can watch: those of :mod:`nsqwire.figures`, the states of a node, the archive's, those of
objectives, and figures that are compared with past weeks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from nsqanalytics.channel_hours import ANOMALY_FIGURES, has_figure
from nsqplatform.objectives.burn import PAIRS
from nsqwire import figures

Scope: TypeAlias = Literal["channel", "topic", "node", "archive", "objective"]
ARCHIVE = "archive"
"""Name of the only subject of the scope ``archive``."""


class Kind(Enum):
    """How a metric is aggregated over nodes. It determines what is known while some nodes do not answer."""

    COUNT = "count"
    """A sum over nodes of non-negative values: a lower bound if a node's share is missing."""
    RATE = "rate"
    """A sum of rates. A node has no share until its process has been polled twice."""
    AGE = "age"
    """The maximum over nodes."""
    FLAG = "flag"
    """1 while the condition is true, otherwise 0. The threshold is always 0."""
    ANOMALY = "anomaly"
    """How unlike the same hour of past weeks a figure is. The threshold is a score, as in the report ``anomalies``."""


@dataclass(frozen=True)
class Metric:
    """A metric that a rule can watch.

    ``field`` is its column in the snapshot, empty if the value is computed. ``unit`` is that of its values in the API.
    ``figure`` is that of the report ``anomalies``, empty for other metrics.
    """

    scope: Scope
    name: str
    title: str
    unit: str
    kind: Kind
    description: str
    field: str = ""
    figure: str = ""

    @property
    def is_flag(self) -> bool:
        return self.kind is Kind.FLAG

    @property
    def is_anomaly(self) -> bool:
        return self.kind is Kind.ANOMALY


_KINDS: Mapping[figures.Kind, Kind] = {
    figures.GAUGE: Kind.COUNT,
    figures.COUNTER: Kind.COUNT,
    figures.RATE: Kind.RATE,
    figures.AGE: Kind.AGE,
}
_FLAGS: Iterable[Metric] = (
    Metric(
        "node",
        "down",
        "Missing",
        "",
        Kind.FLAG,
        "The node does not answer. It stays missing until it answers again, even if the registries have removed it.",
    ),
    Metric(
        "node",
        "unhealthy",
        "Unhealthy",
        "",
        Kind.FLAG,
        "The node answers and reports that it is unhealthy: it cannot write to its disk. One that drains is not.",
    ),
    Metric(
        "node",
        "under_replicated",
        "Under-replicated",
        "",
        Kind.FLAG,
        "The node is a mirrored pair of which only one member is in sync, so that no other may take over.",
    ),
)

_ARCHIVE = Metric(
    "archive",
    "damaged_file_count",
    "Damaged files",
    "damaged files",
    Kind.COUNT,
    "Archive files that could not be read and are set aside in samples/_damaged; reports omit them.",
    "damaged_file_count",
)

SPANS: Mapping[str, str] = {"5m": "5 min", "30m": "30 min", "1h": "1 h", "6h": "6 h", "3d": "3 days"}
"""The names of burn rates' spans for people."""
_BURNS: Iterable[Metric] = tuple(
    Metric(
        "objective",
        pair.metric,
        f"Burn rate over {SPANS[pair.long]} and {SPANS[pair.short]}",
        "×",
        Kind.RATE,
        "How fast the error budget is used up, as a multiple of the rate that uses it up in the objective's window: "
        f"the smaller of the rates over the last {SPANS[pair.long]} and the last {SPANS[pair.short]}. "
        f"The usual threshold is {pair.limit:g}.",
        pair.metric,
    )
    for pair in PAIRS
)


_FIELDS: Mapping[str, tuple[str, str]] = {
    "depth": ("depth", "Unusual depth"),
    "in_rate": ("publish_rate", "Unusual publish rate"),
    "out_rate": ("finish_rate", "Unusual finish rate"),
    "requeue_rate": ("requeue_rate", "Unusual requeue rate"),
    "timeout_rate": ("timeout_rate", "Unusual timeout rate"),
    "consumers": ("client_count", "Unusual number of consumers"),
}
"""Column in the snapshot, and title, by the figure of the report ``anomalies``."""


def _anomalies(scope: Literal["channel", "topic"]) -> Iterator[Metric]:
    """The figures that the report compares with past weeks."""
    for figure, (unit, _) in ANOMALY_FIGURES.items():
        if has_figure(scope if scope == "channel" else "", figure):
            field, title = _FIELDS[figure]
            description = (
                f"The mean {title.removeprefix('Unusual ')} of the last ten minutes, compared with the same hour of "
                "four past weeks, as in the report anomalies. Unknown where fewer than three have it."
            )
            yield Metric(scope, f"unusual_{field}", title, unit, Kind.ANOMALY, description, field, figure)


def _metrics(scope: Literal["channel", "topic", "node"]) -> Iterator[Metric]:
    """The alert metrics of the figures of one scope."""
    for figure in figures.of_scope(scope):
        if figure.alert is not None:
            yield Metric(
                scope,
                figure.alert.name or figure.name,
                figure.alert.title,
                figure.alert.unit or figure.unit,
                _KINDS[figure.kind],
                figure.alert.description,
                figure.name if figure.in_row else "",
            )


_ALL: Iterable[Metric] = (
    *(*_metrics("channel"), *_anomalies("channel"), *_metrics("topic"), *_anomalies("topic")),
    *(*_FLAGS, *_metrics("node"), _ARCHIVE, *_BURNS),
)

METRICS: dict[tuple[str, str], Metric] = {(metric.scope, metric.name): metric for metric in _ALL}
"""By scope and name."""


def names_of(scope: str) -> list[str]:
    return [name for of, name in METRICS if of == scope]
