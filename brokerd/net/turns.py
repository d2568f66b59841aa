"""Work over all topics or channels in portions: a broker may have thousands, and its clients wait meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def in_portions(items: Sequence[T], size: int) -> AsyncIterator[Sequence[T]]:
    """Yield the items by ``size``, and let everything else have its turn after each portion."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
        await asyncio.sleep(0)
