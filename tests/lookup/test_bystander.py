"""A peer with very many registrations, or a very long response, does not delay other clients."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.waiting import wait_until

TOPICS = 30_000
OK = b"\x00\x00\x00\x02OK"


class Bystander:
    """Repeatedly looks up its own topic and one of the big peer's."""

    def __init__(self, process: Any) -> None:
        self.answers: list[bool] = []
        """Whether the big peer was named, answer by answer."""
        self._process = process
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._process.port("HTTP"), timeout=60)
        while not self._stop.is_set():
            for topic in ("steady", "t00000"):
                connection.request("GET", f"/lookup?topic={topic}")
                body = connection.getresponse().read()
            self.answers.append(b"big" in body)
        connection.close()


@pytest.fixture
def big_peer(
    start: Callable[..., Any],
    receive_reply: Callable[[socket.socket], bytes],
    identify_command: Callable[..., bytes],
) -> Iterator[tuple[Any, socket.socket]]:
    """A registry with a steady peer, and one that registers TOPICS topics."""
    process = start()
    with process.connect() as steady, process.connect() as big:
        steady.sendall(b"  V1" + identify_command(broadcast_address="steady") + b"REGISTER steady\n")
        assert [receive_reply(steady)[:1], receive_reply(steady)] == [b"{", b"OK"]
        big.sendall(b"  V1" + identify_command(broadcast_address="big"))
        assert receive_reply(big).startswith(b"{")
        send_each(big, "REGISTER t{:05}")
        yield process, big


def send_each(peer: socket.socket, command: str) -> None:
    lines = "".join(command.format(number) + "\n" for number in range(TOPICS)).encode()
    sender = threading.Thread(target=peer.sendall, args=(lines,))
    sender.start()
    left = TOPICS * len(OK)
    while left:
        part = peer.recv(min(left, 1 << 16))
        assert part
        left -= len(part)
    sender.join()


def asked_between(log: list[str], first: str, last: str) -> int:
    """Number of the bystander's requests that were answered between two lines of the log."""
    numbers = [number for number, line in enumerate(log) if re.search(f"{first}|{last}", line)]
    return sum("GET /lookup?topic=steady" in line for line in log[numbers[0] : numbers[-1]])


def test_the_removal_of_a_peer_with_many_topics_delays_no_client(big_peer: tuple[Any, socket.socket]) -> None:
    """Its registrations are removed in slices. Once missing from a response, it is missing from all later ones."""
    process, big = big_peer
    with Bystander(process) as bystander:
        big.close()
        wait_until(lambda: sum("UNREGISTER category:" in line for line in process.log) == TOPICS + 1)
        wait_until(lambda: not bystander.answers[-1])
    assert asked_between(process.log, "UNREGISTER category:", "UNREGISTER category:") >= 3
    assert bystander.answers == sorted(bystander.answers, reverse=True)
    assert json.loads(process.answer("/lookup?topic=t29999")[1]) == {"channels": [], "producers": []}
    assert [each["broadcast_address"] for each in json.loads(process.answer("/nodes")[1])["producers"]] == ["steady"]


def test_a_topic_with_very_many_channels_is_unregistered_in_steps(big_peer: tuple[Any, socket.socket]) -> None:
    """A single command, which would otherwise delay all other clients."""
    process, big = big_peer
    send_each(big, "REGISTER wide c{:05}")
    with Bystander(process):
        big.sendall(b"UNREGISTER wide\n")
        assert big.recv(6) == OK
    assert asked_between(process.log, r" UNREGISTER category:channel", r" UNREGISTER category:topic key:wide") >= 3
    assert len(json.loads(process.answer("/channels?topic=wide")[1])["channels"]) == TOPICS


@pytest.mark.parametrize("path", ["/debug", "/nodes", "/metrics"])
def test_a_long_answer_delays_no_client(big_peer: tuple[Any, socket.socket], path: str) -> None:
    """Other requests are answered between its slices."""
    process, _ = big_peer
    with Bystander(process) as bystander:
        wait_until(lambda: bystander.answers)
        before = len(bystander.answers)
        status, body = process.answer(path)
        meanwhile = len(bystander.answers) - before
    assert (status, body.count(b"t29999")) == (200, 1)
    assert meanwhile >= 3
    assert all(bystander.answers)
