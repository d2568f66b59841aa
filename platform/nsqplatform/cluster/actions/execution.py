"""Executes an action on the cluster. Before a channel is emptied, the collector is notified, because the removed
messages must not count as finished."""

from __future__ import annotations

from nsqcluster import Action, Client, Cluster, Result, perform
from nsqplatform.cluster import store


async def execute(
    cluster: Cluster, action: Action, topic: str, channel: str | None, *, http: Client | None = None
) -> list[Result]:
    """Perform the action by nsqcluster's ``perform``, with the same results and errors. A channel that is about to be
    emptied is stored in Redis first, where the collector reads it."""
    if action is Action.EMPTY and channel is not None:
        async with store.connect_async() as redis:
            await store.note_emptying(redis, store.Channel(topic, channel))
    return await perform(cluster, action, topic, channel, http=http)
