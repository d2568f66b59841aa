"""Who connects to the mirror port and is no member of the pair changes nothing, and a wrong peer is named."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from brokerd.mirror.frames import Frame, Kind
from brokerd.mirror.hello import Hello
from brokerd.mirror.leader import MAX_STRANGERS
from tests.harness.loopback import own_address
from tests.harness.pair import LONG_LEASE, MIRROR, Member
from tests.harness.waiting import DEADLINE_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.etcd import EtcdServer
    from tests.mirror.conftest import StartPair

VERY_LONG_LEASE = "600s"
"""A lease of which not even a third passes within a test."""
CONNECTIONS = 100
NO_GREETING = b"GET / HTTP/1.1\r\nHost: orders\r\n\r\n"
NO_WELCOME = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
ATTEMPTS = 4
"""Attempts to join after which the log is read."""


def test_a_member_of_another_pair_does_not_end_the_lead(start_pair: StartPair) -> None:
    """Its pair is of a later term, and its flags lead here. It is told why it may not join."""
    pair = start_pair(lease=VERY_LONG_LEASE)
    primary = pair.wait_for_primary()
    greeting = Hello(member="z", pair="other", boot="b", has_data=True)
    with socket.create_connection((primary.host, MIRROR)) as stranger:
        stranger.sendall(Frame(Kind.HELLO, 50, 0, greeting.to_bytes()).to_bytes())
        answer = b"".join(iter(lambda: stranger.recv(4096), b""))
    assert answer.endswith(b"its data path or its arbiter is that of another pair")
    primary.post("/pub", b"x", topic="t")
    figures = pair.wait_until_in_sync()
    assert (figures["epoch"], primary.topics()["t"]["depth"]) == (1, 1)


def test_connections_that_send_no_greeting_take_few_descriptors(start_pair: StartPair) -> None:
    """Some send nothing, others what is no greeting. The follower stays in sync."""
    pair = start_pair(lease=VERY_LONG_LEASE)
    primary = pair.wait_for_primary()
    before = primary.descriptor_count
    with ExitStack() as ends:
        for number in range(CONNECTIONS):
            stranger = ends.enter_context(socket.create_connection((primary.host, MIRROR)))
            stranger.sendall(NO_GREETING if number % 2 else b"")
        wait_until(lambda: primary.descriptor_count < before + 2 * MAX_STRANGERS, "the primary has closed most of them")
        primary.post("/pub", b"x", topic="t")
        assert pair.wait_until_in_sync()["epoch"] == 1


def test_each_host_whose_connection_is_closed_is_logged_once(start_pair: StartPair) -> None:
    pair, hosts = start_pair(lease=VERY_LONG_LEASE), ("127.0.0.2", "127.0.0.3")
    primary = pair.wait_for_primary()
    for host in hosts:
        for _ in range(3):
            with socket.create_connection((primary.host, MIRROR), source_address=(host, 0)) as stranger:
                stranger.sendall(NO_GREETING)
                assert stranger.recv(1) == b""
    primary.wait_for_log(f"MIRROR: the connection of {hosts[1]}:")
    closed = [line for line in primary.log if "MIRROR: the connection of" in line]
    assert [sum(f" {host}:" in line for line in closed) for host in hosts] == [1, 1]


@pytest.mark.parametrize("host", ["", "orders..example"], ids=["nobody listens there", "not the name of a host"])
def test_a_peer_that_cannot_be_reached_is_named(host: str, tmp_path: Path, etcd_server: EtcdServer) -> None:
    peer = host or own_address()
    member = Member("a", own_address(), peer, tmp_path, f"--arbiter=etcd://{etcd_server.address}/alone")
    try:
        member.start()
        member.wait_for_log(f"MIRROR: cannot connect to {re.escape(peer)}:{MIRROR}: .*")
        assert not [line for line in member.log if "Traceback" in line]
    finally:
        member.close()


def test_another_service_at_the_address_of_the_peer_is_named_once(tmp_path: Path, etcd_server: EtcdServer) -> None:
    """The port of ``--mirror-peer`` is that of an HTTP server, to which the member connects again and again."""
    arbiter, host = f"--arbiter=etcd://{etcd_server.address}/wrong-port", own_address()
    member = Member("a", own_address(), host, tmp_path, arbiter, f"--mirror-lease={LONG_LEASE}")
    with socket.create_server((host, MIRROR)) as server:
        server.settimeout(DEADLINE_S)
        try:
            member.start()
            for _ in range(ATTEMPTS):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(NO_WELCOME)
                    while connection.recv(4096):
                        pass
            assert sum("MIRROR: cannot follow: a frame of" in line for line in member.log) == 1
        finally:
            member.close()
