"""IDENTIFY: negotiation, the reply, and the client's fields in /stats."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness import web
from tests.harness.daemon import Broker
from tests.harness.waiting import wait_until

RESPONSE = 0
Connect = Callable[..., Any]


def identify(**fields: object) -> bytes:
    body = json.dumps(fields).encode()
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


def negotiated(peer: Any, **fields: object) -> dict[str, Any]:
    kind, data = peer.command(identify(feature_negotiation=True, **fields))
    assert kind == RESPONSE
    return dict(json.loads(data))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    server = Broker(tmp_path_factory.mktemp("identify")).launch()
    yield server
    server.stop()


def clients(server: Broker, topic: str) -> list[dict[str, Any]]:
    url = "http://{}:{}/stats".format(*server.http)
    stats = web.get(url, params={"format": "json", "topic": topic}, trust_env=False).json()
    return list(stats["topics"][0]["channels"][0]["clients"])


def test_negotiation_answers_with_every_setting_in_nsqds_order(shared: Broker, connect: Connect) -> None:
    """Byte for byte nsqd's reply, except for the version."""
    kind, data = connect(shared.tcp).command(identify(feature_negotiation=True))
    version = json.loads(data)["version"]
    assert kind == RESPONSE
    assert (
        data
        == (
            b'{"max_rdy_count":2500,"version":"%b","max_msg_timeout":900000,"msg_timeout":60000,"tls_v1":false,'
            b'"deflate":false,"deflate_level":6,"max_deflate_level":6,"snappy":false,"sample_rate":0,"auth_required":false,'
            b'"output_buffer_size":16384,"output_buffer_timeout":250,"topology_region":"","topology_zone":""}'
        )
        % version.encode()
    )


def test_settings_of_the_server_are_in_the_reply(start_broker: Callable[..., Any], connect: Connect) -> None:
    """The reply contains the flags, but not the client's topology."""
    broker = start_broker(
        "--max-rdy-count=77",
        "--max-msg-timeout=2m",
        "--msg-timeout=30s",
        "--output-buffer-timeout=100ms",
        "--topology-region=eu",
        "--topology-zone=eu-1",
        "--max-deflate-level=3",
    )
    reply = negotiated(connect(broker), topology_region="us", topology_zone="us-9")
    expected = {
        "max_rdy_count": 77,
        "max_msg_timeout": 120_000,
        "msg_timeout": 30_000,
        "output_buffer_timeout": 100,
        "topology_region": "eu",
        "topology_zone": "eu-1",
        "max_deflate_level": 3,
        "deflate_level": 3,
    }
    assert {key: reply[key] for key in expected} == expected


def test_values_within_bounds_are_granted(shared: Broker, connect: Connect) -> None:
    """Message timeout, buffering and sampling are returned as requested."""
    asked = {"msg_timeout": 5000, "output_buffer_size": 128, "output_buffer_timeout": 50, "sample_rate": 42}
    reply = negotiated(connect(shared.tcp), **asked)
    assert {key: reply[key] for key in asked} == asked


def test_minus_one_disables_buffering(shared: Broker, connect: Connect) -> None:
    """output_buffer_size -1 is reported as 1, and nothing is buffered."""
    reply = negotiated(connect(shared.tcp), output_buffer_size=-1, output_buffer_timeout=1000)
    assert (reply["output_buffer_size"], reply["output_buffer_timeout"]) == (1, 0)
    reply = negotiated(connect(shared.tcp), output_buffer_timeout=-1)
    assert (reply["output_buffer_size"], reply["output_buffer_timeout"]) == (16384, 0)


def test_unavailable_features_are_answered_as_off(connect: Connect, start_broker: Callable[..., Any]) -> None:
    """The reply says that it is off, and the connection stays unchanged."""
    broker = start_broker("--deflate=false", "--snappy=false")
    peer = connect(broker.tcp)
    reply = negotiated(peer, tls_v1=True, deflate=True, snappy=True, deflate_level=9)
    assert (reply["tls_v1"], reply["deflate"], reply["snappy"]) == (False, False, False)
    peer.ok(b"PUB plain\n" + struct.pack(">i", 1) + b"x")


def test_a_second_identify_updates_the_clients_stats(shared: Broker, connect: Connect) -> None:
    """A second one is permitted until SUB; it counts, and names that it omits become empty."""
    peer = connect(shared.tcp)
    negotiated(peer, client_id="first", hostname="host", msg_timeout=2000)
    assert negotiated(peer, msg_timeout=3000, user_agent="second/1")["msg_timeout"] == 3000
    peer.ok(b"SUB identify-twice c\n")
    [client] = clients(shared, "identify-twice")
    assert (client["client_id"], client["hostname"], client["user_agent"]) == ("", "", "second/1")


def test_a_client_shows_in_stats_as_it_identified_itself(shared: Broker, connect: Connect) -> None:
    """Names, sampling and topology of the client; version, state and counters from the broker."""
    peer = connect(shared.tcp)
    peer.ok(
        identify(
            client_id="id",
            hostname="host",
            user_agent="agent/1",
            sample_rate=99,
            topology_region="eu",
            topology_zone="eu-1",
        )
    )
    peer.ok(b"SUB identify-stats c\n")
    [client] = clients(shared, "identify-stats")
    host, port = peer.socket.getsockname()
    expected = {
        "client_id": "id",
        "hostname": "host",
        "user_agent": "agent/1",
        "sample_rate": 99,
        "topology_region": "eu",
        "topology_zone": "eu-1",
        "version": "V2",
        "remote_address": f"{host}:{port}",
        "state": 3,
        "ready_count": 0,
        "in_flight_count": 0,
        "tls": False,
        "deflate": False,
        "snappy": False,
    }
    assert {key: client[key] for key in expected} == expected


def test_a_client_that_never_identifies_is_known_by_its_address(shared: Broker, connect: Connect) -> None:
    """client_id and hostname are the remote IP address, the user agent is empty."""
    peer = connect(shared.tcp)
    peer.ok(b"SUB identify-none c\n")
    [client] = clients(shared, "identify-none")
    assert (client["client_id"], client["hostname"], client["user_agent"]) == ("127.0.0.1", "127.0.0.1", "")


def test_states_show_as_numbers(shared: Broker, connect: Connect) -> None:
    """3 while subscribed, 4 after CLS; a disconnected client is gone."""
    peer = connect(shared.tcp)
    peer.ok(b"SUB identify-states c\n")
    assert clients(shared, "identify-states")[0]["state"] == 3
    assert peer.command(b"CLS\n") == (RESPONSE, b"CLOSE_WAIT")
    assert clients(shared, "identify-states")[0]["state"] == 4
    peer.socket.close()
    wait_until(lambda: clients(shared, "identify-states") == [])


def test_the_message_timeout_asked_for_is_the_one_that_counts(shared: Broker, connect: Connect) -> None:
    """A second instead of the broker's minute."""
    peer = connect(shared.tcp)
    peer.ok(identify(msg_timeout=1000))
    peer.ok(b"SUB identify-timeout c\n")
    connect(shared.tcp).ok(b"PUB identify-timeout\n" + struct.pack(">i", 1) + b"x")
    sent = time.monotonic()
    peer.send(b"RDY 1\n")
    peer.message()
    assert peer.message()[1] == 2
    assert time.monotonic() - sent >= 0.9


def test_sampling_drops_about_the_requested_share(shared: Broker, connect: Connect) -> None:
    """sample_rate 19 delivers about a fifth; the other messages are dropped, not left in the queue."""
    peer = connect(shared.tcp)
    peer.ok(identify(sample_rate=19))
    peer.ok(b"SUB identify-sample c\n")
    bodies = [b"%d" % i for i in range(2000)]
    batch = struct.pack(">i", len(bodies)) + b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    connect(shared.tcp).ok(b"MPUB identify-sample\n" + struct.pack(">i", len(batch)) + batch)
    peer.send(b"RDY 2500\n")
    url = "http://{}:{}/stats".format(*shared.http)

    def delivered() -> dict[str, Any] | None:
        stats = web.get(url, params={"format": "json", "topic": "identify-sample"}).json()
        channel: dict[str, Any] = stats["topics"][0]["channels"][0]
        return channel if channel["depth"] == 0 and channel["in_flight_count"] else None

    channel = wait_until(delivered, "every message is delivered or dropped")
    assert 280 <= channel["in_flight_count"] <= 540  # 400 expected; seven standard deviations
