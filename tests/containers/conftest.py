"""Tests that build and run images need NSQ_CONTAINERS. CI does not collect them without it."""

from __future__ import annotations

import os

from tests.harness.ci import IN_CI

collect_ignore = ["test_engine.py"] if IN_CI and not os.environ.get("NSQ_CONTAINERS") else []
