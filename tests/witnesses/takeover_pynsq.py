"""Publish and consume with pynsq while the members of a pair take over from each other.

Arguments: the topic, both addresses. See takeover_report.py. pynsq connects again after 15 seconds, and asks nothing of
who publishes; so the script publishes the next message after an error.
"""

import logging
import sys
import threading

import nsq
import tornado.ioloop

from tests.witnesses.takeover_report import acknowledged, bodies, failed, received, when_ended

logging.getLogger("nsq").setLevel(logging.CRITICAL)
topic, *addresses = sys.argv[1:]
loop = tornado.ioloop.IOLoop.current()
numbered = bodies()


def publish():
    body = next(numbered, None)
    if body is None:
        return

    def answered(connection, data):
        if data == b"OK":
            acknowledged(body)
        else:
            failed(data)
        loop.call_later(0.005 if data == b"OK" else 0.1, publish)

    writer.pub(topic, body, callback=answered)


def on_message(message):
    received(message.body)
    return True


def wait():
    when_ended()
    loop.add_callback(loop.stop)


writer = nsq.Writer(addresses, reconnect_interval=1.0)
reader = nsq.Reader(topic, "c", on_message, nsqd_tcp_addresses=addresses, max_in_flight=100)
threading.Thread(target=wait, daemon=True).start()
loop.call_later(1.0, publish)
loop.start()
