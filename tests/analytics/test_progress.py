"""Progress of a run's steps on Spark."""

from __future__ import annotations

import io
import json

import pytest

from nsqanalytics.progress import Progress
from tests.harness.waiting import wait_until


@pytest.mark.spark
def test_a_step_counts_its_own_tasks_and_not_those_of_earlier_steps(spark):
    """Five partitions are counted by five tasks, and their counts are added up by one, in each of the steps."""
    out = io.StringIO()
    progress = Progress(out)

    def stages() -> list[str]:
        return [json.loads(line)["stage"] for line in out.getvalue().splitlines()]

    for step in ("first", "second"):
        with progress.following(spark, step, expected_stages=2, start=0.0, end=0.5):
            spark.range(0, 100, 1, numPartitions=5).count()
            wait_until(lambda step=step: f"{step} (6 of 6 tasks)" in stages(), f"the tasks of the {step} step")
