"""The cluster's picture and what an operator does to it."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["cluster"])
