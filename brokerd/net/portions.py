"""Iteration over all topics or channels in portions, because a broker may have thousands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def in_portions(items: Sequence[T], size: int) -> AsyncIterator[Sequence[T]]:
    """Yield ``size`` items at a time. The event loop runs other callbacks after each portion."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
        await asyncio.sleep(0)
