from __future__ import annotations

from django.apps import AppConfig


class SavedViewsConfig(AppConfig):
    name = "nsqplatform.saved_views"
