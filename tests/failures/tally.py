"""Counts of the tries of tests that inject faults, for ``python -m bench.failures``.

A test calls :func:`record` for each fault. With ``FAILURES_TALLY``, the name of a file, a line of JSON is added to it.
"""

from __future__ import annotations

import json
import os


def record(fault: str, *, tries: int, lost: int, unexpected: int, seed: int | None = None) -> None:
    """Record how often a fault was caused, and how many tries lost something or brought something unexpected."""
    if path := os.environ.get("FAILURES_TALLY"):
        entry = {"fault": fault, "tries": tries, "lost": lost, "unexpected": unexpected, "seed": seed}
        with open(path, "a") as file:
            file.write(json.dumps(entry) + "\n")
