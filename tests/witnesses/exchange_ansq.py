"""Publish with ansq's writer, read with its reader through the registry.

Arguments: nsqd, nsqlookupd, count, the layer as JSON. ansq has neither TLS nor compression.
"""

import asyncio
import json
import sys

import ansq
from ansq.tcp.connection import NSQConnection

from tests.harness.waiting import until


async def main(nsqd, nsqlookupd, count, secret, poison):
    bodies = [b"message %d" % number for number in range(count)]
    if secret:
        # Its writer and reader have no option for the secret, only its connection class does.
        writer = await connect(nsqd, secret)
    else:
        writer = await ansq.create_writer(nsqd_tcp_addresses=[nsqd])
    stored, received, poisoned = 0, {}, 0
    for body in bodies[: count // 2]:
        stored += (await writer.pub("exchange", body)).is_ok
    for start in range(count // 2, count, 100):
        stored += 100 * (await writer.mpub("exchange", *bodies[start : start + 100])).is_ok
    # The broker registers a new topic asynchronously.
    await until(lambda: is_known(nsqlookupd), "the registry knows the topic")
    if secret:
        reader = await connect(nsqd, secret)
        await reader.subscribe("exchange", "ansq", 100)
    else:
        reader = await ansq.create_reader("exchange", "ansq", lookupd_http_addresses=[nsqlookupd])
    async for message in reader.messages():
        if message.body == poison:
            poisoned += 1
            await message.req(timeout=0)
        else:
            received[message.body] = received.get(message.body, 0) + 1
            await message.fin()
        if len(received) == count - bool(poison) and poisoned == (3 if poison else 0):
            break
    await reader.close()
    await writer.close()
    print(json.dumps({"stored": stored, "received": len(received), "most": max(received.values())}))


async def connect(nsqd, secret):
    # After an IDENTIFY response with auth_required, ansq never notices that AUTH succeeded: send AUTH without IDENTIFY.
    connection = NSQConnection(*nsqd.split(":"))
    await connection.connect()
    await connection.auth(secret)
    return connection


async def is_known(nsqlookupd):
    stream, writer = await asyncio.open_connection(*nsqlookupd.split(":"))
    writer.write(b"GET /lookup?topic=exchange HTTP/1.1\r\nHost: lookup\r\nConnection: close\r\n\r\n")
    status = await stream.readline()
    writer.close()
    return b" 200 " in status


layer = json.loads(sys.argv[4])
asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), layer["auth_secret"], layer["poison"].encode()))
