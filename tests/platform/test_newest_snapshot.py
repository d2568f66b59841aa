"""The newest snapshot, as the requests of a web process read it."""

from __future__ import annotations

import orjson
import pytest
from redis import Redis

from nsqplatform.cluster import selectors, store
from nsqplatform.cluster.snapshots.snapshot import EMPTY, EVERYTHING, Snapshot


def keep(redis: Redis, version: int, taken_at: int) -> None:
    stored = Snapshot(version, taken_at, EMPTY.tables)
    redis.set(store.SNAPSHOT(), orjson.dumps(stored.message(EVERYTHING)))


@pytest.mark.parametrize("newer", [(8, 1_790_000_001_000), (7, 1_790_000_001_000)])
def test_a_snapshot_is_parsed_once_and_a_newer_one_replaces_it(redis: Redis, newer: tuple[int, int]) -> None:
    """A collector that starts after Redis lost its data may use a version again, at another time."""
    keep(redis, 7, 1_790_000_000_000)
    first = selectors.snapshot()
    assert first is not None
    assert selectors.snapshot() is first
    keep(redis, *newer)
    second = selectors.snapshot()
    assert second is not None
    assert (second.version, second.taken_at_ms) == newer


def test_there_is_no_snapshot_after_redis_lost_its_data(redis: Redis) -> None:
    keep(redis, 1, 1_790_000_000_000)
    assert selectors.snapshot() is not None
    redis.flushall()
    assert selectors.snapshot() is None
