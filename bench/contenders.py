"""Our servers and the reference's (``--reference``), each started on the same core with an empty data path."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from bench.measure import Measured, Options
from bench.registry import registry
from bench.server import Server, brokerd, reference

Contenders = dict[str, Callable[[], AbstractContextManager[Server]]]


def contenders(options: Options) -> Contenders:
    """Return brokerd, and nsqd with ``--reference``."""
    found: Contenders = {"brokerd": partial(brokerd, options.cores, options.data_path, twin=options.twin)}
    if options.reference is not None:
        found["nsqd"] = partial(reference, options.reference / "nsqd", options.cores, options.data_path)
    return found


def registries(options: Options) -> Contenders:
    """Return lookup, and nsqlookupd with ``--reference``."""
    found: Contenders = {"lookup": partial(registry, options)}
    if options.reference is not None:
        found["nsqlookupd"] = partial(reference, options.reference / "nsqlookupd", options.cores, options.data_path)
    return found


def compared(ours: Measured, others: dict[str, Measured]) -> dict[str, float]:
    """Return the reference's figures in the same run, and the ratio of ours to them."""
    figures: dict[str, float] = {}
    for name, other in others.items():
        figures[f"{name}, messages/s"] = other.per_second
        figures[f"{name}, µs/msg"] = other.us_per_message
        figures[f"of {name}, messages/s"] = ours.per_second / other.per_second
        if other.us_per_message:
            figures[f"of {name}, µs/msg"] = ours.us_per_message / other.us_per_message
    return figures


def not_compared(options: Options) -> str:
    """Return a note for a row without a reference, otherwise an empty text."""
    return "" if options.reference else "; no --reference"
