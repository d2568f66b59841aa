"""Publishing over HTTP: the messages that arrive, and the answers to invalid requests."""

from __future__ import annotations

import http.client
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd.net.http_publish import parse_binary, parse_lines
from nsqdaemon.http import HTTPError
from tests.harness.waiting import DEADLINE_S

LIMIT_FLAGS = ("--max-msg-size=100", "--max-body-size=1000")


def binary(*bodies: bytes, count: int | None = None) -> bytes:
    """The body of a binary /mpub."""
    parts = [struct.pack(">i", len(bodies) if count is None else count)]
    return b"".join(parts + [struct.pack(">i", len(body)) + body for body in bodies])


@pytest.fixture(scope="module")
def shared(start_shared_broker):
    """A broker with small limits."""
    return start_shared_broker(*LIMIT_FLAGS)


@pytest.fixture
def received(shared, connect):
    """Publish over HTTP to the empty topic t and return the bodies that a consumer receives, in order of arrival."""

    def publish(target: str, body: bytes, expected: int) -> list[bytes]:
        assert shared.request("POST", "/topic/create?topic=t").status == 200
        assert shared.request("POST", "/channel/create?topic=t&channel=c").status == 200
        answer = shared.request("POST", target, body)
        assert (answer.status, answer.text) == (200, "OK")
        consumer = connect(shared)
        consumer.ok(b"SUB t c\n")
        consumer.send(b"RDY 100\n")
        bodies = []
        for _ in range(expected):
            message_id, attempts, message = consumer.message()
            assert attempts == 1
            consumer.send(b"FIN " + message_id + b"\n")
            bodies.append(message)
        return bodies

    yield publish
    shared.request("POST", "/topic/delete?topic=t")


@pytest.mark.parametrize("path", ["/pub", "/put"])
def test_pub_delivers_the_body_as_it_was_sent(received, path):
    """A message may contain any bytes, newlines and zeros included."""
    body = b"a\nb\r\n\x00\xff"
    assert received(f"{path}?topic=t", body, 1) == [body]


@pytest.mark.parametrize("path", ["/mpub", "/mput"])
def test_text_mpub_delivers_each_line_that_is_not_empty(received, path):
    """Only the newline separates; a carriage return is kept, and the last line needs no newline."""
    assert received(f"{path}?topic=t", b"one\n\ntwo\r\n\nthree", 3) == [b"one", b"two\r", b"three"]


@pytest.mark.parametrize("word", ["true", "1", "", "True", "yes"])
def test_binary_mpub_delivers_each_body(received, word):
    """Any value but false and 0 means binary, as in nsqd; bytes after the last message are ignored."""
    bodies = [b"one\ntwo", b"\x00", b"x" * 100]
    assert received(f"/mpub?topic=t&binary={word}", binary(*bodies) + b"trailing", 3) == bodies


@pytest.mark.parametrize("word", ["false", "0"])
def test_mpub_with_binary_false_is_text(received, word):
    """With false and 0 the body consists of lines."""
    assert received(f"/mpub?topic=t&binary={word}", b"a\nb", 2) == [b"a", b"b"]


def test_a_deferred_message_arrives_when_its_time_has_come(received):
    """defer= gives the delay in milliseconds; the message is never early."""
    started = time.monotonic()
    assert received("/pub?topic=t&defer=300", b"later", 1) == [b"later"]
    assert time.monotonic() - started >= 0.3


def test_publishing_creates_the_topic(shared):
    """A topic needs no preparation; an empty mpub creates it too and publishes nothing."""
    assert shared.request("POST", "/pub?topic=fresh", b"1").text == "OK"
    assert shared.request("POST", "/mpub?topic=fresh2").text == "OK"
    topics = {each["topic_name"]: each for each in shared.stats()["topics"]}
    assert (topics["fresh"]["depth"], topics["fresh"]["message_count"], topics["fresh"]["message_bytes"]) == (1, 1, 1)
    assert topics["fresh2"]["message_count"] == 0


def test_a_deferral_is_checked_after_the_topic(shared):
    """As in nsqd, the topic exists after a request with an invalid deferral."""
    assert shared.request("POST", "/pub?topic=fresh3&defer=x", b"1").status == 400
    topics = {each["topic_name"]: each for each in shared.stats()["topics"]}
    assert topics["fresh3"]["message_count"] == 0


PUB_MISTAKES = [
    ("/pub?topic=t", b"x" * 101, 413, "MSG_TOO_BIG"),
    ("/pub?topic=t", b"x" * 5000, 413, "MSG_TOO_BIG"),
    ("/pub", b"x" * 101, 413, "MSG_TOO_BIG"),
    ("/pub?topic=t", b"", 400, "MSG_EMPTY"),
    ("/pub", b"", 400, "MSG_EMPTY"),
    ("/pub?topic=a;b", b"x", 400, "INVALID_REQUEST"),
    ("/pub?topic=%zz", b"x", 400, "INVALID_REQUEST"),
    ("/pub", b"x", 400, "MISSING_ARG_TOPIC"),
    ("/pub?topic=", b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=a%20b", b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=t%0A", b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=%C3%BC", b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=%ff", b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=" + "t" * 65, b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=t&defer=", b"x", 400, "INVALID_DEFER"),
    ("/pub?topic=t&defer=-1", b"x", 400, "INVALID_DEFER"),
    ("/pub?topic=t&defer=1s", b"x", 400, "INVALID_DEFER"),
    ("/pub?topic=t&defer=1_0", b"x", 400, "INVALID_DEFER"),
    ("/pub?topic=t&defer=3600001", b"x", 400, "INVALID_DEFER"),
    ("/pub?topic=t&defer=99999999999999999999999", b"x", 400, "INVALID_DEFER"),
]
MPUB_MISTAKES = [
    ("/mpub?topic=t", b"x" * 1001, 413, "BODY_TOO_BIG"),
    ("/mpub", b"x" * 1001, 413, "BODY_TOO_BIG"),
    ("/mpub?topic=t;", b"x", 400, "INVALID_REQUEST"),
    ("/mpub", b"x", 400, "MISSING_ARG_TOPIC"),
    ("/mpub?topic=a/b", b"x", 400, "INVALID_TOPIC"),
    ("/mpub?topic=t", b"fine\n" + b"x" * 101, 413, "MSG_TOO_BIG"),
    ("/mpub?topic=t&binary=1", b"", 413, "BAD_BODY"),
    ("/mpub?topic=t&binary=1", b"\x00\x00", 413, "BAD_BODY"),
    ("/mpub?topic=t&binary=1", binary(count=0), 413, "BAD_BODY"),
    ("/mpub?topic=t&binary=1", binary(count=-1), 413, "BAD_BODY"),
    ("/mpub?topic=t&binary=1", binary(count=200), 413, "BAD_BODY"),
    ("/mpub?topic=t&binary=1", binary(count=199), 413, "BAD_MESSAGE"),
    ("/mpub?topic=t&binary=1", binary(b"whole", count=2), 413, "BAD_MESSAGE"),
    ("/mpub?topic=t&binary=1", binary(b""), 413, "BAD_MESSAGE"),
    ("/mpub?topic=t&binary=1", binary(b"x" * 101), 413, "BAD_MESSAGE"),
    ("/mpub?topic=t&binary=1", binary(b"whole", b"cut")[:-1], 413, "BAD_MESSAGE"),
    ("/mpub?topic=t&binary=1", struct.pack(">ii", 1, -5) + b"x", 413, "BAD_MESSAGE"),
]


@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
def test_each_mistake_is_answered_with_its_code_and_publishes_nothing(start_broker, chunked):
    """Status and message are nsqd's, with Content-Length or without; the broker goes on."""
    broker = start_broker(*LIMIT_FLAGS)
    for target, body, status, code in PUB_MISTAKES + MPUB_MISTAKES:
        answer = broker.request("POST", target, body, chunked=chunked)
        assert (answer.status, answer.text) == (status, f'{{"message":"{code}"}}'), (target, body)
        assert answer.headers["content-type"] == "application/json; charset=utf-8"
        assert answer.headers["x-nsq-content-type"] == "nsq; version=1.0"
    topics = broker.stats()["topics"]
    assert [(each["topic_name"], each["message_count"]) for each in topics] == [("t", 0)]


def test_the_longest_deferral_is_accepted(shared):
    """The limit is included, and a plus sign is accepted, as in Go."""
    assert shared.request("POST", "/pub?topic=long&defer=3600000", b"x").text == "OK"
    assert shared.request("POST", "/pub?topic=long&defer=%2B0", b"x").text == "OK"


def test_every_acknowledged_message_of_many_publishers_is_there_once(shared, connect):
    """Messages that arrive together are kept together; each publisher receives its own answer."""
    bodies = [f"{publisher}-{number}".encode() for publisher in range(16) for number in range(20)]

    def publish(publisher):
        connection = http.client.HTTPConnection(*shared.http, timeout=DEADLINE_S)
        for number in range(20):
            connection.request("POST", f"/pub?topic=together{publisher % 2}", f"{publisher}-{number}".encode())
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"OK")
        connection.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(publish, range(16)))
    received = []
    for topic in ("together0", "together1"):
        consumer = connect(shared)
        consumer.ok(f"SUB {topic} c\n".encode())
        consumer.send(b"RDY 2500\n")
        received += [consumer.message()[2] for _ in range(160)]
    assert sorted(received) == sorted(bodies)


def test_publishing_to_a_topic_that_is_being_deleted_is_answered_ok(broker):
    """Whichever comes first, the publisher is answered OK, and no full disk is reported."""
    stop = threading.Event()

    def publish():
        connection = http.client.HTTPConnection(*broker.http, timeout=DEADLINE_S)
        while not stop.is_set():
            connection.request("POST", "/pub?topic=fleeting", b"x")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"OK")
        connection.close()

    with ThreadPoolExecutor(8) as pool:
        publishers = [pool.submit(publish) for _ in range(8)]
        statuses = {broker.request("POST", "/topic/delete?topic=fleeting").status for _ in range(100)}
        stop.set()
    assert [publisher.result() for publisher in publishers] == [None] * 8
    assert statuses <= {200, 404}
    assert broker.request("GET", "/ping").text == "OK"


@given(st.lists(st.binary(min_size=1, max_size=50).filter(lambda line: b"\n" not in line)), st.booleans())
def test_lines_are_split_as_they_were_joined(lines, newline_at_end):
    """Lines may contain anything but newlines."""
    body = b"\n".join(lines) + (b"\n" if newline_at_end else b"")
    assert parse_lines(body, max_msg_size=50) == (binary(*lines)[4:], len(lines))


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=20), st.binary(max_size=10))
def test_binary_bodies_return_as_they_were_framed(bodies, trailing):
    """Sizes, not contents, separate the messages."""
    messages, count = parse_binary(binary(*bodies) + trailing, max_msg_size=50, max_body_size=5000)
    assert (bytes(messages), count) == (binary(*bodies)[4:], len(bodies))


@given(st.binary(max_size=200))
def test_no_binary_body_breaks_the_parser(body):
    """Any bytes are either refused or give messages that the body contained."""
    try:
        messages, count = parse_binary(body, max_msg_size=50, max_body_size=1000)
    except HTTPError as error:
        outcome = (error.status, error.code)
    else:
        outcome = body.startswith(struct.pack(">i", count) + bytes(messages)) and len(messages) >= 5 * count
    assert outcome in (True, (413, "BAD_BODY"), (413, "BAD_MESSAGE"))
