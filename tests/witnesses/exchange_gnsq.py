"""Publish with gnsq's Producer, read with its Consumer through the registry.

Arguments: nsqd, nsqlookupd, count, the layer as JSON.
"""

import json
import ssl
import sys

import gevent
import gnsq

nsqd, nsqlookupd, count, layer = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
options = {name: layer[name] for name in ("tls_v1", "deflate", "snappy")}
# While it publishes, gnsq mistakes a heartbeat for the response.
options["heartbeat_interval"] = 55
if layer["tls_v1"]:
    options["tls_options"] = {"ca_certs": layer["authority"], "cert_reqs": ssl.CERT_REQUIRED}
if layer["auth_secret"]:
    options["auth_secret"] = layer["auth_secret"].encode()
bodies = [b"message %d" % number for number in range(count)]
received = {}
poison = layer["poison"].encode()
poisoned = 0


class Publisher:
    """The required part of gnsq.Producer, which fails at the OK of an upgrade with every nsqd."""

    def __init__(self):
        self._connection = gnsq.NsqdTCPClient(*nsqd.split(":"), **options)

    def start(self):
        self._connection.connect()
        self._connection.identify()

    def publish(self, topic, body):
        self._connection.publish(topic, body)
        self._connection.check_ok()

    def multipublish(self, topic, bodies):
        self._connection.multipublish(topic, bodies)
        self._connection.check_ok()

    def close(self):
        self._connection.close_stream()

    def join(self):
        pass


has_upgrade = layer["tls_v1"] or layer["deflate"] or layer["snappy"]
producer = Publisher() if has_upgrade else gnsq.Producer(nsqd, **options)
producer.start()
for body in bodies[: count // 2]:
    producer.publish("exchange", body)
for start in range(count // 2, count, 100):
    producer.multipublish("exchange", bodies[start : start + 100])

registry = gnsq.LookupdClient(*nsqlookupd.split(":"))
with gevent.Timeout(10):
    while "exchange" not in registry.topics()["topics"]:
        gevent.sleep(0.05)

consumer = gnsq.Consumer("exchange", "gnsq", lookupd_http_addresses=[nsqlookupd], max_in_flight=100, **options)


@consumer.on_message.connect
def on_message(consumer, message):
    global poisoned
    if message.body == poison:
        poisoned += 1
        message.requeue(0, backoff=False)
    else:
        received[message.body] = received.get(message.body, 0) + 1
    if len(received) == count - bool(poison) and poisoned == (3 if poison else 0):
        gevent.spawn_later(0.1, consumer.close)  # after the last FIN was sent


consumer.start()
producer.close()
producer.join()
print(json.dumps({"stored": count, "received": len(received), "most": max(received.values())}))
