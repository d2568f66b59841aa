"""Converts a reading to rows of the archive. They are built by columns, because large clusters have ten thousand
rows."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from nsqanalytics.schema import ARROW_SCHEMA
from nsqcluster.stats import ChannelStats, Percentile, TopicStats
from nsqplatform.cluster.readings.matrix import NO_AGE, Ints
from nsqplatform.cluster.readings.reading import CHANNEL_FIGURES, TOPIC_FIGURES, Reading
from nsqwire.figures import archived, of_scope


def samples_of(node: str, reading: Reading) -> pa.Table:
    """One row of ARROW_SCHEMA for each topic, then one for each channel."""
    stats, topics, channels = reading.stats, reading.topics, reading.channels
    count = len(topics.keys) + len(channels.keys)
    columns: dict[str, pa.Array | Ints] = {
        "taken_at": repeated("taken_at", datetime.fromtimestamp(reading.taken_at_s, UTC), count),
        "node": repeated("node", node, count),
        "boot_id": repeated("boot_id", stats.boot, count),
        "started_at": repeated("started_at", datetime.fromtimestamp(stats.start_time, UTC), count),
        "uptime_ns": repeated("uptime_ns", stats.uptime_ns, count),
        "topic": pa.array([*topics.keys, *(topic for topic, _ in channels.keys)], pa.string()),
        "channel": pa.array([*(None for _ in topics.keys), *(name for _, name in channels.keys)], pa.string()),
        **histogram_columns(reading),
        "percentiles": percentiles(reading),
    }
    ages = np.concatenate([topics.ages_ns, channels.ages_ns])
    columns["oldest_unfinished_age_ns"] = pa.array(ages, mask=ages == NO_AGE)
    for name in [figure.name for figure in archived()]:
        columns[name] = np.concatenate([topic_column(reading, name), channel_column(reading, name)])
    return pa.Table.from_arrays([pa.array(columns[name]) for name in ARROW_SCHEMA.names], schema=ARROW_SCHEMA)


def repeated(name: str, value: Any, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, ARROW_SCHEMA.field(name).type), count)


def topic_column(reading: Reading, name: str) -> Ints:
    """A figure of each topic: its own, or the sum of its channels'; zeros if topics do not have it."""
    figure = next((each for each in of_scope("topic") if each.name == name and each.archived_since), None)
    if figure is None:
        return np.zeros(len(reading.topics.keys), np.int64)
    if figure.json_key:
        return np.asarray(reading.topics.numbers[:, TOPIC_FIGURES.index(name)], np.int64)
    lengths = np.array([len(topic.channels) for topic in reading.stats.topics], np.int64)
    channels = sum(channel_column(reading, each.partition(".")[2]) for each in figure.sum_of)
    totals = np.concatenate([np.zeros(1, np.int64), np.cumsum(channels)])
    ends = np.cumsum(lengths)
    return np.asarray(totals[ends] - totals[ends - lengths], np.int64)


def channel_column(reading: Reading, name: str) -> Ints:
    """A figure of each channel; zeros if channels do not have it."""
    if name not in CHANNEL_FIGURES:
        return np.zeros(len(reading.channels.keys), np.int64)
    return np.asarray(reading.channels.numbers[:, CHANNEL_FIGURES.index(name)], np.int64)


def histogram_columns(reading: Reading) -> dict[str, pa.Array]:
    """The columns of the latency histograms; null for topics, and for channels of nodes without histograms."""
    histograms, before = reading.stats.histograms, len(reading.topics.keys)
    has = np.array(
        [False] * before + [channel.latency_histogram is not None for channel in reading.channel_stats], bool
    )

    def placed(values: Ints) -> Ints:
        column = np.zeros(len(has), np.int64)
        column[has] = values
        return column

    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(placed(histograms.lengths), dtype=np.int32)])
    return {
        "finish_count": pa.array(placed(histograms.totals), mask=~has),
        "hist_zero_count": pa.array(placed(histograms.zeros), mask=~has),
        "hist_offset": pa.array(placed(histograms.offsets).astype(np.int32), mask=~has),
        "hist_counts": pa.ListArray.from_arrays(pa.array(ends), pa.array(histograms.counts), mask=pa.array(~has)),
    }


def percentiles(reading: Reading) -> pa.Array:
    """The percentiles that nsqd reports, if it is configured to; null if there is a histogram."""
    rows: list[list[Percentile]] = [
        *(own_percentiles(topic) if reading.stats.boot_id is None else [] for topic in reading.stats.topics),
        *(own_percentiles(channel) if channel.latency_histogram is None else [] for channel in reading.channel_stats),
    ]
    kind = ARROW_SCHEMA.field("percentiles").type.value_type
    flat = [*chain.from_iterable(rows)]
    quantiles = pa.array([each.quantile for each in flat], pa.float64())
    values_ns = pa.array([int(each.value) for each in flat], pa.int64())
    values = pa.StructArray.from_arrays([quantiles, values_ns], fields=[*kind])
    ends = pa.array([0, *accumulate(map(len, rows))], pa.int32())
    return pa.ListArray.from_arrays(ends, values, mask=pa.array([not each for each in rows], pa.bool_()))


def own_percentiles(figures: TopicStats | ChannelStats) -> list[Percentile]:
    latency = figures.e2e_processing_latency
    return latency.percentiles if latency is not None else []
