"""Work over all topics or channels in portions: a broker may have thousands, and its clients wait meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def in_turns(items: Iterable[T], at_once: int) -> AsyncIterator[T]:
    """Yield the items, and let everything else have its turn after every ``at_once`` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % at_once == 0:
            await asyncio.sleep(0)
