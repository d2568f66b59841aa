"""Headers of messages between real clients: agreement, publishes over TCP and HTTP, delivery, and all copies."""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest

from nsqwire import encoding
from nsqwire.frame import MESSAGE, MESSAGE_WITH_HEADERS, Message, decode_message, decode_message_with_headers
from nsqwire.headers import decode_headers, encode_headers
from tests.brokerd.conftest import create_channel, publish
from tests.brokerd.test_policies import set_policy
from tests.harness import header_commands
from tests.harness.v2 import ERROR, RESPONSE, V2Client, sized
from tests.harness.waiting import wait_until

Connect = Callable[..., V2Client]
Start = Callable[..., Any]

TRACE = {"trace-id": "4bf92f", "note": 'ü "quoted"'}
BLOCK = encode_headers(TRACE)


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker with a topic ``t`` and its channel ``c``."""
    started = start_broker("--retention=1h")
    create_channel(started)
    return started


def with_headers(connect: Connect, broker: Any, **asked: object) -> V2Client:
    """A client that has agreed to headers."""
    client = connect(broker)
    kind, answer = client.command(encoding.identify({"feature_negotiation": True, "headers": True, **asked}))
    assert (kind, json.loads(answer)["headers"]) == (RESPONSE, True)
    return client


def subscribed(client: V2Client, ready: int = 10, topic: str = "t", channel: str = "c") -> V2Client:
    client.ok(encoding.sub(topic, channel))
    client.send(encoding.rdy(ready))
    return client


def received(client: V2Client) -> Message:
    """The next message, of either type."""
    kind, data = client.frame()
    assert kind in (MESSAGE, MESSAGE_WITH_HEADERS), (kind, data)
    return decode_message(data) if kind == MESSAGE else decode_message_with_headers(data)


def shown(client: V2Client, count: int) -> list[tuple[bytes, dict[str, str]]]:
    """The bodies and headers of the next messages, which are finished."""
    found = []
    for _ in range(count):
        message = received(client)
        found.append((message.body, decode_headers(message.header_block) if message.header_block else {}))
        client.send(encoding.fin(message.id))
    return found


def counts_of(broker: Any) -> tuple[int, int]:
    """The depth of the channel, and the number of its messages in flight."""
    (channel,) = broker.get("/stats?format=json")["topics"][0]["channels"]
    return channel["depth"], channel["in_flight_count"]


def test_headers_are_agreed_on_with_feature_negotiation_only(connect: Connect, broker: Any) -> None:
    """Others get nsqd's answer, and the commands are unknown to them."""
    client = connect(broker)
    client.ok(encoding.identify({"headers": True}))
    assert client.command(header_commands.hpub("t", BLOCK, b"x")) == (ERROR, b"E_INVALID invalid command HPUB")
    _, answer = connect(broker).command(encoding.identify({"feature_negotiation": True}))
    assert "headers" not in json.loads(answer)
    with_headers(connect, broker)


def test_a_client_that_agreed_receives_headers_and_others_the_bare_body(connect: Connect, broker: Any) -> None:
    create_channel(broker)
    broker.post("/channel/create", topic="t", channel="bare")
    producer = with_headers(connect, broker)
    producer.ok(header_commands.hpub("t", BLOCK, b"one"))
    producer.ok(header_commands.hpub("t", b"{}", b"two"))
    producer.ok(encoding.pub("t", b"three"))
    producer.ok(header_commands.hmpub("t", [(b'{"N":"4"}', b"four"), (b"{}", b"five"), (b'{"n":"6"}', b"six")]))
    wanted = [(b"one", TRACE), (b"two", {}), (b"three", {}), (b"four", {"n": "4"}), (b"five", {}), (b"six", {"n": "6"})]
    assert shown(subscribed(with_headers(connect, broker)), 6) == wanted
    bare = connect(broker)
    subscribed(bare, channel="bare")
    frames = [bare.frame() for _ in range(6)]
    assert [kind for kind, _ in frames] == [MESSAGE] * 6
    assert [data[26:] for _, data in frames] == [body for body, _ in wanted]


def test_a_redelivery_has_the_headers(connect: Connect, broker: Any) -> None:
    """After REQ, after a reconnect with other terms, and after a rewind."""
    with_headers(connect, broker).ok(header_commands.hpub("t", BLOCK, b"one"))
    client = subscribed(with_headers(connect, broker))
    message = received(client)
    client.send(encoding.req(message.id, 0))
    again = received(client)
    assert (again.attempts, again.id, again.header_block, again.body) == (2, message.id, BLOCK, b"one")
    client.socket.close()
    bare = subscribed(connect(broker))
    message_id, attempts, body = bare.message()
    assert (message_id, attempts, body) == (message.id, 3, b"one")
    bare.send(encoding.fin(message_id))
    wait_until(lambda: counts_of(broker) == (0, 0))
    bare.socket.close()
    broker.post("/channel/rewind", topic="t", channel="c", since="1h")
    assert shown(subscribed(with_headers(connect, broker)), 1) == [(b"one", TRACE)]


def test_a_deferred_publish_has_its_headers(connect: Connect, broker: Any) -> None:
    with_headers(connect, broker).ok(header_commands.hdpub("t", 50, BLOCK, b"later"))
    assert shown(subscribed(with_headers(connect, broker)), 1) == [(b"later", TRACE)]


def test_a_sample_has_its_headers(connect: Connect, broker: Any) -> None:
    """A client with a sample rate gets its frames one by one."""
    producer = with_headers(connect, broker)
    producer.ok(header_commands.hmpub("t", [(BLOCK, b"x")] * 50))
    client = subscribed(with_headers(connect, broker, sample_rate=99), ready=100)
    assert shown(client, 1) == [(b"x", TRACE)]


def test_headers_survive_a_kill(connect: Connect, start_broker: Start) -> None:
    """Those of an acknowledged publish are there after kill -9, in a backlog and in a redelivery."""
    broker = start_broker()
    create_channel(broker)
    producer = with_headers(connect, broker)
    producer.send(b"".join(header_commands.hpub("t", encode_headers({"n": str(n)}), b"%d" % n) for n in range(200)))
    for _ in range(200):
        assert producer.frame() == (RESPONSE, b"OK")
    client = subscribed(with_headers(connect, broker), ready=50)
    shown_before = shown(client, 20)
    broker.kill()
    again = start_broker(data_path=broker.data_path)
    wanted = [(b"%d" % n, {"n": str(n)}) for n in range(200)]
    assert shown_before == wanted[:20]
    with_headers(connect, again).ok(header_commands.hpub("t", BLOCK, b"last"))
    consumer = subscribed(with_headers(connect, again), ready=300)
    missing = dict([*wanted[20:], (b"last", TRACE)])
    while missing:
        ((body, headers),) = shown(consumer, 1)
        assert headers == missing.pop(body, dict(wanted).get(body))


@pytest.mark.parametrize("kind", ["directory", "fifo", "huge"])
def test_something_else_in_place_of_a_file_of_headers_costs_the_headers_only(
    connect: Connect, start_broker: Start, kind: str
) -> None:
    """Messages are delivered with their bare bodies, new ones are stored, and the node stays healthy."""
    broker = start_broker()
    create_channel(broker)
    with_headers(connect, broker).ok(header_commands.hpub("t", BLOCK, b"kept"))
    broker.kill()
    (path,) = broker.data_path.glob("topics/t.*/*.hdr")
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(16 << 30)
    broker = start_broker(data_path=broker.data_path)
    publish(broker, b"bare")
    assert shown(subscribed(with_headers(connect, broker)), 2) == [(b"kept", {}), (b"bare", {})]
    assert broker.request("GET", "/ping").status == 200


def test_an_ephemeral_topic_keeps_headers_in_memory(connect: Connect, start_broker: Start) -> None:
    """Also those of messages whose segments were removed, and that are kept as copies."""
    broker = start_broker("--mem-queue-size=1000000")
    name = "t#ephemeral"
    client = subscribed(with_headers(connect, broker), ready=3, topic=name, channel="c")
    producer = with_headers(connect, broker)
    producer.ok(header_commands.hmpub(name, [(encode_headers({"n": str(n)}), b"held") for n in range(3)]))
    held = [received(client) for _ in range(3)]
    for _ in range(40):
        producer.ok(encoding.mpub(name, [bytes(500_000)]))
    for message in held:
        client.send(encoding.req(message.id, 0))
    again: list[Message] = []
    while len(again) < 3:
        message = received(client)
        client.send(encoding.fin(message.id))
        again += [message] if message.body == b"held" else []
    assert sorted(message.header_block for message in again) == [b'{"n":"%d"}' % n for n in range(3)]
    assert {message.attempts for message in again} == {2}


def test_peek_and_scan_show_headers(connect: Connect, broker: Any) -> None:
    """Those without have no key."""
    producer = with_headers(connect, broker)
    producer.ok(header_commands.hpub("t", BLOCK, b"one"))
    producer.ok(encoding.pub("t", b"two"))
    for path in ("/channel/peek", "/channel/scan"):
        messages = broker.get(f"{path}?topic=t&channel=c")["messages"]
        assert [message.get("headers") for message in messages] == [TRACE, None]
        assert ["headers" in message for message in messages] == [True, False]


def test_a_dead_topic_gets_the_headers(connect: Connect, start_broker: Start) -> None:
    broker = start_broker("--max-attempts=1")
    create_channel(broker)
    set_policy(broker, "t", dead_topic="dead")
    broker.post("/topic/create", topic="dead")
    broker.post("/channel/create", topic="dead", channel="c")
    with_headers(connect, broker).ok(header_commands.hmpub("t", [(BLOCK, b"one"), (b"{}", b"two")]))
    client = subscribed(with_headers(connect, broker))
    for _ in range(2):
        client.send(encoding.req(received(client).id, 0))
    assert sorted(shown(subscribed(with_headers(connect, broker), topic="dead"), 2)) == [(b"one", TRACE), (b"two", {})]


def test_a_dedup_id_among_the_headers_is_the_messages(connect: Connect, broker: Any) -> None:
    """HPUB and HDPUB; a repetition is answered with the id of the first message, and shares the ids of HTTP."""
    producer = with_headers(connect, broker, publish_ids=True)
    block = encode_headers({"dedup-id": "order-1"})
    first = producer.command(header_commands.hpub("t", block, b"one"))
    assert producer.command(header_commands.hpub("t", block, b"one")) == first
    assert producer.command(header_commands.hdpub("t", 5, block, b"one")) == first
    assert first[0] == RESPONSE
    answer = json.loads(broker.post("/pub", b"one", topic="t", dedup_id="order-1", ids="true"))
    assert [answer["ids"][0].encode()] == first[1].split()[1:]
    assert shown(subscribed(with_headers(connect, broker)), 1) == [(b"one", {"dedup-id": "order-1"})]
    assert broker.get("/stats?format=json")["topics"][0]["message_count"] == 1


def test_a_dedup_id_that_cannot_be_kept_is_refused(connect: Connect, start_broker: Start) -> None:
    broker = start_broker("--dedup-window=0s")
    block = encode_headers({"dedup-id": "x"})
    kind, error = with_headers(connect, broker).command(header_commands.hpub("t", block, b"one"))
    wanted = b"E_BAD_MESSAGE HPUB header dedup-id: this node does not deduplicate, --dedup-window is 0"
    assert (kind, error) == (ERROR, wanted)
    long = encode_headers({"dedup-id": "x" * 257})
    kind, error = with_headers(connect, broker).command(header_commands.hpub("t", long, b"one"))
    assert (kind, error) == (ERROR, b"E_BAD_MESSAGE HPUB header dedup-id has 257 bytes, not 1 to 256")


def test_publishes_over_http_have_request_headers(connect: Connect, broker: Any) -> None:
    headers = {"X-NSQ-Header-Trace-Id": "4bf92f", "x-nsq-header-b": "ü".encode().decode("latin-1"), "X-Other": "no"}
    assert broker.request("POST", "/pub?topic=t", b"one", headers).status == 200
    deferred = broker.request("POST", "/pub?topic=t&defer=20&ids=true", b"two", {"X-NSQ-Header-N": ""})
    assert json.loads(deferred.text).keys() == {"ids"}
    publish(broker, b"three")
    found = shown(subscribed(with_headers(connect, broker)), 3)
    assert sorted(found) == [(b"one", {"trace-id": "4bf92f", "b": "ü"}), (b"three", {}), (b"two", {"n": ""})]


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"X-NSQ-Header-": "x"}, "header name '' is not 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'"),
        ({"X-NSQ-Header-A": "x", "x-nsq-header-a": "y"}, "header a appears twice"),
        ({"X-NSQ-Header-A": "\xff"}, "a header is not UTF-8"),
        ({"X-NSQ-Header-A": "x" * 4097}, "value of header a has 4097 characters, more than 4096"),
    ],
)
def test_a_bad_request_header_is_named(broker: Any, headers: dict[str, str], error: str) -> None:
    answer = broker.request("POST", "/pub?topic=t", b"one", headers)
    assert (answer.status, json.loads(answer.text)) == (400, {"message": f"INVALID_HEADERS: {error}"})


def test_an_mpub_of_envelopes_has_headers_and_bodies(connect: Connect, broker: Any) -> None:
    lines = [
        {"headers": TRACE, "body": "öne"},
        {"body_base64": base64.b64encode(b"\0\n\xff").decode()},
        {"headers": {}, "body": "three\nlines"},
    ]
    body = "\n".join(json.dumps(line) for line in lines).encode() + b"\n\n"
    broker.post("/mpub", body, topic="t", envelope="true")
    wanted = [("öne".encode(), TRACE), (b"\0\n\xff", {}), (b"three\nlines", {})]
    assert shown(subscribed(with_headers(connect, broker)), 3) == wanted


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"x", "not JSON in UTF-8"),
        (b"[]", "not a JSON object"),
        (b"{}", "exactly one of body and body_base64 is required"),
        (b'{"body":"x","body_base64":"eA=="}', "exactly one of body and body_base64 is required"),
        (b'{"body":"x","body":"y"}', "a key appears twice"),
        (b'{"body":"x","header":{}}', "key 'header' is not headers, body or body_base64"),
        (b'{"body":1}', "body is not a string of Unicode text"),
        (b'{"body":""}', "body is empty"),
        (b'{"body_base64":"x"}', "body_base64 is not base64"),
        (b'{"body":"x","headers":[]}', "headers are not a JSON object"),
        (b'{"body":"x","headers":{"a":1}}', "value of header a is not a string"),
    ],
)
def test_a_bad_envelope_is_named_with_its_line(broker: Any, line: bytes, error: str) -> None:
    """Nothing of the request is published."""
    answer = broker.request("POST", "/mpub?topic=t&envelope=true", b'{"body":"sound"}\n\n' + line)
    assert (answer.status, json.loads(answer.text)) == (400, {"message": f"INVALID_ENVELOPE: line 3: {error}"})
    assert broker.get("/channel/peek?topic=t&channel=c")["total"] == 0


def test_a_request_has_a_largest_number_of_envelopes(broker: Any) -> None:
    """A larger one would delay all other clients; nothing of it is published."""
    line = b'{"body":"x"}\n'
    answer = broker.request("POST", "/mpub?topic=t&envelope=true", line * 10_001)
    assert (answer.status, json.loads(answer.text)) == (413, {"message": "INVALID_ENVELOPE: more than 10,000 lines"})
    assert "t" not in broker.topics() or broker.topics()["t"]["message_count"] == 0
    assert broker.request("POST", "/mpub?topic=t&envelope=true", line * 10_000).status == 200
    assert broker.topics()["t"]["message_count"] == 10_000


def test_an_envelope_is_bounded_like_other_messages(start_broker: Start) -> None:
    broker = start_broker("--max-msg-size=10")
    answer = broker.request("POST", "/mpub?topic=t&envelope=true", b'{"body":"01234567890"}')
    assert (answer.status, json.loads(answer.text)) == (413, {"message": "MSG_TOO_BIG"})
    answer = broker.request("POST", "/mpub?topic=t&envelope=true&binary=true", b'{"body":"x"}')
    assert (answer.status, json.loads(answer.text)) == (400, {"message": "INVALID_ARG_ENVELOPE"})
    answer = broker.request("POST", "/mpub?topic=t&envelope=maybe", b"x")
    assert (answer.status, json.loads(answer.text)) == (400, {"message": "INVALID_ARG_ENVELOPE"})
    assert broker.request("POST", "/mpub?topic=t&envelope=true", b"\n").status == 200


def test_a_stock_client_sees_the_same_bytes(connect: Connect, start_broker: Start) -> None:
    """All frames of a conversation, whether the messages were published with headers or without."""

    def conversation(*, block: bytes | None) -> bytes:
        broker = start_broker("--node-id=7")
        create_channel(broker)
        producer = with_headers(connect, broker)
        for body in (b"one", b"two"):
            producer.ok(encoding.pub("t", body) if block is None else header_commands.hpub("t", block, body))
        client = connect(broker)
        identified = client.command(encoding.identify({"feature_negotiation": True}))
        subscribed(client)
        frames = [client.frame() for _ in range(2)]
        ends = [(kind, data[8:]) for kind, data in frames]  # without the timestamp
        return repr((identified, ends)).encode()

    assert conversation(block=BLOCK) == conversation(block=None)


def test_a_pipeline_of_publishes_with_and_without_headers_keeps_its_order(connect: Connect, broker: Any) -> None:
    producer = with_headers(connect, broker)
    sent = b""
    for n in range(300):
        body = b"%d" % n
        sent += encoding.pub("t", body) if n % 3 else header_commands.hpub("t", encode_headers({"n": str(n)}), body)
    producer.send(sent)
    assert [producer.frame() for _ in range(300)] == [(RESPONSE, b"OK")] * 300
    found = shown(subscribed(with_headers(connect, broker), ready=400), 300)
    assert found == [(b"%d" % n, {} if n % 3 else {"n": str(n)}) for n in range(300)]


def test_an_mpub_frame_of_nsqd_is_not_an_hmpub(connect: Connect, broker: Any) -> None:
    producer = with_headers(connect, broker)
    body = struct.pack(">i", 1) + sized(b"x")
    assert producer.command(b"HMPUB t\n" + sized(body)) == (ERROR, b"E_BAD_MESSAGE HMPUB invalid message(0) size 1")
