"""Objectives, and their counts of good and bad messages."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from nsqplatform.clusters.rows import ClusterRow
from nsqwire.histogram import bound_of


class Objective(ClusterRow):
    """A target for the share of good messages of some channels over a window of days."""

    class Kind(models.TextChoices):
        LATENCY = "latency"
        """Good: finished within ``threshold_ms`` of being published. Bad: finished later."""
        SUCCESS = "success"
        """Of deliveries. Good: finished. Bad: requeued or timed out."""

    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    threshold_ms = models.FloatField(null=True)
    """Of the kind ``latency``; null otherwise."""
    target_percent = models.FloatField()
    window_days = models.PositiveIntegerField(default=30)
    # Shell globs.
    topic_pattern = models.CharField(max_length=64, default="*")
    channel_pattern = models.CharField(max_length=64, default="*")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    revision = models.PositiveIntegerField(default=1)
    """Increases when what is counted changes. Counts of earlier revisions are deleted."""
    # Unix seconds; null until the collector has counted.
    counted_since = models.FloatField(null=True)
    counted_until = models.FloatField(null=True)
    """All readings taken before this time are in the counts, and none later."""

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(name="one_objective_of_a_name", fields=["cluster", "name"])]

    @property
    def limit_ns(self) -> int | None:
        """The latency up to which a message is good: the upper bound of the histogram's bucket that contains the
        threshold. None for the kind ``success``."""
        return None if self.threshold_ms is None else bound_of(round(self.threshold_ms * 1e6))


class Last(models.Model):
    """The last reading of a node that is in an objective's counts: what the next one is compared with after a restart
    of the collector. It is stored with the counts, because the archive may lack it."""

    objective = models.ForeignKey(Objective, on_delete=models.CASCADE, related_name="lasts")
    node = models.CharField(max_length=300)
    boot = models.CharField(max_length=100)
    taken_at = models.FloatField()
    """Unix seconds."""
    totals = models.BinaryField()
    """Of tally.Totals, without boot and time: JSON, compressed by zlib."""

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(name="one_last_reading_of_an_objective_and_node", fields=["objective", "node"])
        ]


class Count(models.Model):
    """The good and bad messages of an objective in the ``step_s`` seconds from ``at``: of a minute, or of an hour."""

    objective = models.ForeignKey(Objective, on_delete=models.CASCADE, related_name="counts")
    at = models.BigIntegerField()
    """Unix seconds."""
    step_s = models.PositiveIntegerField()
    good = models.BigIntegerField()
    bad = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(name="one_count_of_an_objective_and_time", fields=["objective", "step_s", "at"])
        ]
        indexes: ClassVar = [models.Index(fields=["objective", "at"])]
