"""Counters in the cache."""

from __future__ import annotations

from django.core.cache import cache


def increment(key: str, *, expires_s: float) -> int:
    """Add 1 to a counter and return it. It starts at 0 and expires ``expires_s`` seconds after its first increment."""
    cache.add(key, 0, timeout=expires_s)
    try:
        return int(cache.incr(key))
    except ValueError:  # it expired between the two calls
        cache.set(key, 1, timeout=expires_s)
        return 1
