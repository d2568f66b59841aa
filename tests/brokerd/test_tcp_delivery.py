"""What a consumer gets and when: RDY, FIN, REQ, TOUCH, timeouts, deferral, pausing, fairness, leaving."""

from __future__ import annotations

import json
import select
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from bench.server import Server, start_brokerd

RESPONSE, ERROR, MESSAGE = 0, 1, 2
EARLY_S = 0.02
"""How much sooner than due the clocks of two processes may make an event look."""
SILENCE_S = 0.15

Connect = Callable[..., Any]
Eventually = Callable[[Callable[[], Any]], Any]
NEXT = count()


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def pub(topic: str, body: bytes) -> bytes:
    return f"PUB {topic}\n".encode() + sized(body)


def dpub(topic: str, defer_ms: int, body: bytes) -> bytes:
    return f"DPUB {topic} {defer_ms}\n".encode() + sized(body)


def mpub(topic: str, bodies: list[bytes]) -> bytes:
    return f"MPUB {topic}\n".encode() + sized(struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies)))


def identify(**fields: object) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps(fields).encode())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One broker for all of these tests; each has a topic of its own."""
    server = start_brokerd(tmp_path_factory.mktemp("delivery"), "--max-msg-timeout=3s", "--max-req-timeout=2s")
    yield server
    server.stop()


@pytest.fixture
def topic() -> str:
    return f"delivery{next(NEXT)}"


class Board:
    """The broker's HTTP side, for one topic."""

    def __init__(self, server: Server, topic: str) -> None:
        self.url = "http://{}:{}".format(*server.http)
        self.topic = topic

    def topic_stats(self) -> dict[str, Any]:
        query = {"format": "json", "topic": self.topic}
        [topic] = httpx.get(f"{self.url}/stats", params=query, trust_env=False).json()["topics"]
        return dict(topic)

    def channel(self, name: str = "c") -> dict[str, Any]:
        return {each["channel_name"]: each for each in self.topic_stats()["channels"]}[name]

    def post(self, path: str, channel: str | None = None) -> None:
        query = {"topic": self.topic} | ({"channel": channel} if channel else {})
        assert httpx.post(self.url + path, params=query, trust_env=False).status_code == 200


@pytest.fixture
def board(shared: Server, topic: str) -> Board:
    return Board(shared, topic)


Subscribe = Callable[..., Any]


@pytest.fixture
def subscribe(shared: Server, topic: str, connect: Connect) -> Subscribe:
    """Open a consumer on channel ``c`` of the test's topic: ``subscribe(ready_count, channel=…, **identify)``."""

    def open_(ready_count: int = 0, *, channel: str = "c", **fields: object) -> Any:
        peer = connect(shared.tcp)
        if fields:
            peer.ok(identify(**fields))
        peer.ok(f"SUB {topic} {channel}\n".encode())
        if ready_count:
            peer.send(b"RDY %d\n" % ready_count)
        return peer

    return open_


@pytest.fixture
def publisher(shared: Server, connect: Connect) -> Any:
    return connect(shared.tcp)


def is_silent(peer: Any, seconds: float = SILENCE_S) -> bool:
    """True when nothing arrives for ``seconds``: the one thing that only waiting can show."""
    return not select.select([peer.socket], [], [], seconds)[0]


def bodies(peer: Any, number: int) -> list[bytes]:
    return [peer.message()[2] for _ in range(number)]


# Messages


def test_a_message_carries_its_time_its_first_attempt_and_an_id(
    topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """Timestamp in nanoseconds of the publish, attempts 1, sixteen hex digits, the body untouched."""
    peer = subscribe(1)
    before = time.time_ns()
    publisher.ok(pub(topic, bytes(range(256))))
    after = time.time_ns()
    kind, data = peer.frame()
    timestamp, attempts = struct.unpack_from(">qH", data)
    assert (kind, attempts, data[26:]) == (MESSAGE, 1, bytes(range(256)))
    assert before <= timestamp <= after
    assert len(data[10:26]) == 16
    assert set(data[10:26]) <= set(b"0123456789abcdef")


def test_a_batch_arrives_whole_and_in_order_with_ids_of_its_own(
    topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """Sizes from a byte to a tenth of a megabyte."""
    sent = [b"%d" % size + b"." * size for size in (0, 1, 100, 4096, 65536, 100_000)]
    peer = subscribe(100)
    publisher.ok(mpub(topic, sent))
    got = [peer.message() for _ in sent]
    assert [body for _, _, body in got] == sent
    assert len({message_id for message_id, _, _ in got}) == len(sent)
    assert {attempts for _, attempts, _ in got} == {1}


def test_every_channel_gets_every_message(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Same id, same timestamp, same body."""
    first, second = subscribe(10, channel="a"), subscribe(10, channel="b")
    publisher.ok(mpub(topic, [b"x", b"y"]))
    assert [first.frame(), first.frame()] == [second.frame(), second.frame()]


def test_the_first_channel_gets_what_waited_in_the_topic(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Messages published before there was a channel go to the first one; a later channel starts empty."""
    publisher.ok(mpub(topic, [b"early", b"too"]))
    assert bodies(subscribe(10, channel="first"), 2) == [b"early", b"too"]
    second = subscribe(10, channel="second")
    publisher.ok(pub(topic, b"late"))
    assert bodies(second, 1) == [b"late"]


def test_two_publishers_share_a_topic(
    topic: str, subscribe: Subscribe, publisher: Any, connect: Connect, shared: Server
) -> None:
    """Nothing of either is lost or mixed up."""
    peer, other = subscribe(2500), connect(shared.tcp)
    for i in range(50):
        publisher.send(pub(topic, b"one %d" % i))
        other.send(mpub(topic, [b"two %d" % i, b"three %d" % i]))
    got = Counter(bodies(peer, 150))
    assert got == Counter(b"%b %d" % (name, i) for i in range(50) for name in (b"one", b"two", b"three"))


# RDY


def test_nothing_is_sent_before_rdy(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """RDY starts at 0."""
    peer = subscribe()
    publisher.ok(pub(topic, b"x"))
    assert is_silent(peer)
    peer.send(b"RDY 1\n")
    assert bodies(peer, 1) == [b"x"]


def test_rdy_bounds_what_is_in_flight(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """Three at most are out at a time; each FIN makes room for one more."""
    peer = subscribe(3)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(10)]))
    ids = [peer.message()[0] for _ in range(3)]
    assert is_silent(peer)
    assert (board.channel()["in_flight_count"], board.channel()["depth"]) == (3, 7)
    for _ in range(7):
        peer.send(b"FIN %b\n" % ids.pop(0))
        ids.append(peer.message()[0])
    assert is_silent(peer)


def test_rdy_may_be_lowered_below_what_is_in_flight(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Nothing more comes until enough is finished."""
    peer = subscribe(5)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(10)]))
    ids = [peer.message()[0] for _ in range(5)]
    peer.send(b"RDY 2\n" + b"".join(b"FIN %b\n" % each for each in ids[:3]))
    assert is_silent(peer)
    peer.send(b"FIN %b\n" % ids[3])
    peer.message()
    assert is_silent(peer)


def test_rdy_0_pauses_a_consumer(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Until it raises RDY again; another consumer is served meanwhile."""
    peer = subscribe(1)
    peer.send(b"RDY 0\n")
    peer.ok(pub(topic + "-barrier", b"x"))  # answered once RDY 0 has been read
    publisher.ok(pub(topic, b"x"))
    assert is_silent(peer)
    assert bodies(subscribe(1), 1) == [b"x"]


def test_idle_consumers_are_served_in_turn(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Sixty messages, one by one, to three consumers with RDY 1: twenty each."""
    peers = [subscribe(1) for _ in range(3)]
    served: Counter[int] = Counter()
    for i in range(60):
        publisher.ok(pub(topic, b"%d" % i))
        ready = select.select([peer.socket for peer in peers], [], [], 10)[0]
        [number] = [n for n, peer in enumerate(peers) if peer.socket in ready]
        served[number] += 1
        peers[number].send(b"FIN %b\n" % peers[number].message()[0])
        peers[number].ok(pub(topic + "-barrier", b"x"))
    assert served == {0: 20, 1: 20, 2: 20}


def test_a_batch_is_shared_among_ready_consumers(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board, eventually: Eventually
) -> None:
    """None of three consumers with RDY 100 takes all of 90 messages."""
    for _ in range(3):
        subscribe(100)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(90)]))
    eventually(lambda: board.channel()["in_flight_count"] == 90)
    shares = [client["in_flight_count"] for client in board.channel()["clients"]]
    assert sum(shares) == 90
    assert min(shares) >= 15, shares


# FIN, REQ, TOUCH


def test_a_finished_message_is_gone(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """A second FIN of it is refused, without losing the connection."""
    peer = subscribe(1)
    publisher.ok(pub(topic, b"x"))
    message_id = peer.message()[0]
    peer.send(b"FIN %b\n" % message_id)
    expected = b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id
    assert peer.command(b"FIN %b\n" % message_id) == (ERROR, expected)
    channel = board.channel()
    assert (channel["depth"], channel["in_flight_count"], channel["message_count"]) == (0, 0, 1)
    assert channel["clients"][0]["finish_count"] == 1


def test_finishing_out_of_order(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """Every second one, then the rest backwards; nothing is left and nothing comes again."""
    peer = subscribe(2500)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(500)]))
    ids = [peer.message()[0] for _ in range(500)]
    for message_id in [*ids[1::2], *reversed(ids[0::2])]:
        peer.send(b"FIN %b\n" % message_id)
    peer.ok(pub(topic + "-barrier", b"x"))
    assert (board.channel()["depth"], board.channel()["in_flight_count"]) == (0, 0)
    assert is_silent(peer)


@pytest.mark.parametrize(("command", "rest"), [(b"FIN", b""), (b"REQ", b" 0"), (b"TOUCH", b"")])
def test_only_the_owner_may_answer_for_a_message(
    command: bytes, rest: bytes, topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """Another consumer of the channel is refused, and the owner still can."""
    owner, other = subscribe(1), subscribe()
    publisher.ok(pub(topic, b"x"))
    message_id = owner.message()[0]
    expected = b"E_%b_FAILED %b %b failed client does not own message" % (command, command, message_id)
    assert other.command(b"%b %b%b\n" % (command, message_id, rest)) == (ERROR, expected)
    owner.send(b"FIN %b\n" % message_id)
    owner.ok(pub(topic + "-barrier", b"x"))


def test_the_same_id_may_be_in_flight_on_two_channels(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """A FIN on one says nothing about the other."""
    first, second = subscribe(1, channel="a"), subscribe(1, channel="b")
    publisher.ok(pub(topic, b"x"))
    message_id = first.message()[0]
    first.send(b"FIN %b\n" % message_id)
    first.ok(pub(topic + "-barrier", b"x"))
    assert second.message()[0] == message_id
    second.send(b"REQ %b 0\n" % message_id)
    assert second.message()[:2] == (message_id, 2)


def test_a_requeued_message_comes_back_with_one_more_attempt(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """REQ 0 at once; same id, same timestamp, same body."""
    peer = subscribe(1)
    publisher.ok(pub(topic, b"body"))
    _, first = peer.frame()
    for attempts in range(2, 6):
        peer.send(b"REQ %b 0\n" % first[10:26])
        _, again = peer.frame()
        assert again == first[:8] + struct.pack(">H", attempts) + first[10:]
    assert board.channel()["requeue_count"] == 4
    assert board.channel()["timeout_count"] == 0


def test_a_delayed_requeue_comes_back_when_it_is_due(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Not before 300 ms, counted as deferred until then, and RDY has room for others meanwhile."""
    peer = subscribe(1)
    publisher.ok(pub(topic, b"late"))
    message_id, _, _ = peer.message()
    peer.send(b"REQ %b 300\n" % message_id)
    sent = time.monotonic()
    peer.ok(pub(topic + "-barrier", b"x"))
    channel = board.channel()
    assert (channel["deferred_count"], channel["in_flight_count"], channel["depth"]) == (1, 0, 0)
    publisher.ok(pub(topic, b"meanwhile"))
    other, _, body = peer.message()
    assert body == b"meanwhile"
    peer.send(b"FIN %b\n" % other)
    assert peer.message() == (message_id, 2, b"late")
    assert time.monotonic() - sent >= 0.3 - EARLY_S


def test_a_requeue_beyond_the_longest_delay_is_clamped(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """No error: --max-req-timeout is 2 s here. A delay that overflows to below zero counts as none."""
    peer = subscribe(2)
    publisher.ok(mpub(topic, [b"long", b"overflow"]))
    (long, _, _), (overflow, _, _) = peer.message(), peer.message()
    peer.send(b"REQ %b 3600000\nREQ %b 9223372036854775807\n" % (long, overflow))
    sent = time.monotonic()
    assert peer.message()[:2] == (overflow, 2)
    assert peer.message()[:2] == (long, 2)
    assert time.monotonic() - sent >= 2 - EARLY_S


def test_requeues_come_back_in_the_order_of_their_times(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Whatever order they were asked for in."""
    peer = subscribe(10)
    publisher.ok(mpub(topic, [b"300", b"100", b"200"]))
    for _ in range(3):
        message_id, _, body = peer.message()
        peer.send(b"REQ %b %b\n" % (message_id, body))
    assert bodies(peer, 3) == [b"100", b"200", b"300"]


def test_a_timed_out_message_returns_with_one_more_attempt(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """A consumer that goes quiet loses its message to the next one, and its FIN then comes too late."""
    slow = subscribe(1, msg_timeout=1000)
    publisher.ok(pub(topic, b"x"))
    message_id, attempts, _ = slow.message()
    sent = time.monotonic()
    slow.send(b"RDY 0\n")
    assert attempts == 1
    assert subscribe(1).message() == (message_id, 2, b"x")
    assert time.monotonic() - sent >= 1 - EARLY_S - SILENCE_S
    assert board.channel()["timeout_count"] == 1
    assert board.channel()["requeue_count"] == 0
    expected = b"E_FIN_FAILED FIN %b failed client does not own message" % message_id
    assert slow.command(b"FIN %b\n" % message_id) == (ERROR, expected)


def test_a_timed_out_message_nobody_took_is_not_in_flight(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board, eventually: Eventually
) -> None:
    """It waits in the channel again; the FIN says so."""
    peer = subscribe(1, msg_timeout=1000)
    publisher.ok(pub(topic, b"x"))
    message_id = peer.message()[0]
    peer.send(b"RDY 0\n")
    eventually(lambda: board.channel()["timeout_count"] == 1)
    assert (board.channel()["depth"], board.channel()["in_flight_count"]) == (1, 0)
    expected = b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id
    assert peer.command(b"FIN %b\n" % message_id) == (ERROR, expected)


def test_touch_gives_a_message_more_time_up_to_a_limit(topic: str, subscribe: Subscribe, publisher: Any) -> None:
    """Touched often, it stays out beyond its timeout of 1 s, but not beyond --max-msg-timeout, 3 s here."""
    peer = subscribe(1, msg_timeout=1000)
    publisher.ok(pub(topic, b"x"))
    message_id = peer.message()[0]
    sent = time.monotonic()
    while is_silent(peer, 0.3):
        assert time.monotonic() - sent < 10
        peer.send(b"TOUCH %b\n" % message_id)
    assert time.monotonic() - sent >= 3 - EARLY_S - SILENCE_S
    assert peer.message() == (message_id, 2, b"x")


# Deferred publishing


def test_a_deferred_publish_arrives_when_it_is_due(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Not before, and what was published after it does not wait for it."""
    peer = subscribe(10)
    sent = time.monotonic()
    publisher.ok(dpub(topic, 300, b"later"))
    publisher.ok(pub(topic, b"now"))
    assert bodies(peer, 1) == [b"now"]
    assert board.channel()["deferred_count"] == 1
    assert board.channel()["depth"] == 0
    assert peer.message()[1:] == (1, b"later")
    assert time.monotonic() - sent >= 0.3 - EARLY_S
    assert board.channel()["deferred_count"] == 0


def test_deferred_messages_arrive_on_every_channel_in_order_of_time(
    topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """Later deadlines later, on each channel."""
    peers = [subscribe(10, channel=name) for name in ("a", "b")]
    for delay in (400, 100, 250, 0):
        publisher.ok(dpub(topic, delay, b"%d" % delay))
    for peer in peers:
        assert bodies(peer, 4) == [b"0", b"100", b"250", b"400"]


def test_a_deferred_message_can_be_requeued_and_finished(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Once delivered it is like any other."""
    peer = subscribe(1)
    publisher.ok(dpub(topic, 50, b"x"))
    message_id, attempts, _ = peer.message()
    peer.send(b"REQ %b 0\n" % message_id)
    assert (attempts, peer.message()) == (1, (message_id, 2, b"x"))
    peer.send(b"FIN %b\n" % message_id)
    peer.ok(pub(topic + "-barrier", b"x"))
    channel = board.channel()
    assert (channel["depth"], channel["in_flight_count"], channel["deferred_count"]) == (0, 0, 0)


# CLS, leaving


def test_cls_stops_delivery_but_lets_answers_in(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """After CLOSE_WAIT nothing new comes; FIN and REQ of what is in flight still count."""
    peer = subscribe(3)
    publisher.ok(mpub(topic, [b"%d" % i for i in range(5)]))
    ids = [peer.message()[0] for _ in range(3)]
    assert peer.command(b"CLS\n") == (RESPONSE, b"CLOSE_WAIT")
    peer.send(b"FIN %b\nREQ %b 0\nTOUCH %b\nRDY 10\n" % (ids[0], ids[1], ids[2]))
    peer.ok(pub(topic + "-barrier", b"x"))
    assert is_silent(peer)
    channel = board.channel()
    assert (channel["in_flight_count"], channel["depth"], channel["requeue_count"]) == (1, 3, 1)


def test_a_leaving_consumers_messages_go_to_the_next_at_once(
    topic: str, subscribe: Subscribe, publisher: Any, connect: Connect, shared: Server
) -> None:
    """Not after their timeout of a minute; with one more attempt."""
    leaving = subscribe(10)
    publisher.ok(mpub(topic, [b"a", b"b", b"c"]))
    message_id = leaving.message()[0]
    bodies(leaving, 2)
    leaving.send(b"FIN %b\n" % message_id)
    leaving.socket.close()
    staying = subscribe(10)
    assert sorted(staying.message()[1:] for _ in range(2)) == [(2, b"b"), (2, b"c")]


def test_a_consumer_refused_for_an_error_gives_its_messages_back(
    topic: str, subscribe: Subscribe, publisher: Any
) -> None:
    """A fatal error is a way of leaving too."""
    peer = subscribe(1)
    publisher.ok(pub(topic, b"x"))
    message_id = peer.message()[0]
    assert peer.command(b"RDY 9999\n")[0] == ERROR
    assert subscribe(1).message() == (message_id, 2, b"x")


# Pausing, emptying, deleting


def test_a_paused_channel_sends_nothing(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """Publishing goes on, another channel is served, and unpausing sends what waited."""
    peer, other = subscribe(10), subscribe(10, channel="other")
    board.post("/channel/pause", "c")
    publisher.ok(pub(topic, b"x"))
    assert bodies(other, 1) == [b"x"]
    assert is_silent(peer)
    assert board.channel()["paused"] is True
    assert board.channel()["depth"] == 1
    board.post("/channel/unpause", "c")
    assert bodies(peer, 1) == [b"x"]


def test_a_paused_channel_still_takes_answers_and_times_out(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board, eventually: Eventually
) -> None:
    """In-flight messages go on living."""
    peer = subscribe(2, msg_timeout=1000)
    publisher.ok(mpub(topic, [b"a", b"b"]))
    message_id = peer.message()[0]
    peer.message()
    board.post("/channel/pause", "c")
    peer.send(b"FIN %b\n" % message_id)
    eventually(lambda: board.channel()["timeout_count"] == 1)
    assert (board.channel()["in_flight_count"], board.channel()["depth"]) == (0, 1)
    assert is_silent(peer)


def test_a_paused_topic_hands_nothing_to_its_channels(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """What is published waits in the topic; what the channel had already is still served."""
    peer = subscribe()
    publisher.ok(pub(topic, b"before"))
    board.post("/topic/pause")
    publisher.ok(mpub(topic, [b"after", b"that"]))
    stats = board.topic_stats()
    assert (stats["paused"], stats["depth"], stats["channels"][0]["depth"]) == (True, 2, 1)
    peer.send(b"RDY 10\n")
    assert bodies(peer, 1) == [b"before"]
    assert is_silent(peer)
    board.post("/topic/unpause")
    assert bodies(peer, 2) == [b"after", b"that"]
    assert board.topic_stats()["depth"] == 0


def test_an_emptied_channel_forgets_what_is_out(topic: str, subscribe: Subscribe, publisher: Any, board: Board) -> None:
    """Queue, in-flight and deferred; a FIN of what was in flight is refused, and new messages come."""
    peer = subscribe(1)
    publisher.ok(mpub(topic, [b"a", b"b", b"c"]))
    publisher.ok(dpub(topic, 1500, b"d"))
    message_id = peer.message()[0]
    board.post("/channel/empty", "c")
    channel = board.channel()
    assert (channel["depth"], channel["in_flight_count"], channel["deferred_count"]) == (0, 0, 0)
    expected = b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id
    assert peer.command(b"FIN %b\n" % message_id) == (ERROR, expected)
    publisher.ok(pub(topic, b"new"))
    assert bodies(peer, 1) == [b"new"]


def test_an_emptied_topic_keeps_its_channels_messages(
    topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Only what no channel has been given yet is dropped."""
    peer = subscribe()
    publisher.ok(pub(topic, b"kept"))
    board.post("/topic/pause")
    publisher.ok(pub(topic, b"dropped"))
    board.post("/topic/empty")
    board.post("/topic/unpause")
    publisher.ok(pub(topic, b"new"))
    peer.send(b"RDY 10\n")
    assert bodies(peer, 2) == [b"kept", b"new"]


@pytest.mark.parametrize("path", ["/channel/delete", "/topic/delete"])
def test_deleting_closes_the_consumers(
    path: str, topic: str, subscribe: Subscribe, publisher: Any, board: Board
) -> None:
    """Without an error frame; what it held is gone, and the name can be used anew."""
    peer = subscribe()
    publisher.ok(pub(topic, b"old"))
    board.post(path, "c" if "channel" in path else None)
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.frame()
    again = subscribe(10)
    publisher.ok(pub(topic, b"new"))
    assert bodies(again, 1) == [b"new"]
