"""The platform on our own brokers and registry: what a Go node cannot tell, and what actions really do."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aionsq import Consumer

pytestmark = pytest.mark.django_db(transaction=True)


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Server:
    """A process of ours with an HTTP port; started again, it listens where it did."""

    def __init__(self, wait_until: Callable[..., Any], *command: str, http_port: int) -> None:
        self.address = f"127.0.0.1:{http_port}"
        self._wait_until = wait_until
        self._command = [sys.executable, "-m", *command]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait_until(self._answers, f"{self._command[2]} answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"{self._command} ended with {self.process.returncode}"
        try:
            return httpx.get(f"http://{self.address}/ping", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        return httpx.request(method, f"http://{self.address}{path}", trust_env=False, **arguments)

    def topics(self) -> dict[str, Any]:
        answer = self.request("GET", "/stats?format=json").json()
        return {topic["topic_name"]: topic for topic in answer["topics"]}

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(20)


class OurCluster:
    def __init__(self, wait_until: Callable[..., Any], data: Path) -> None:
        lookup_tcp, lookup_http, *rest = free_ports(6)
        self.registry = Server(
            wait_until,
            *("lookup", "--tcp-address", f"127.0.0.1:{lookup_tcp}", "--http-address", f"127.0.0.1:{lookup_http}"),
            http_port=lookup_http,
        )
        self.brokers: list[Server] = []
        for name, tcp, http in (("a", *rest[:2]), ("b", *rest[2:])):
            (data / name).mkdir()
            broker = Server(
                wait_until,
                *("brokerd", "--tcp-address", f"127.0.0.1:{tcp}", "--http-address", f"127.0.0.1:{http}"),
                *("--broadcast-address", "127.0.0.1", "--data-path", str(data / name)),
                *("--lookupd-tcp-address", f"127.0.0.1:{lookup_tcp}"),
                http_port=http,
            )
            self.brokers.append(broker)

    def publish(self, topic: str, count: int) -> None:
        """Publish so many messages to each broker."""
        for broker in self.brokers:
            body = b"\n".join(b"message %d" % number for number in range(count))
            assert broker.request("POST", f"/mpub?topic={topic}", content=body).text == "OK"

    def make_channel(self, topic: str, channel: str) -> None:
        for broker in self.brokers:
            assert broker.request("POST", f"/topic/create?topic={topic}").status_code == 200
            assert broker.request("POST", f"/channel/create?topic={topic}&channel={channel}").status_code == 200


@pytest.fixture
def cluster(settings, tmp_path, wait_until) -> Iterator[OurCluster]:
    """Two brokers and a registry, which the platform is told of."""
    ours = OurCluster(wait_until, tmp_path)
    settings.NSQLOOKUPD_HTTP_ADDRESSES = (ours.registry.address,)
    settings.NSQD_HTTP_ADDRESSES = ()
    yield ours
    for server in (*ours.brokers, ours.registry):
        if server.process.poll() is None:
            server.end(signal.SIGTERM)


@pytest.fixture
def channel_row(picture) -> Callable[[], dict[str, Any]]:
    """The row of orders/billing, empty while there is none."""

    def read() -> dict[str, Any]:
        rows = (picture() or {"channels": []})["channels"]
        return next((row for row in rows if (row["topic"], row["name"]) == ("orders", "billing")), {})

    return read


@pytest.fixture
def operator(browser, account):
    account("operator")
    signed_in = browser()
    signed_in.sign_in("operator")
    return signed_in


def consume(cluster: OurCluster, count: int) -> None:
    async def until_all() -> None:
        async with Consumer("orders", "billing", lookupd_http_addresses=[cluster.registry.address]) as consumer:
            received = 0
            async for _ in consumer:
                received += 1
                if received == count:
                    return

    asyncio.run(asyncio.wait_for(until_all(), 60))


def test_the_picture_shows_age_while_messages_wait_and_latency_once_they_are_finished(
    cluster, collect, channel_row, wait_until
):
    """A channel that nobody reads grows old; when it is read, its percentiles say how old it had grown."""
    cluster.make_channel("orders", "billing")
    collect()
    wait_until(lambda: len(channel_row().get("nodes", [])) == 2, "the channel on both brokers")
    assert channel_row()["oldest_age_ms"] is None
    published_at = time.monotonic()
    cluster.publish("orders", 100)
    waiting = wait_until(lambda: (channel_row()["oldest_age_ms"] or 0) > 1500 and channel_row(), "an age of 1.5 s")
    assert (waiting["depth"], waiting["message_count"], waiting["p50_ms"]) == (200, 200, None)
    consume(cluster, 200)
    drained = wait_until(
        lambda: (
            channel_row()["depth"] == channel_row()["in_flight_count"] == 0
            and channel_row()["p99_ms"]
            and channel_row()
        ),
        "the channel drained",
    )
    elapsed_ms = (time.monotonic() - published_at) * 1000
    assert 1500 * 0.98 < drained["p50_ms"] <= drained["p99_ms"] < elapsed_ms * 1.02
    assert drained["oldest_age_ms"] is None


def test_actions_reach_our_brokers_and_registry(cluster, operator):
    """Pausing pauses, emptying empties, deleting deletes, everywhere."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 10)

    def act(action: str, channel: str | None = None) -> list[str]:
        response = operator.request("POST", "actions", {"action": action, "topic": "orders", "channel": channel})
        assert response.status_code == 200, response.content
        assert response.json()["outcome"] == "done", response.json()
        return [result["target"] for result in response.json()["results"]]

    def channels(broker: Server) -> dict[str, Any]:
        return {each["channel_name"]: each for each in broker.topics()["orders"]["channels"]}

    assert act("pause", "billing") == ["nsqd", "nsqd"]
    assert all(channels(broker)["billing"]["paused"] for broker in cluster.brokers)
    act("empty", "billing")
    assert [channels(broker)["billing"]["depth"] for broker in cluster.brokers] == [0, 0]
    assert act("create", "archive") == ["nsqlookupd", "nsqd", "nsqd"]
    assert all("archive" in channels(broker) for broker in cluster.brokers)
    act("pause")
    assert all(broker.topics()["orders"]["paused"] for broker in cluster.brokers)
    act("delete", "archive")
    assert all("archive" not in channels(broker) for broker in cluster.brokers)
    act("delete")
    assert all("orders" not in broker.topics() for broker in cluster.brokers)
    assert "orders" not in cluster.registry.request("GET", "/topics").json()["topics"]


def test_a_killed_broker_is_down_then_back_with_its_messages(
    cluster, collect, channel_row, picture, wait_until, operator
):
    """The action that missed it says so; restarted, it is up, and nothing it had acknowledged is gone."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 10)
    collect()
    wait_until(lambda: channel_row().get("depth") == 20, "all messages")
    dead = cluster.brokers[1]
    dead.end(signal.SIGKILL)

    def node() -> dict[str, Any]:
        return next(row for row in picture()["nodes"] if row["id"] == dead.address)

    assert wait_until(lambda: node()["state"] == "down" and node(), "the broker down")["error"] == "connection refused"
    response = operator.request("POST", "actions", {"action": "pause", "topic": "orders", "channel": "billing"}).json()
    assert response["outcome"] == "partial"
    assert {result["node"]: result["outcome"] for result in response["results"]} == {
        cluster.brokers[0].address: "done",
        dead.address: "unreachable",
    }
    dead.start()
    wait_until(lambda: node()["state"] == "up", "the broker up again")
    wait_until(lambda: channel_row()["depth"] == 20, "its messages")
