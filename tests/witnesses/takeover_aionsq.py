"""Publish and consume with aionsq while the members of a pair take over from each other.

Arguments: the topic, both addresses. See takeover_report.py.
"""

import asyncio
import sys

from aionsq import ClientError, Consumer, ConsumerOptions, Producer
from tests.witnesses.takeover_report import acknowledged, bodies, failed, received, when_ended


async def publish(topic, addresses):
    async with Producer(addresses) as producer:
        for body in bodies():
            try:
                await producer.pub(topic, body)
                acknowledged(body)
            except ClientError as error:
                failed(error)
            await asyncio.sleep(0.005)


async def consume(topic, addresses):
    async with Consumer(
        topic, "c", nsqd_tcp_addresses=addresses, options=ConsumerOptions(max_in_flight=100)
    ) as consumer:
        async for message in consumer:
            received(message.body)
            message.finish()


async def main(topic, *addresses):
    tasks = [asyncio.create_task(each(topic, addresses)) for each in (publish, consume)]
    await asyncio.to_thread(when_ended)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


asyncio.run(main(*sys.argv[1:]))
