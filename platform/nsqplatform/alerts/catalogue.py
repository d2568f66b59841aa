"""The metrics that a rule can watch: those of :mod:`nsqwire.figures`, and the states of a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from nsqwire import figures

Scope: TypeAlias = Literal["channel", "topic", "node"]


class Kind(Enum):
    """What is known of a metric while some nodes do not answer."""

    COUNT = "count"
    """A sum over nodes of values that are not negative: without the share of a node it is a lower bound."""
    RATE = "rate"
    """The same. A node has no share until its process has been polled twice."""
    AGE = "age"
    """The largest over nodes."""
    FLAG = "flag"
    """1 while the condition is true, else 0. Its threshold is always 0."""


@dataclass(frozen=True)
class Metric:
    """``field``: the column of the snapshot, empty if the value is computed. ``unit``: that of values in the API."""

    scope: Scope
    name: str
    title: str
    unit: str
    kind: Kind
    description: str
    field: str = ""

    @property
    def is_flag(self) -> bool:
        return self.kind is Kind.FLAG


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
        "The node does not answer; it counts as missing when registries have forgotten it too, until it answers again.",
    ),
    Metric(
        "node",
        "unhealthy",
        "Unhealthy",
        "",
        Kind.FLAG,
        "The node answers and reports that it is unhealthy: it cannot write to its disk.",
    ),
)


def _metrics(scope: Scope) -> Iterator[Metric]:
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


_ALL: Iterable[Metric] = (*_metrics("channel"), *_metrics("topic"), *_FLAGS, *_metrics("node"))

METRICS: dict[tuple[str, str], Metric] = {(metric.scope, metric.name): metric for metric in _ALL}
"""By scope and name."""


def names_of(scope: str) -> list[str]:
    return [name for of, name in METRICS if of == scope]
