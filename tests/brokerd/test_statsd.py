"""The datagrams that are pushed to a statsd daemon."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest

from brokerd.memory import CollectorPauses
from brokerd.net.statsd import Statsd
from brokerd.settings import BrokerSettings
from tests.brokerd.test_policies import set_policy
from tests.brokerd.test_publish_ids import published
from tests.harness.waiting import DEADLINE_S, wait_until

MEMORY = [
    "mem.heap_objects|g",
    "mem.heap_idle_bytes|g",
    "mem.heap_in_use_bytes|g",
    "mem.heap_released_bytes|g",
    "mem.gc_pause_usec_100|g",
    "mem.gc_pause_usec_99|g",
    "mem.gc_pause_usec_95|g",
    "mem.next_gc_bytes|g",
    "mem.gc_runs|c",
]


SO_TIMESTAMPNS = 35  # of Linux; the socket module does not have it


class Daemon:
    """A UDP port that keeps the datagrams it receives."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(DEADLINE_S)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"

    def datagram(self) -> bytes:
        return self.socket.recv(65536)

    def datagram_and_arrival(self) -> tuple[bytes, float]:
        """A datagram, and the time in seconds at which the kernel received it."""
        data, [(_, _, stamp)], _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(16))
        seconds, nanoseconds = struct.unpack("@ll", stamp)
        return data, seconds + nanoseconds / 1e9

    def push(self, last: str) -> list[bytes]:
        """Return the datagrams up to the one whose last line has this name."""
        datagrams = [self.datagram()]
        while not datagrams[-1].splitlines()[-1].decode().partition(":")[0].endswith(last):
            datagrams.append(self.datagram())
        return datagrams


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    daemon.socket.close()


@pytest.fixture
def pushing(start_broker, daemon) -> Callable[..., object]:
    """Start a broker that pushes to the daemon every 1.2 s, under the prefix ``p.``."""

    def start(*flags: str):
        settings = ["--statsd-interval=1200ms", "--statsd-prefix=p"]
        names = {flag.partition("=")[0] for flag in flags}
        settings = [setting for setting in settings if setting.partition("=")[0] not in names]
        return start_broker(f"--statsd-address={daemon.address}", *settings, *flags)

    return start


OURS = "topic.t.channel.c"


def lines_of(datagrams: list[bytes]) -> dict[str, int]:
    """``name|type`` -> value, in order."""
    values = {}
    for line in b"".join(datagrams).decode().splitlines():
        name, _, rest = line.partition(":")
        value, _, kind = rest.partition("|")
        values[f"{name.removeprefix('p.')}|{kind}"] = int(value)
    return values


def publish(broker, topic, *bodies):
    for body in bodies:
        assert broker.request("POST", f"/pub?topic={topic}", body).status == 200


def test_names_types_and_order_are_nsqds(pushing, daemon, connect):
    """Topics and channels are sorted by name, memory follows; counters are increases, gauges are values."""
    broker = pushing("--e2e-processing-latency-percentile=0.999,0.5")
    broker.request("POST", "/topic/create?topic=a")
    broker.request("POST", "/channel/create?topic=a&channel=c")
    publish(broker, "b", b"12345", b"678")
    publish(broker, "a", b"x")
    consumer = connect(broker)
    consumer.ok(b"SUB a c\n")
    consumer.send(b"RDY 1\n")
    message_id, _, _ = consumer.message()
    consumer.ok(b"PUB a\n\x00\x00\x00\x02xx")
    consumer.send(b"REQ " + message_id + b" 60000\n")
    _, _, body = consumer.message()
    assert body == b"xx"
    first = lines_of(daemon.push("mem.gc_runs"))
    while first.get("topic.a.channel.c.in_flight_count|g") != 1:  # the first push may have come before all this
        first = {**lines_of(daemon.push("mem.gc_runs"))}
    assert list(first) == [
        "topic.a.message_count|c",
        "topic.a.message_bytes|c",
        "topic.a.depth|g",
        "topic.a.backend_depth|g",
        "topic.a.e2e_processing_latency_100|g",
        "topic.a.e2e_processing_latency_50|g",
        "topic.a.channel.c.message_count|c",
        "topic.a.channel.c.depth|g",
        "topic.a.channel.c.backend_depth|g",
        "topic.a.channel.c.in_flight_count|g",
        "topic.a.channel.c.deferred_count|g",
        "topic.a.channel.c.requeue_count|c",
        "topic.a.channel.c.timeout_count|c",
        "topic.a.channel.c.clients|g",
        "topic.a.channel.c.e2e_processing_latency_100|g",
        "topic.a.channel.c.e2e_processing_latency_50|g",
        "topic.b.message_count|c",
        "topic.b.message_bytes|c",
        "topic.b.depth|g",
        "topic.b.backend_depth|g",
        *MEMORY,
    ]
    assert first["topic.a.channel.c.deferred_count|g"] == 1
    assert first["topic.a.channel.c.clients|g"] == 1
    assert first["topic.b.depth|g"] == 2
    assert first["mem.heap_in_use_bytes|g"] > 1_000_000


def test_counters_are_the_increase_since_the_last_push(pushing, daemon):
    """The pushes add up to the total, and one without news sends 0."""
    broker = pushing("--statsd-mem-stats=false")
    publish(broker, "t", b"12345", b"678")
    pushed = lines_of(daemon.push("topic.t.backend_depth"))
    while pushed["topic.t.message_count|c"] < 2:  # the first push may have come in between
        later = lines_of(daemon.push("topic.t.backend_depth"))
        pushed["topic.t.message_count|c"] += later["topic.t.message_count|c"]
        pushed["topic.t.message_bytes|c"] += later["topic.t.message_bytes|c"]
    assert (pushed["topic.t.message_count|c"], pushed["topic.t.message_bytes|c"]) == (2, 8)
    again = lines_of(daemon.push("topic.t.backend_depth"))
    assert (again["topic.t.message_count|c"], again["topic.t.depth|g"]) == (0, 2)
    assert not [name for name in again if name.startswith("mem.")]


def test_dead_and_dropped_messages_are_pushed_of_the_channels_that_have_them(pushing, daemon):
    """After nsqd's lines of the channel: the dead ones now, and the increase of those that died and were dropped. They
    go on when none is left, or the daemon would repeat the last number."""
    broker = pushing("--statsd-mem-stats=false")
    broker.request("POST", "/topic/create?topic=t")
    for channel in ("c", "quiet"):
        broker.request("POST", f"/channel/create?topic=t&channel={channel}")
    set_policy(broker, "t", "c", max_depth=1, overflow="drop-oldest")
    [first] = published(broker, b"1")
    broker.post("/channel/bury", first.encode(), topic="t", channel="c")
    publish(broker, "t", b"2", b"3", b"4")
    totals = Counter[str]()

    def pushed_until(dead: int) -> dict[str, int]:
        while True:
            lines = lines_of(daemon.push("topic.t.channel.quiet.clients"))
            totals.update({name: value for name, value in lines.items() if name.endswith("|c")})
            if lines.get(f"{OURS}.dead_count|g") == dead and totals[f"{OURS}.dropped_count|c"] == 2:
                return lines

    lines = pushed_until(dead=1)
    names = [name.removeprefix(f"{OURS}.") for name in lines if name.startswith(OURS)]
    assert names[-4:] == ["clients|g", "dead_count|g", "died_count|c", "dropped_count|c"]
    assert [name for name in lines if ".quiet." in name][-1] == "topic.t.channel.quiet.clients|g"
    assert totals[f"{OURS}.died_count|c"] == 1
    broker.post("/channel/empty", topic="t", channel="c", state="dead")
    pushed_until(dead=0)
    again = lines_of(daemon.push("topic.t.channel.quiet.clients"))
    assert {name.rpartition(".")[2]: again[name] for name in again if name.startswith(OURS)}.items() >= {
        ("dead_count|g", 0),
        ("died_count|c", 0),
        ("dropped_count|c", 0),
    }


def test_a_topic_that_was_created_again_has_one_negative_increase(pushing, daemon):
    """As in nsqd, the sum of the pushes equals the new topic's figure."""
    broker = pushing("--statsd-mem-stats=false")
    publish(broker, "t", b"1", b"2", b"3")
    total = 0
    while total < 3:
        total += lines_of(daemon.push("topic.t.backend_depth"))["topic.t.message_count|c"]
    broker.request("POST", "/topic/delete?topic=t")
    publish(broker, "t", b"4")
    assert lines_of(daemon.push("topic.t.backend_depth"))["topic.t.message_count|c"] == -2


def test_ephemeral_topics_and_channels_can_be_omitted(pushing, daemon):
    """By default names keep their #ephemeral."""

    def make(broker):
        for topic in ("z", "e#ephemeral"):
            broker.request("POST", f"/topic/create?topic={topic.replace('#', '%23')}")
            for channel in ("c", "d#ephemeral"):
                query = f"topic={topic}&channel={channel}".replace("#", "%23")
                assert broker.request("POST", f"/channel/create?{query}").status == 200
        daemon.push("topic.z.channel.c.clients")  # the push may have begun before all were created

    make(pushing("--statsd-mem-stats=false", "--statsd-exclude-ephemeral"))
    names = lines_of(daemon.push("topic.z.channel.c.clients"))
    assert names
    assert not [name for name in names if "ephemeral" in name]


def test_ephemeral_ones_are_pushed_as_they_are_called(pushing, daemon):
    """By default nothing is left out, and the # is kept."""
    broker = pushing("--statsd-mem-stats=false")
    broker.request("POST", "/topic/create?topic=e%23ephemeral")
    broker.request("POST", "/channel/create?topic=e%23ephemeral&channel=d%23ephemeral")
    names = lines_of(daemon.push("clients"))
    assert "topic.e#ephemeral.message_count|c" in names
    assert "topic.e#ephemeral.channel.d#ephemeral.clients|g" in names


def test_datagrams_consist_of_whole_lines_and_are_spread_over_the_interval(pushing, daemon):
    """None is longer than the packet size unless one line is; the first is sent at once, the others at even
    intervals."""
    broker = pushing("--statsd-udp-packet-size=100", "--statsd-interval=2s")
    long_name = "n" * 64
    broker.request("POST", f"/topic/create?topic={long_name}")
    broker.request("POST", f"/channel/create?topic={long_name}&channel={long_name}")
    datagrams, arrivals = [], []
    while not datagrams or b"mem.gc_runs" not in datagrams[-1]:
        datagram, arrival = daemon.datagram_and_arrival()
        datagrams.append(datagram)
        arrivals.append(arrival)
    assert all(datagram.endswith(b"\n") for datagram in datagrams)
    assert all(len(datagram) <= 100 or datagram.count(b"\n") == 1 for datagram in datagrams)
    assert [datagram for datagram in datagrams if len(datagram) > 100], "the channel's lines are longer than a packet"
    assert any(datagram.count(b"\n") > 1 for datagram in datagrams)
    assert len(datagrams) > 8
    assert arrivals[-1] - arrivals[0] > 0.5
    assert list(lines_of(datagrams))[-1] == "mem.gc_runs|c"


def test_the_prefix_names_the_host_by_default(pushing, daemon):
    """%s is the broadcast address and port with underscores, which /config shows too."""
    broker = pushing("--statsd-prefix=nsq.%s", "--broadcast-address=10.0.0.1")
    prefix = f"nsq.10_0_0_1_{broker.http[1]}."
    assert daemon.datagram().decode().startswith(f"{prefix}mem.heap_objects:")
    assert broker.request("GET", "/config/statsd_prefix").text == prefix


def test_a_broker_that_stops_sends_the_rest_of_a_push(pushing, daemon):
    """SIGTERM in the middle of a push, and between two."""
    idle = pushing("--statsd-interval=30s", "--statsd-udp-packet-size=1")
    broker = pushing("--statsd-interval=4s", "--statsd-udp-packet-size=1")
    assert daemon.datagram().startswith(b"p.mem.heap_objects:")
    assert broker.terminate() == 0
    rest = [daemon.datagram() for _ in MEMORY[1:]]
    assert rest[-1].startswith(b"p.mem.gc_runs:")
    assert idle.terminate() == 0


async def test_the_end_does_not_wait_for_a_push(daemon):
    """The rest of a push over ten hours is sent at once."""
    hours = 10 * 3600
    loop, passed_s = asyncio.get_running_loop(), [0]
    real_time = loop.time
    loop.time = lambda: real_time() + passed_s[0]
    settings = BrokerSettings(
        statsd_address=daemon.address, statsd_interval=timedelta(seconds=hours), statsd_udp_packet_size=1
    )
    statsd = Statsd(SimpleNamespace(settings=settings, topics={}), None, CollectorPauses(), http_port=4151)
    pushing = asyncio.create_task(statsd.run())
    await asyncio.sleep(0)
    passed_s[0] = hours
    first = await asyncio.to_thread(daemon.datagram)
    pushing.cancel()
    rest = [await asyncio.to_thread(daemon.datagram) for _ in MEMORY[1:]]
    assert b"mem.heap_objects:" in first
    assert b"mem.gc_runs:" in rest[-1]


def test_a_daemon_that_is_gone_disturbs_nobody(start_broker, daemon):
    """A UDP port is closed: the broker goes on, and so do its pushes."""
    daemon.socket.close()
    broker = start_broker(f"--statsd-address={daemon.address}", "--statsd-interval=1100ms")
    wait_until(lambda: sum("STATSD: pushing stats to " in line for line in broker.log) >= 3)
    assert broker.request("GET", "/ping").status == 200
    assert not [line for line in broker.log if "ERROR" in line]
