from __future__ import annotations

from django.apps import AppConfig


class MarksConfig(AppConfig):
    name = "nsqplatform.marks"
