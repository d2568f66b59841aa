"""Computes ACTIVITY from samples.

On this machine, the tasks read the files of the archive themselves. On a cluster, whose workers may not reach them as
this process does, Spark reads them, and the transforms are applied in order. For a small archive, one transform
computes everything in one task. For a large archive, three queries run first: when nodes were sampled, whether all
readings can be counted, and which seconds of the archive contain the required histograms. Spark also reads the files
of an archive that is too large for tasks of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from math import ceil

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from nsqanalytics.cache import persisted
from nsqanalytics.counting.ends import Rules
from nsqanalytics.counting.of_files import OfFiles, Share, Wanted
from nsqanalytics.counting.sample_files import SampleFiles
from nsqanalytics.counting.sampling import Contexts, Sampling
from nsqanalytics.transforms import activity as transforms

HOURS_OF_TASK = 12
"""More hours are divided between tasks. Each task also reads the hours before its own."""
ROWS_WORTH_A_TASK = 100_000
ROWS_OF_CONTEXT, ROWS_OF_SERIES = 1_000_000, 250_000
"""With more readings in an hour and the hours before it, or in a computation without contexts, several tasks divide the
series. Without contexts, windows may be short, and most histograms may be needed."""
MOST_PARTS, MOST_PARTS_OF_CONTEXT = 20, 3
"""With more, reading all files for each part of the series would take too long. The second is for contexts."""


def activity_of_files(
    spark: SparkSession, files: SampleFiles, rules: Rules, wanted: Wanted, row_counts: Mapping[datetime, int]
) -> DataFrame:
    """The files of an archive -> ACTIVITY of the readings that are wanted, restricted to the contexts of ``rules``.

    ``row_counts`` has the approximate number of rows of each hour. Without contexts, all samples are computed together.
    """
    tasks = shares(rules.contexts, row_counts, spark.sparkContext.defaultParallelism)
    rows = transforms.of_files(spark, OfFiles(files, rules, wanted, tasks))
    if len(tasks) > 1:
        # Compute it now, once, while the stage of the report is "reading".
        rows = persisted(rows)
        rows.count()
    return rows


def fits_tasks(contexts: Contexts | None, row_counts: Mapping[datetime, int]) -> bool:
    """Whether tasks that read the files themselves have the memory for these readings, and the time to read them."""
    return _parts(contexts, row_counts) <= (MOST_PARTS if contexts is None else MOST_PARTS_OF_CONTEXT)


def _parts(contexts: Contexts | None, row_counts: Mapping[datetime, int]) -> int:
    """Return the number of parts into which the series are divided."""
    if contexts is None:
        return max(1, ceil(sum(row_counts.values()) / ROWS_OF_SERIES))
    most = max((sum(row_counts[start] for start in hours) for _, hours in contexts), default=0)
    return max(1, ceil(most / ROWS_OF_CONTEXT))


def shares(contexts: Contexts | None, row_counts: Mapping[datetime, int], cores: int) -> list[Share]:
    """Divide a computation into tasks: by hours, and by series if the readings are many."""
    parts = _parts(contexts, row_counts)
    worth = max(1, min(cores, sum(row_counts.values()) // ROWS_WORTH_A_TASK))
    if contexts is None:
        parts = max(parts, worth)
        return [Share(None, part, parts) for part in range(parts)]
    count = min(len(contexts), max(ceil(worth / parts), ceil(len(contexts) / HOURS_OF_TASK)))
    bounds = [len(contexts) * n // count for n in range(count + 1)] if count else []
    return [Share(contexts[a:b], part, parts) for a, b in pairwise(bounds) for part in range(parts)]


def activity(samples: DataFrame, rules: Rules, wanted: Wanted, *, fits_one_task: bool = False) -> DataFrame:
    """SAMPLE rows -> ACTIVITY of the readings that are wanted.

    ``fits_one_task`` says that one task has the time and the memory for all samples. They must contain all series of
    the nodes, because a node counts as sampled if any of its series was.
    """
    if wanted.until is not None:
        samples = transforms.before(samples, wanted.until)
    is_wanted = transforms.wanted(wanted)
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
