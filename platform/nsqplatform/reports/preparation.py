"""Starting a worker's Spark session before the first report is requested: when somebody opens the form of a report.

Web processes publish a message in Redis, for which nothing waits if no worker runs.
"""

from __future__ import annotations

import logging
import time
from threading import Thread

from redis.exceptions import RedisError

from nsqplatform.cluster import store
from nsqplatform.reports.warm_session import WARM_SESSION, is_possible

logger = logging.getLogger(__name__)

CHANNEL = "reports:prepare"
"""Of all clusters, whose reports the same workers run."""
AT_MOST_EVERY_S = 10.0
_POLL_S = 4.0
"""Less than the time after which the connection gives up waiting for an answer."""
_RETRY_S = 5.0


def request_session() -> None:
    """Ask the workers to have a Spark session ready. Nothing happens without a worker, or without Redis."""
    try:
        with store.connect() as redis:
            redis.publish(CHANNEL, "")
    except (RedisError, OSError) as error:
        logger.warning("cannot ask for a Spark session", extra={"error": str(error)})


def start_listening() -> None:
    """Follow the requests of web processes in a thread of this worker."""
    if is_possible():
        Thread(target=_listen_repeatedly, name="preparation", daemon=True).start()


def _listen_repeatedly() -> None:
    while True:
        try:
            _listen()
        except (RedisError, OSError) as error:
            logger.warning("cannot read requests for a Spark session", extra={"error": str(error)})
            time.sleep(_RETRY_S)


def _listen() -> None:
    last = -AT_MOST_EVERY_S
    with store.connect() as redis, redis.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe(CHANNEL)
        while True:
            asked = subscription.get_message(timeout=_POLL_S)
            if asked is not None and time.monotonic() - last >= AT_MOST_EVERY_S:
                try:
                    WARM_SESSION.prepare()
                except Exception:  # whatever it is, later requests are to be read
                    logger.exception("cannot start a Spark session")
                last = time.monotonic()
