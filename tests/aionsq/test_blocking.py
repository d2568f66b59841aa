"""The blocking producer, from threads, views and forked workers, against a real broker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from aionsq import BlockingProducer, ProducerClosed, ProducerOptions, PublishTimedOut
from nsqwire.errors import BadTopic
from tests.harness import web
from tests.harness.waiting import DEADLINE_S, wait_until

MS = timedelta(milliseconds=1)


def statistics(broker, topic: str) -> dict:
    return web.get(f"http://{broker.http_address}/stats", params={"format": "json", "topic": topic}).json()


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def message_count(broker, topic: str) -> int:
    stats = statistics(broker, topic)
    return sum(each["message_count"] for each in stats["topics"])


async def test_each_call_returns_once_the_message_is_stored(broker):
    """PUB, MPUB and DPUB, without asyncio in the caller."""
    with BlockingProducer(broker.tcp_address) as producer:
        producer.pub("orders", b"one")
        assert message_count(broker, "orders") == 1
        producer.mpub("orders", [b"two", b"three"])
        producer.dpub("orders", 50 * MS, b"four")
    assert message_count(broker, "orders") == 4
    with pytest.raises(ProducerClosed):
        producer.pub("orders", b"late")


async def test_many_threads_share_one_producer_and_one_connection(broker):
    """As the threads of a web server do."""
    with BlockingProducer(broker.tcp_address) as producer, ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda number: producer.pub("orders", b"%d" % number), range(400)))
        assert len(statistics(broker, "orders")["producers"]) == 1
    assert message_count(broker, "orders") == 400


async def test_errors_reach_only_their_caller(broker):
    """The exceptions are those of the asyncio producer."""
    with BlockingProducer(broker.tcp_address) as producer:
        with pytest.raises(BadTopic):
            producer.pub("bad topic", b"x")
        with pytest.raises(TypeError):
            producer.pub("orders", "text")
        producer.pub("orders", b"x")


def test_a_publish_to_an_unreachable_nsqd_fails_after_its_timeout(unused_address):
    """The error has the reason, and says that nothing was stored."""
    options = ProducerOptions(publish_timeout=300 * MS)
    with (
        BlockingProducer(unused_address, options) as producer,
        pytest.raises(PublishTimedOut, match=r"not stored: .*connection refused"),
    ):
        producer.pub("orders", b"x")
    with pytest.raises(ValueError, match="not host:port"):
        BlockingProducer("nowhere")


def test_closing_while_another_thread_waits_does_not_leave_it_waiting(unused_address):
    """The waiting thread gets ProducerClosed."""
    producer = BlockingProducer(unused_address)
    outcome: list[BaseException] = []

    def publish() -> None:
        try:
            producer.pub("orders", b"x")
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    wait_until(lambda: producer._worker)
    producer.close()
    thread.join(DEADLINE_S)
    assert [type(error) for error in outcome] == [ProducerClosed]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
async def test_forked_workers_publish_each_over_a_connection_of_its_own(broker):
    """A producer used before the fork works in the parent and in every child at the same time."""
    script = """
        import os, sys, threading
        from aionsq import BlockingProducer
        producer = BlockingProducer(sys.argv[1])
        producer.pub("orders", b"before")
        busy = threading.Thread(target=lambda: [producer.pub("orders", b"parent") for _ in range(200)])
        busy.start()
        children = []
        for _ in range(3):
            if (child := os.fork()) == 0:
                for _ in range(50):
                    producer.pub("orders", b"child")
                producer.close()
                os._exit(0)
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        busy.join()
        producer.pub("orders", b"after")
        print(statuses)
    """
    done = await asyncio.to_thread(python, script, broker.tcp_address)
    assert (done.stdout, done.returncode) == ("[0, 0, 0]\n", 0), done.stderr
    assert message_count(broker, "orders") == 1 + 200 + 150 + 1


async def test_a_script_that_forgets_to_close_ends_all_the_same(broker):
    """The producer's thread does not block the interpreter's exit, and the message is stored."""
    script = "import sys; from aionsq import BlockingProducer; BlockingProducer(sys.argv[1]).pub('orders', b'x')"
    done = await asyncio.to_thread(python, script, broker.tcp_address)
    assert (done.returncode, done.stderr) == (0, "")
    assert message_count(broker, "orders") == 1


async def test_it_continues_after_a_restart_of_nsqd(broker):
    """The next call connects again."""
    with BlockingProducer(broker.tcp_address, ProducerOptions(resend=True)) as producer:
        producer.pub("orders", b"x")
        await broker.restart()
        producer.pub("orders", b"y")
    assert message_count(broker, "orders") >= 1
