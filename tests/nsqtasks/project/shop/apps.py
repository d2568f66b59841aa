"""The application."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Tasks and their tests."""

    name = "shop"
