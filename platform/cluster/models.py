"""The audit trail."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class AuditEntry(models.Model):
    """One action an operator asked for, and what became of it on each node. Entries are only ever added."""

    at = models.DateTimeField(auto_now_add=True)
    # The name, not the account: an entry outlives whoever it speaks of.
    user = models.CharField(max_length=150)
    action = models.CharField(max_length=16)
    topic = models.CharField(max_length=64)
    channel = models.CharField(max_length=64, null=True)
    outcome = models.CharField(max_length=16)
    results = models.JSONField()
    remote_address = models.CharField(max_length=64)

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]
