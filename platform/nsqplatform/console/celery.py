"""The Celery app: ``celery -A nsqplatform.console.celery worker`` and ``… beat``."""

from __future__ import annotations

import logging.config
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nsqplatform.console.settings")

app = Celery("console")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def log_like_the_rest(**_: Any) -> None:
    """Keep Celery from adding its own log handlers."""
    from django.conf import settings

    logging.config.dictConfig(settings.LOGGING)
