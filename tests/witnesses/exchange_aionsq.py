"""Publish with aionsq's Producer, read with its Consumer through the registry.

Arguments: nsqd, nsqlookupd, count, the layer as JSON. Exits once its standard input is closed.
"""

import asyncio
import json
import sys
from datetime import timedelta

import httpx

from aionsq import Consumer, ConsumerOptions, Producer, ProducerOptions
from tests.harness.waiting import until


async def main(nsqd, nsqlookupd, count, layer):
    bodies = [b"message %d" % number for number in range(count)]
    options = {"tls_v1": layer["tls_v1"], "deflate": layer["deflate"]}
    if layer["tls_v1"]:
        options["tls_root_ca_file"] = layer["authority"]
    if layer["auth_secret"]:
        options["auth_secret"] = layer["auth_secret"]
    received, poison, poisoned = {}, layer["poison"].encode(), 0
    async with Producer(nsqd, ProducerOptions(**options)) as producer:
        await asyncio.gather(*(producer.pub("exchange", body) for body in bodies[: count // 2]))
        for start in range(count // 2, count, 100):
            await producer.mpub("exchange", bodies[start : start + 100])
    # The broker registers a new topic asynchronously.
    async with httpx.AsyncClient(trust_env=False) as client:

        async def is_known():
            return (await client.get(f"http://{nsqlookupd}/lookup?topic=exchange")).status_code == 200

        await until(is_known, "the registry knows the topic")
    consumer = Consumer(
        "exchange",
        "aionsq",
        lookupd_http_addresses=[nsqlookupd],
        options=ConsumerOptions(max_in_flight=100, **options),
    )
    async with consumer:
        async for message in consumer:
            if message.body == poison:
                poisoned += 1
                message.requeue(timedelta(0), backoff=False)
            else:
                received[message.body] = received.get(message.body, 0) + 1
                message.finish()
            if len(received) == count - bool(poison) and poisoned == (3 if poison else 0):
                break
        await asyncio.to_thread(sys.stdin.read)  # until the broker's clients have been looked at
    print(json.dumps({"stored": count, "received": len(received), "most": max(received.values())}))


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])))
