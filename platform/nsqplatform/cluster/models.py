"""Changes of nodes that the collector noticed, the masks of messages, and their types."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from nsqplatform.accounts.roles import Role
from nsqplatform.clusters.rows import ClusterRow


class NodeEvent(ClusterRow):
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


class Mask(ClusterRow):
    """Hides the values at JSON paths and the headers of the messages of topics from roles below ``visible_to``."""

    topic_pattern = models.CharField(max_length=64)
    """A glob."""
    paths = models.JSONField()
    """A list of JSON paths, such as ``$.card.number``."""
    visible_headers = models.JSONField(default=list)
    """The names of the headers whose values are not hidden, in lower case."""
    visible_to = models.CharField(max_length=16, choices=Role.choices, default=Role.ADMIN)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["topic_pattern", "id"]


class MessageType(ClusterRow):
    """The Protocol Buffers message type of topics, with which the web app decodes their bodies."""

    topic_pattern = models.CharField(max_length=64)
    """A glob."""
    name = models.CharField(max_length=200)
    """The full name, such as ``shop.v1.Order``."""
    descriptors = models.BinaryField()
    """A serialized FileDescriptorSet, imports included."""
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["topic_pattern", "name", "id"]
