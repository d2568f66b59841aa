"""The topics of a queue: NSQ has no priorities within a topic, so a queue has a topic for each level."""

from __future__ import annotations

from typing import Final

LEVELS: Final = (".high", "", ".low")
"""Suffixes of the topics for priorities above 0, equal to 0, and below 0."""


def topic_of(prefix: str, queue: str, priority: int) -> str:
    """Return the topic to which a task of this queue and priority is published."""
    level = LEVELS[0] if priority > 0 else LEVELS[2] if priority < 0 else LEVELS[1]
    return f"{prefix}.{queue}{level}"


def topics_of(prefix: str, queue: str) -> list[str]:
    """Return all topics of a queue, the highest priority first."""
    return [f"{prefix}.{queue}{level}" for level in LEVELS]
