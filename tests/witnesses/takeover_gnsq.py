"""Publish and consume with gnsq while the members of a pair take over from each other.

Arguments: the topic, both addresses. See takeover_report.py. The member that follows refuses connections, and gnsq
doubles its wait after each refusal, up to ``max_backoff_duration``: 128 s unless it is set.
"""

import sys

import gevent
import gnsq
from gevent.threadpool import ThreadPool

from tests.witnesses.takeover_report import acknowledged, bodies, failed, received, when_ended

topic, *addresses = sys.argv[1:]
MAX_WAIT_S = 2
# While it publishes, gnsq mistakes a heartbeat for the response.
producer = gnsq.Producer(addresses, max_backoff_duration=MAX_WAIT_S, heartbeat_interval=55)
consumer = gnsq.Consumer(topic, "c", nsqd_tcp_addresses=addresses, max_in_flight=100, max_backoff_duration=MAX_WAIT_S)


@consumer.on_message.connect
def on_message(_, message):
    received(message.body)


def publish():
    for body in bodies():
        try:
            producer.publish(topic, body, timeout=1)
            acknowledged(body)
        except (gnsq.errors.NSQException, KeyError) as error:  # KeyError: the connection was lost since it was chosen
            failed(error)
            gevent.sleep(0.1)
        gevent.sleep(0.005)


producer.start()
consumer.start(block=False)
publisher = gevent.spawn(publish)
ThreadPool(1).apply(when_ended)
gevent.joinall([publisher], timeout=5)
consumer.close()
producer.close()
