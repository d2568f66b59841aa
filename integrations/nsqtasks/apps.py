"""The Django application."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class NSQTasksConfig(AppConfig):
    """Tasks and their results."""

    name = "nsqtasks"
    verbose_name = "NSQ tasks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks that apply whether or not a backend is configured."""
        from nsqtasks.checks import check_installation

        checks.register(check_installation)
