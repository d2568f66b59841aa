"""Executes actions on the cluster. Before a channel is emptied, the collector is notified, because the removed messages
must not count as finished."""

from __future__ import annotations

from collections.abc import Sequence

from nsqcluster import Action, Bulk, Cluster, Name, Result, perform
from nsqcluster.bulk import Results
from nsqplatform.cluster import store


async def execute(cluster: Cluster, action: Action, topic: str, channel: str | None) -> list[Result]:
    """Perform the action by nsqcluster's ``perform``, with the same results and errors. A channel that is about to be
    emptied is stored in Redis first, where the collector reads it."""
    await _note(action, [Name(topic, channel)])
    return await perform(cluster, action, topic, channel)


async def execute_all(bulk: Bulk, cluster: Cluster, action: Action, names: Sequence[Name]) -> dict[Name, Results]:
    """Perform the action on all names, which are either topics or channels: as ``execute``, but the errors of each name
    are values. Raises RedisError, with nothing changed."""
    await _note(action, names)
    return await bulk.perform(cluster, action, names)


async def _note(action: Action, names: Sequence[Name]) -> None:
    channels = [store.Channel(name.topic, name.channel) for name in names if name.channel is not None]
    if action is Action.EMPTY and channels:
        async with store.connect_async() as redis:
            await store.note_emptying(redis, channels)
