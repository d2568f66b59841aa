"""Where discovery begins: the addresses of the settings, or the registries that ``PUT /config`` put in their place."""

from __future__ import annotations

import json
from typing import cast

from django.conf import settings

from cluster import store
from nsqadmin.discovery import Sources


async def sources() -> Sources:
    """The addresses in force, and where the collector reaches each node."""
    async with store.connect_async() as redis:
        changed, addresses = await redis.mget(store.LOOKUPD, store.ADDRESSES)
    lookupd = store.lookupd_in_force(changed)
    reached_at: dict[str, str] = json.loads(addresses) if addresses else {}
    return Sources(lookupd=lookupd, nsqd=settings.NSQD_HTTP_ADDRESSES, reached_at=reached_at)


async def change_lookupd(addresses: list[str] | None) -> None:
    """Make every process of this platform use these registries until its restart; None means none."""
    async with store.connect_async() as redis:
        await redis.set(store.LOOKUPD, json.dumps(addresses))


async def lookupd() -> list[str] | None:
    """The addresses of the last ``PUT /config``, otherwise of the settings."""
    async with store.connect_async() as redis:
        changed = cast(bytes | None, await redis.get(store.LOOKUPD))
    given: list[str] | None = json.loads(changed) if changed else list(settings.NSQLOOKUPD_HTTP_ADDRESSES)
    return given
