"""Publish with pynsq's Writer, read with its Reader through the registry.

Arguments: nsqd, nsqlookupd, count, the layer as JSON.
"""

import json
import sys

import nsq
import tornado.ioloop

nsqd, nsqlookupd, count, layer = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
options = {name: layer[name] for name in ("tls_v1", "deflate", "snappy")}
if layer["tls_v1"]:
    options["tls_options"] = {"ca_certs": layer["authority"]}
if layer["auth_secret"]:
    options["auth_secret"] = layer["auth_secret"]
bodies = [b"message %d" % number for number in range(count)]
answers = {}
received = {}


poison = layer["poison"].encode()
poisoned = 0


def on_message(message):
    global poisoned
    if message.body == poison:
        poisoned += 1
        message.enable_async()
        message.requeue(backoff=False, delay=0)
    else:
        received[message.body] = received.get(message.body, 0) + 1
    if len(received) == count - bool(poison) and poisoned == (3 if poison else 0):
        tornado.ioloop.IOLoop.current().call_later(0.1, finish)  # after the last FIN was sent
    return True


def finish():
    print(json.dumps({"stored": answers.get("OK", 0), "received": len(received), "most": max(received.values())}))
    tornado.ioloop.IOLoop.current().stop()


def on_answer(connection, data):
    key = data.decode() if isinstance(data, bytes) else repr(data)
    answers[key] = answers.get(key, 0) + 1
    if sum(answers.values()) == 1:
        # Only now the registry knows the topic; a reader started earlier would wait for its next poll.
        tornado.ioloop.IOLoop.current().call_later(0.5, read)
        for body in bodies[1 : count // 2]:
            writer.pub("exchange", body, callback=on_answer)
        for start in range(count // 2, count, 100):
            writer.mpub("exchange", bodies[start : start + 100], callback=on_answer_to_many)


def on_answer_to_many(connection, data):
    for _ in range(100):
        on_answer(connection, data)


def read():
    readers.append(
        nsq.Reader(
            "exchange",
            "pynsq",
            on_message,
            lookupd_http_addresses=[f"http://{nsqlookupd}"],
            max_in_flight=100,
            **options,
        )
    )


readers = []
writer = nsq.Writer([nsqd], **options)
started = tornado.ioloop.PeriodicCallback(lambda: begin(), 50)


def begin():
    if writer.conns:
        started.stop()
        writer.pub("exchange", bodies[0], callback=on_answer)


started.start()
nsq.run()
