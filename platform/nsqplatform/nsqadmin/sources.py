"""The addresses for discovery: those of the settings, or the registries set by ``PUT /config``."""

from __future__ import annotations

import json
from typing import cast

from nsqcluster import Cluster
from nsqplatform.cluster import store
from nsqplatform.clusters import current


async def cluster() -> Cluster:
    """The current addresses, and the address of each node that the collector polls."""
    async with store.connect_async() as redis:
        changed, addresses = await redis.mget(store.LOOKUPD(), store.ADDRESSES())
    lookupd = store.lookupd_in_force(changed)
    return Cluster(
        lookupd=lookupd, nsqd=current.nsqd_http_addresses(), addresses=json.loads(addresses) if addresses else {}
    )


async def change_lookupd(addresses: list[str] | None) -> None:
    """Make every process of this platform use these registries until ``nsqadmin`` starts again; None means none."""
    async with store.connect_async() as redis:
        await redis.set(store.LOOKUPD(), json.dumps(addresses))


async def lookupd() -> list[str] | None:
    """The addresses of the last ``PUT /config``, otherwise of the settings."""
    async with store.connect_async() as redis:
        changed = cast(bytes | None, await redis.get(store.LOOKUPD()))
    given: list[str] | None = json.loads(changed) if changed else list(current.lookupd_http_addresses())
    return given
