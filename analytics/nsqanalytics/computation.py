"""Computes ACTIVITY from samples by applying the transforms in order.

Transforms are lazy. For a small archive, one transform computes everything in one task. For a large archive, three
queries run first: when nodes were sampled, whether all readings can be counted, and which seconds of the archive
contain the required histograms.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nsqanalytics.cache import persisted
from nsqanalytics.counting.ends import Rules
from nsqanalytics.counting.sampling import Contexts, Sampling
from nsqanalytics.transforms import activity as transforms


def activity(
    samples: DataFrame,
    window: timedelta,
    *,
    topic: str = "",
    channel: str = "",
    cuts: Sequence[datetime] = (),
    contexts: Contexts | None = None,
    fits_one_task: bool = False,
) -> DataFrame:
    """SAMPLE rows -> ACTIVITY, restricted to ``topic`` (as for is_one_of) and ``channel`` if they are given.

    ``cuts`` are the ends of a report's period: each divides the window that it lies in into two.
    ``contexts`` has the hours that are computed, each with the hours that it is computed from. Without contexts, all
    samples are computed together. ``fits_one_task`` says that one task has the time and the memory for all samples.

    ``samples`` must contain all series of the nodes, because a node counts as sampled if any of its series was.
    """
    rules = Rules(window, tuple(cuts), contexts)
    is_wanted = transforms.wanted(topic, channel)
    if fits_one_task:
        return transforms.of_few(samples, is_wanted, rules)
    sampling = Sampling.of(samples.select("node", "taken_at").distinct().toArrow())
    return _of_many(samples, samples.where(is_wanted), sampling, rules)


def _of_many(
    samples: DataFrame, wanted: DataFrame, sampling: Sampling, rules: Rules, evidence: pa.Table | None = None
) -> DataFrame:
    """Return the ACTIVITY of ``wanted``. Histograms, which are most of an archive, are read for window ends only."""
    # What is read more than once is stored: it is small compared with the samples.
    ends = persisted(transforms.ends(transforms.packed(wanted), sampling, rules, evidence))
    [(lacks_count, is_undecided)] = ends.agg(F.max("lacks_count"), F.max("is_undecided")).collect()
    if lacks_count:
        samples, wanted = (transforms.with_finish_count(rows) for rows in (samples, wanted))
        return _of_many(samples, wanted, sampling, rules)
    if is_undecided and evidence is None:
        boots = ends.where("is_undecided").select("node", "boot_id").distinct()
        return _of_many(samples, wanted, sampling, rules, transforms.evidence(samples, boots).toArrow())
    within = transforms.taken_within(row["slot"] for row in transforms.time_slots(ends).collect())
    return transforms.with_histograms(ends, wanted, within)
