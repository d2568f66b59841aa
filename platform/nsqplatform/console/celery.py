"""The Celery app: ``celery -A nsqplatform.console.celery worker`` and ``… beat``."""

from __future__ import annotations

import logging.config
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

import nsqkombu  # noqa: F401  registers nsq://

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nsqplatform.console.settings")
# Celery would run Django's system checks at each start and ignore what they find. The check of the URLs imports the
# whole API, which takes longer than the rest of the start.
os.environ.setdefault("CELERY_SKIP_CHECKS", "yes")

app = Celery("console")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def keep_own_logging(**_: Any) -> None:
    """Keep Celery from adding its own log handlers."""
    from django.conf import settings

    logging.config.dictConfig(settings.LOGGING)
