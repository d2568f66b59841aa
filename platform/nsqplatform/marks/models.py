"""A mark: what people or their CI say happened, such as a deployment, on the charts of its time and topics."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from nsqplatform.clusters.rows import ClusterRow

EVERYTHING = "*"


class Mark(ClusterRow):
    at = models.DateTimeField(db_index=True)
    text = models.CharField(max_length=200)
    topic_pattern = models.CharField(max_length=64, default=EVERYTHING)
    """A glob. The mark is on the charts of matching topics and their channels, and of the cluster; with ``*``, on those
    of nodes too."""
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-at", "-id"]
