"""A saved view: the address of a page with its search, filters, order and span."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from nsqplatform.accounts.models import User
from nsqplatform.clusters.rows import ClusterRow


class SavedView(ClusterRow):
    name = models.CharField(max_length=100)
    address = models.CharField(max_length=2000)
    """Path and query of the page, below the base path, such as ``/topics?q=orders&sort=-depth``."""
    owner = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="saved_views")
    """Null for a shared view that was imported on the command line."""
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["name", "pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                name="one_own_view_of_a_name", fields=["cluster", "owner", "name"], condition=Q(is_shared=False)
            ),
            models.UniqueConstraint(
                name="one_shared_view_of_a_name", fields=["cluster", "name"], condition=Q(is_shared=True)
            ),
        ]
