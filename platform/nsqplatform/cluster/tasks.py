"""The Celery tasks of the cluster, in the queue of the dispatcher. CELERY_BEAT_SCHEDULE says when they run."""

from __future__ import annotations

import time
from contextlib import suppress

from celery import shared_task
from redis.exceptions import LockNotOwnedError

from nsqplatform.cluster import selectors, store
from nsqplatform.cluster.history import rollup
from nsqplatform.clusters.current import Key, in_every_cluster

LOCK = Key("history_keeper")
LOCK_EXPIRES_S = 900
"""A killed run holds the lock this long; the rings hold an hour."""


@shared_task(name="cluster.keep_history")
@in_every_cluster
def keep_history() -> None:
    """Add the last hour to the files of the history, and remove old ones; nothing while another run does so."""
    with store.connect() as redis:
        lock = redis.lock(LOCK(), timeout=LOCK_EXPIRES_S)
        if not lock.acquire(blocking=False):
            return
        try:
            rollup.keep(redis, selectors.history_folder(), int(time.time()))
        finally:
            with suppress(LockNotOwnedError):  # it took longer
                lock.release()
