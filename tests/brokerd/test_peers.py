"""A broker and its nsqlookupds, which a script plays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from brokerd.lookup_session import Identity, LookupSession, PeerFailed, registration
from brokerd.net.peers import LookupPeer
from tests.harness.waiting import wait_until

OK = b"OK"


class FakeLookup:
    """An nsqlookupd that records the commands it receives and answers as configured.

    ``said`` holds the commands of all connections in the order they came, ``connections`` how many there were.
    ``answer`` maps a command line to its reply; None keeps silent.
    """

    def __init__(self) -> None:
        self.said: list[str] = []
        self.identities: list[dict[str, object]] = []
        self.connections = 0
        self.answer: Callable[[str], bytes | None] = lambda line: OK
        self.identify_reply: bytes | None = None
        self.open: list[socket.socket] = []
        self.http_port = 0
        fake = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                # a peer that gives up may close the connection before it has read
                with contextlib.suppress(ConnectionResetError):
                    self.converse()

            def converse(self) -> None:
                fake.connections += 1
                fake.open.append(self.connection)
                if self.rfile.read(4) != b"  V1":
                    return
                while line := self.rfile.readline().decode().rstrip("\n"):
                    reply = fake.answer(line)
                    if line == "IDENTIFY":
                        (size,) = struct.unpack(">i", self.rfile.read(4))
                        fake.identities.append(json.loads(self.rfile.read(size)))
                        reply = fake.identify_reply if fake.identify_reply is not None else fake.identity()
                    fake.said.append(line)
                    if reply is not None:
                        self.wfile.write(struct.pack(">i", len(reply)) + reply)

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.server.daemon_threads = True
        self.server.allow_reuse_address = True
        self.server.server_bind()
        self.server.server_activate()
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def identity(self) -> bytes:
        me = {"broadcast_address": "127.0.0.1", "hostname": "h", "http_port": self.http_port, "tcp_port": 1}
        return json.dumps({**me, "version": "1.3.0"}).encode()

    def drop_connections(self) -> None:
        for connection in self.open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open.clear()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.drop_connections()


@pytest.fixture
def lookups() -> Iterator[Callable[[], FakeLookup]]:
    """Start scripted nsqlookupds; all are closed at the end."""
    started: list[FakeLookup] = []

    def start() -> FakeLookup:
        started.append(FakeLookup())
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def lookup(lookups) -> FakeLookup:
    return lookups()


def test_identify_contains_the_addresses_for_clients(start_broker, lookup):
    """The identity has nsqd's keys; ports are those of the listeners unless others are configured."""
    broker = start_broker(f"--lookupd-tcp-address={lookup.address}", "--broadcast-address=me", "--topology-zone=z")
    wait_until(lambda: lookup.identities)
    assert lookup.identities[0] == {
        "broadcast_address": "me",
        "hostname": socket.gethostname(),
        "http_port": broker.http[1],
        "tcp_port": broker.tcp[1],
        "topology_region": "",
        "topology_zone": "z",
        "version": "1.3.0",
    }
    start_broker(f"--lookupd-tcp-address={lookup.address}", "--broadcast-tcp-port=1", "--broadcast-http-port=2")
    wait_until(lambda: len(lookup.identities) == 2)
    assert (lookup.identities[1]["tcp_port"], lookup.identities[1]["http_port"]) == (1, 2)


def test_topics_and_channels_are_registered_as_they_come_and_go(start_broker, lookup):
    """Each creation and deletion is registered at once, ephemeral ones too."""
    broker = start_broker(f"--lookupd-tcp-address={lookup.address}")
    wait_until(lambda: "IDENTIFY" in lookup.said)
    for target in (
        "/topic/create?topic=t",
        "/channel/create?topic=t&channel=c",
        "/channel/create?topic=t&channel=e%23ephemeral",
        "/channel/delete?topic=t&channel=c",
        "/topic/delete?topic=t",
    ):
        assert broker.request("POST", target).status == 200
    expected = [
        "REGISTER t",
        "REGISTER t c",
        "REGISTER t e#ephemeral",
        "UNREGISTER t c",
        "UNREGISTER t e#ephemeral",
        "UNREGISTER t",
    ]
    wait_until(lambda: len(lookup.said) == 1 + len(expected))
    assert lookup.said == ["IDENTIFY", *expected]


def test_existing_topics_are_registered_on_connecting(start_broker, lookup):
    """A restarted broker registers every channel, and topics without channels."""
    first = start_broker()
    for target in ("/topic/create?topic=bare", "/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
        first.request("POST", target)
    first.terminate()
    start_broker(f"--lookupd-tcp-address={lookup.address}", data_path=first.data_path)
    wait_until(lambda: len(lookup.said) == 3)
    assert sorted(lookup.said) == ["IDENTIFY", "REGISTER bare", "REGISTER t c"]


def test_thousands_of_topics_are_registered_in_one_go(start_broker, lookup):
    """More registrations than fit one batch all arrive, each once."""
    first = start_broker()
    for number in range(700):
        first.request("POST", f"/topic/create?topic=t{number}")
    first.terminate()
    start_broker(f"--lookupd-tcp-address={lookup.address}", data_path=first.data_path)
    wait_until(lambda: len(lookup.said) == 701)
    assert sorted(lookup.said[1:]) == sorted(f"REGISTER t{number}" for number in range(700))


def test_after_a_lost_connection_the_next_change_registers_everything_again(start_broker, lookup):
    """A new connection begins with IDENTIFY and registers everything again."""
    broker = start_broker(f"--lookupd-tcp-address={lookup.address}")
    broker.request("POST", "/topic/create?topic=a")
    wait_until(lambda: "REGISTER a" in lookup.said)
    lookup.drop_connections()
    lookup.said.clear()
    broker.request("POST", "/topic/create?topic=b")
    broker.wait_for_log(rf"ERROR: LOOKUPD\({lookup.address}\): ")
    broker.request("POST", "/topic/create?topic=c")
    wait_until(lambda: len(lookup.said) == 4)
    assert (lookup.said[0], sorted(lookup.said[1:])) == ("IDENTIFY", ["REGISTER a", "REGISTER b", "REGISTER c"])


def test_a_registry_that_is_down_delays_nobody(start_broker, lookup):
    """One that refuses connections and one that never answers affect neither publishing nor the other registry."""
    silent = socket.create_server(("127.0.0.1", 0))
    refusing = socket.create_server(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (silent, refusing)]
    refusing.close()
    broker = start_broker(*(f"--lookupd-tcp-address={address}" for address in [*addresses, lookup.address]))
    assert broker.request("POST", "/pub?topic=t", b"x").text == "OK"
    wait_until(lambda: "REGISTER t" in lookup.said)
    broker.wait_for_log(rf"ERROR: LOOKUPD\({addresses[1]}\): ")
    broker.wait_for_log(rf"ERROR: LOOKUPD\({addresses[0]}\): no reply in time")
    silent.close()
    assert broker.terminate() == 0


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:70000", "'70000' is not a port"),  # the system takes the lowest 16 bits of a number
        ("127.0.0.1:x", "'x' is not a port"),
        ("127.0.0.1", "missing port in address"),
    ],
)
def test_an_address_of_a_registry_that_is_none_is_named_in_the_log(start_broker, lookup, address, reason):
    """The broker goes on, and registers with the other one."""
    broker = start_broker(f"--lookupd-tcp-address={address}", f"--lookupd-tcp-address={lookup.address}")
    broker.wait_for_log(rf"ERROR: LOOKUPD\({address}\): address '{address}': {reason}")
    broker.request("POST", "/topic/create?topic=t")
    wait_until(lambda: "REGISTER t" in lookup.said)


@pytest.mark.parametrize(
    "reply",
    [b"E_INVALID", b"E_BAD_BODY IDENTIFY missing fields", b"OK", b"[1]", b'{"tcp_port":"x"}', b"\xff\x00"],
)
def test_a_peer_that_refuses_identify_is_sent_nothing_more(start_broker, lookup, reply):
    """The connection is closed and the reason logged; the broker goes on."""
    lookup.identify_reply = reply
    broker = start_broker(f"--lookupd-tcp-address={lookup.address}")
    broker.wait_for_log(rf"ERROR: LOOKUPD\({lookup.address}\): IDENTIFY answered with ")
    assert lookup.said == ["IDENTIFY"]
    assert broker.request("GET", "/ping").text == "OK"


def test_an_error_reply_is_logged_and_the_connection_reopened(start_broker, lookup):
    """The next change opens a new connection."""
    lookup.answer = lambda line: b"E_BAD_TOPIC REGISTER topic name 't' is not valid" if line == "REGISTER t" else OK
    broker = start_broker(f"--lookupd-tcp-address={lookup.address}")
    wait_until(lambda: lookup.said)
    broker.request("POST", "/topic/create?topic=t")
    broker.wait_for_log(r"ERROR: LOOKUPD\(.*REGISTER t answered with E_BAD_TOPIC")
    lookup.answer = lambda line: OK
    broker.request("POST", "/topic/create?topic=u")
    wait_until(lambda: {"REGISTER t", "REGISTER u"} <= set(lookup.said[2:]))
    assert lookup.connections == 2


def test_lookups_can_be_replaced_while_running(start_broker, lookups):
    """The new one receives all registrations at once; the connection to the old one is closed."""
    old, new = lookups(), lookups()
    broker = start_broker(f"--lookupd-tcp-address={old.address}")
    broker.request("POST", "/topic/create?topic=t")
    wait_until(lambda: "REGISTER t" in old.said)
    broker.request("PUT", "/config/nsqlookupd_tcp_addresses", json.dumps([new.address]).encode())
    wait_until(lambda: new.said == ["IDENTIFY", "REGISTER t"])
    broker.request("POST", "/topic/create?topic=u")
    wait_until(lambda: "REGISTER u" in new.said)
    assert "REGISTER u" not in old.said


def test_an_unanswered_request_for_channels_delays_a_topic_briefly(start_broker, lookup, connect):
    """Once the request has timed out, the topic works without the answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        lookup.http_port = silent.getsockname()[1]
        broker = start_broker(f"--lookupd-tcp-address={lookup.address}", "--http-client-request-timeout=200ms")
        broker.wait_for_log(r"LOOKUPD\(.*\): peer info")
        consumer, producer = connect(broker), connect(broker)
        consumer.ok(b"SUB t c\n")
        consumer.send(b"RDY 1\n")
        producer.ok(b"PUB t\n\x00\x00\x00\x01x")
        assert consumer.message()[2] == b"x"
        broker.wait_for_log("WARNING: failed to query nsqlookupds for channels to pre-create for topic t")


def test_a_topic_that_is_deleted_while_lookup_is_asked_leaves_nothing_behind(start_broker, lookup, connect):
    """nsq_tail subscribes to a new topic, which is deleted before the registry has answered: after a kill the node
    starts."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        lookup.http_port = silent.getsockname()[1]
        broker = start_broker(f"--lookupd-tcp-address={lookup.address}", "--http-client-request-timeout=200ms")
        broker.wait_for_log(r"LOOKUPD\(.*\): peer info")
        assert broker.request("POST", "/pub?topic=kept", b"x").text == "OK"
        broker.wait_for_log("failed to query nsqlookupds for channels to pre-create for topic kept")
        connect(broker).ok(b"SUB t tail#ephemeral\n")
        assert broker.request("POST", "/topic/delete?topic=t").status == 200
        broker.wait_for_log("failed to query nsqlookupds for channels to pre-create for topic t")
        assert [topic["topic_name"] for topic in broker.stats()["topics"]] == ["kept"]
        broker.kill()
    again = start_broker(data_path=broker.data_path)
    assert [(topic["topic_name"], topic["depth"]) for topic in again.stats()["topics"]] == [("kept", 1)]
    assert not [line for line in again.log if "WARNING" in line or "ERROR" in line]


IDENTITY = Identity(
    broadcast_address="b", hostname="h", http_port=1, tcp_port=2, topology_region="", topology_zone="", version="1.3.0"
)
TOLD = b'{"broadcast_address":"r","hostname":"h","http_port":4161,"tcp_port":4160,"version":"1.3.0"}'


def framed(*replies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(reply)) + reply for reply in replies)


def test_a_conversation_may_arrive_byte_by_byte():
    """Replies are matched to commands however the stream is split."""
    session = LookupSession(IDENTITY, max_reply_size=1000)
    sent = session.take_output()
    assert sent.startswith(b"  V1IDENTIFY\n")
    assert json.loads(sent[17:])["broadcast_address"] == "b"
    session.send([registration("register", "t", None), registration("unregister", "t", "c")])
    assert session.take_output() == b"REGISTER t\nUNREGISTER t c\n"
    stream = framed(TOLD, OK, OK)
    for position in range(len(stream)):
        assert session.outstanding_replies > 0
        session.received(stream[position : position + 1])
    assert session.outstanding_replies == 0
    assert session.info is not None
    assert (session.info.broadcast_address, session.info.http_port, session.info.tcp_port) == ("r", 4161, 4160)


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (struct.pack(">i", -1), "reply of -1 bytes"),
        (struct.pack(">i", 1001), "reply of 1001 bytes"),
        (framed(TOLD, OK), "reply to no command: OK"),
    ],
)
def test_a_stream_that_is_not_nsqlookupds_is_given_up(stream, complaint):
    """Invalid sizes and unexpected replies end the connection."""
    session = LookupSession(IDENTITY, max_reply_size=1000)
    with pytest.raises(PeerFailed, match=complaint):
        session.received(stream)


async def test_the_peer_is_pinged_so_that_it_counts_the_broker_as_alive(lookup):
    """PING is sent at each interval; after a lost connection, it opens the next one."""
    peer = LookupPeer(
        lookup.address, IDENTITY, lambda: [registration("register", "t", None)], max_reply=1000, ping_interval_s=0.05
    )
    try:
        await asyncio.to_thread(wait_until, lambda: lookup.said.count("PING") >= 2)
        assert lookup.said[:3] == ["IDENTIFY", "REGISTER t", "PING"]
        assert lookup.connections == 1
        lookup.drop_connections()
        await asyncio.to_thread(wait_until, lambda: lookup.said.count("REGISTER t") == 2)
        assert lookup.connections == 2
    finally:
        await peer.close()
