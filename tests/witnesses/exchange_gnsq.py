"""Publish with gnsq's Producer, read with its Consumer through the registry. Arguments: nsqd, nsqlookupd, count."""

import json
import sys

import gevent
import gnsq

nsqd, nsqlookupd, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
bodies = [b"message %d" % number for number in range(count)]
received = {}

producer = gnsq.Producer(nsqd)
producer.start()
for body in bodies[: count // 2]:
    producer.publish("exchange", body)
for start in range(count // 2, count, 100):
    producer.multipublish("exchange", bodies[start : start + 100])

registry = gnsq.LookupdClient(*nsqlookupd.split(":"))
with gevent.Timeout(10):
    while "exchange" not in registry.topics()["topics"]:
        gevent.sleep(0.05)

consumer = gnsq.Consumer("exchange", "gnsq", lookupd_http_addresses=[nsqlookupd], max_in_flight=100)


@consumer.on_message.connect
def on_message(consumer, message):
    received[message.body] = received.get(message.body, 0) + 1
    if len(received) == count:
        gevent.spawn_later(0.1, consumer.close)  # after the last FIN has gone out


consumer.start()
producer.close()
producer.join()
print(json.dumps({"stored": count, "received": len(received), "most": max(received.values())}))
