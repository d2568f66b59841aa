"""Progress of a run's steps on Spark."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest

from nsqanalytics.parameters import spelt_out
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


@pytest.mark.spark
def test_a_step_says_itself_how_much_of_it_is_done(spark):
    """As the reading of an archive does in days."""
    out = io.StringIO()

    def stages() -> list[str]:
        return [json.loads(line)["stage"] for line in out.getvalue().splitlines()]

    def stage(done: float) -> str:
        return f"reading {spelt_out(timedelta(days=30), done)}"

    with Progress(out).following(spark, stage, expected_stages=4, start=0.2, end=0.5):
        spark.range(0, 100, 1, numPartitions=5).count()  # two of the stages
        wait_until(lambda: "reading 15 of 30 days" in stages(), "half of the days")
    assert (stages()[0], stages()[-1]) == ("reading 30 days", "reading 30 of 30 days")
