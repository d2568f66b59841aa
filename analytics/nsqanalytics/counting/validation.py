"""Checks readings. An invalid reading fails the report, with the name of its file, instead of causing wrong figures."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from nsqanalytics.counting.columns import NULL, Flags, flags, integers
from nsqanalytics.counting.histograms import Histograms
from nsqanalytics.counting.readings import HIGHEST_COUNT, LATER_COUNTERS
from nsqwire.histogram import MAX_BUCKETS

PREFIX = "a reading is invalid"
_COUNTERS = ("message_count", "message_bytes", "requeue_count", "timeout_count")
_NAMES = ("node", "boot_id", "topic", "taken_at")
_GAUGES = ("depth", "in_flight_count", "deferred_count", "client_count")


class InvalidReading(ValueError):
    """A reading has a value that no node has."""


def check(samples: pa.Table) -> None:
    """Raise InvalidReading if a SAMPLE row is invalid. ``file`` is the URI of a row's file, and ``is_in_own_hour``
    whether its time lies in the hour of its file's folder."""
    for name in (*_NAMES, *_COUNTERS, *_GAUGES):
        _refuse(samples, ~_is_given(samples, name), f"{name} is missing")
    for name in (*_COUNTERS, *LATER_COUNTERS, *_GAUGES, "dead_count", "finish_count", "hist_zero_count"):
        values = integers(samples[name])
        wrong = _is_given(samples, name) & ((values < 0) | (values > HIGHEST_COUNT))
        if wrong.any():
            value = values[np.argmax(wrong)]
            _refuse(samples, wrong, f"{name} is {value}, not between 0 and {HIGHEST_COUNT}")
    finished = _is_given(samples, "finish_count")
    zero, offset = _is_given(samples, "hist_zero_count"), _is_given(samples, "hist_offset")
    _refuse(samples, ~zero & (finished | offset), "hist_zero_count is missing")
    _refuse(samples, ~offset & (finished | zero), "hist_offset is missing")
    _refuse(samples, ~flags(samples["is_in_own_hour"]), "taken_at is not in the hour of its folder")


def check_histograms(
    histograms: Histograms, has_counts: Flags, finish_count: pa.ChunkedArray, file: pa.ChunkedArray
) -> None:
    """Raise InvalidReading if a histogram is invalid, or its total is not its ``finish_count``."""
    table = pa.table({"file": file})
    wrong = np.zeros(len(histograms), bool)
    wrong[histograms.of_bucket[(histograms.counts < 0) | (histograms.counts > HIGHEST_COUNT)]] = True
    _refuse(table, wrong, f"hist_counts has a count that is not between 0 and {HIGHEST_COUNT}")
    offset, end = histograms.offset, histograms.offset + histograms.lengths
    _refuse(
        table,
        ~has_counts | (offset < 0) | (end > MAX_BUCKETS),
        f"hist_offset and hist_counts are not buckets of 0 to {MAX_BUCKETS}",
    )
    _refuse(table, histograms.rough_count() > HIGHEST_COUNT, f"the total of hist_counts is above {HIGHEST_COUNT}")
    total = integers(finish_count)
    wrong = (total != NULL) & (histograms.count() != total)
    _refuse(table, wrong, "finish_count is not the total of its histogram")


def _is_given(samples: pa.Table, name: str) -> Flags:
    return np.asarray(samples[name].is_valid().to_numpy())


def _refuse(rows: pa.Table, wrong: Flags, reason: str) -> None:
    if wrong.any():
        raise InvalidReading(f"{PREFIX}: {reason}: {rows['file'][int(np.argmax(wrong))].as_py()}")
