"""Computes ACTIVITY from samples by applying the transforms in order.

Transforms are lazy. Two steps depend on the data: which series must be ordered reading by reading, and which seconds of
the archive contain the required histograms. This module runs these two queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nsqanalytics.cache import persisted
from nsqanalytics.transforms import activity as transforms
from nsqanalytics.transforms import counter_falls, readings
from nsqanalytics.transforms.names import is_one_of
from nsqanalytics.transforms.readings import SERIES
from nsqanalytics.transforms.validation import checked


def activity(
    samples: DataFrame,
    window: timedelta,
    *,
    topic: str = "",
    channel: str = "",
    cuts: Sequence[datetime] = (),
    contexts: DataFrame | None = None,
    are_few: bool = False,
) -> DataFrame:
    """SAMPLE rows -> ACTIVITY, restricted to ``topic`` (as for is_one_of) and ``channel`` if they are given.

    ``cuts`` are the ends of a report's period: each divides the window that it lies in into two.
    ``contexts`` has a row with ``hour`` and CONTEXT for each hour of samples that belongs to a context; for each
    context, the windows of its own hour are computed. Without contexts, all samples are one context.
    ``are_few`` says that all histograms are read in less time than it takes to find out which are required.

    ``samples`` must contain all series of the nodes, because a node counts as sampled if any of its series was.
    """
    wanted = samples
    if topic:
        wanted = wanted.where(is_one_of("topic", topic))
    if channel:
        wanted = wanted.where(F.col("channel") == channel)
    plain = readings.plain(checked(wanted))
    # What is read more than once is stored: it is small compared with the samples.
    summaries = persisted(readings.summaries(plain, window, cuts))
    seen = persisted(transforms.in_contexts(readings.sampled(samples), contexts))
    hours = readings.hours(seen)
    irregular = readings.irregular(summaries)
    kinds = irregular.select("lacks_uptime", "lacks_count").distinct().collect()
    if any(row["lacks_count"] for row in kinds):
        complete = readings.with_finish_count(samples)
        return activity(complete, window, topic=topic, channel=channel, cuts=cuts, contexts=contexts, are_few=are_few)
    if not kinds:
        spans = readings.regular_spans(summaries, hours)
    else:
        irregular = persisted(irregular)
        of_regular = readings.regular_spans(summaries.join(F.broadcast(irregular), list(SERIES), "left_anti"), hours)
        of_irregular = plain.join(F.broadcast(irregular), list(SERIES), "left_semi")
        evidence = None
        if any(row["lacks_uptime"] for row in kinds):
            evidence = persisted(counter_falls.evidence(readings.plain(samples), irregular))
        spans = of_regular.unionByName(readings.ordered_spans(of_irregular, hours, window, evidence, cuts))
    ends = persisted(transforms.of_own_hour(readings.window_ends(spans, readings.sample_times(seen))))
    needed = transforms.histograms_needed(ends)
    within = F.lit(True)
    if not are_few:
        within = transforms.taken_within(row["bucket"] for row in transforms.time_buckets(needed).collect())
    read = persisted(transforms.histograms(wanted, needed, within))
    return transforms.by_node(transforms.with_histograms(ends, read))
