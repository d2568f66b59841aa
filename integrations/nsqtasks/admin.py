"""The tasks in Django's admin, read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from nsqtasks.models import TaskRecord


@admin.register(TaskRecord)
class TaskRecordAdmin(admin.ModelAdmin):
    """Lists tasks by state and queue. Users with the permission to view tasks see arguments and tracebacks."""

    list_display = ("id", "task_path", "status", "queue_name", "priority", "enqueued_at", "finished_at", "attempts")
    list_filter = ("status", "queue_name", "backend")
    search_fields = ("=id", "task_path")
    date_hierarchy = "enqueued_at"
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds a task here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes a task here."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes a task here."""
        return False
