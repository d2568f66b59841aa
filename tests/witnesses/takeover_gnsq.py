"""Publish and consume with gnsq while the members of a pair take over from each other.

Arguments: the topic, both addresses. See takeover_report.py. While nobody leads, connections are refused or closed, and
gnsq doubles its wait after each, up to ``max_backoff_duration``: 128 s unless it is set.

A consumer of gnsq 1.0.2 may fall silent for good when it connects again: it sends RDY to a connection that is not open
yet, and the AttributeError ends the greenlet that sends RDY. So one that receives nothing is replaced.
"""

import sys
import time

import gevent
import gnsq
from gevent.threadpool import ThreadPool

from tests.witnesses.takeover_report import acknowledged, bodies, failed, received, when_ended

topic, *addresses = sys.argv[1:]
MAX_WAIT_S = 2
SILENCE_S = 5
# While it publishes, gnsq mistakes a heartbeat for the response.
producer = gnsq.Producer(addresses, max_backoff_duration=MAX_WAIT_S, heartbeat_interval=55)


def publish():
    for body in bodies():
        try:
            producer.publish(topic, body, timeout=1)
            acknowledged(body)
        except (gnsq.errors.NSQException, KeyError) as error:  # KeyError: the connection was lost since it was chosen
            failed(error)
            gevent.sleep(0.1)
        gevent.sleep(0.005)


def consume():
    """Consume until this greenlet is killed."""
    while True:
        received_at = time.monotonic()

        def on_message(_, message):
            nonlocal received_at
            received_at = time.monotonic()
            received(message.body)

        consumer = gnsq.Consumer(
            topic, "c", nsqd_tcp_addresses=addresses, max_in_flight=100, max_backoff_duration=MAX_WAIT_S
        )
        consumer.on_message.connect(on_message)
        consumer.start(block=False)
        try:
            while time.monotonic() - received_at < SILENCE_S:
                gevent.sleep(0.5)
        finally:
            consumer.close()


producer.start()
publisher, consuming = gevent.spawn(publish), gevent.spawn(consume)
ThreadPool(1).apply(when_ended)
gevent.joinall([publisher], timeout=5)
consuming.kill()
producer.close()
