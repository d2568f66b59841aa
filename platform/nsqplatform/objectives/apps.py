from __future__ import annotations

from django.apps import AppConfig


class ObjectivesConfig(AppConfig):
    name = "nsqplatform.objectives"
