"""Data of the collector that is stored for longer than in Redis: when nodes went down and came back."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class NodeEvent(models.Model):
    """A change of a node's state, as the collector noticed it. Deleted when it is older than ``--audit-retention``."""

    class Kind(models.TextChoices):
        DOWN = "down"
        UP = "up"
        RESTARTED = "restarted"

    at = models.DateTimeField(db_index=True)
    node = models.CharField(max_length=300)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    detail = models.CharField(max_length=500, blank=True, default="")
    """Why it is down."""

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]
