"""Decisions by a request's head: whether it is plain, and whether its body is accepted."""

from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqdaemon.http import Connection, HTTPError, Limits, Request, Response, Router, text_response
from nsqdaemon.http.heads import PlainHead, plain_head

HOST = b" HTTP/1.1\r\nHost: h\r\n"
LIMITS = Limits(max_header_size=1024, max_body_size=100, max_pipelined=4)
LIMITED = Limits(max_header_size=1024, max_body_size=1_000_000)


def understood(stream: bytes, sizes: list[int], plain_head: PlainHead) -> tuple[list[object], bytes, bool]:
    """The requests parsed from a stream that arrives in pieces, and the rest of the conversation without its dates: a
    second may begin between two of them."""
    connection, requests, at = Connection(LIMITS, plain_head=plain_head), [], 0
    for size in [*sizes, len(stream)]:
        connection.received(stream[at : at + size])
        at += size
        while (request := connection.next_request()) is not None:
            fields = [(name, value.strip()) for name, value in request.headers]
            requests.append((request.method, request.target, request.path, request.query, fields, request.body))
            requests.append((request.oversized, request.closes, request.wants_keep_alive_header))
            connection.respond(text_response(b"OK"))
    return requests, re.sub(rb"Date: [^\r]+", b"Date:", connection.take_output()), connection.closed


LINES = [
    b"%b\r\n" % line
    for line in (
        *rb"""Host: h
HOST:h
Content-Length: 3
content-length:3
Content-Length: 03
Content-Length: +3
Content-Length: 3, 3
Content-Length : 3
Content-Length: 101
Connection: keep-alive
Connection: Keep-Alive
Connection: close
Connection: keep-alive, close
Connection: upgrade
Upgrade: h2c
Proxy-Connection: close
Transfer-Encoding: chunked
Transfer-Encoding: identity
Expect: 100-continue
Trailer: a
X-Request-Id: 4711
a:
a:  b
 folded
a b: c
a
_: ~""".splitlines(),
        *(b"Host: ", b"a: ", b"a: b ", b"a: \xc3\xa4", b"a: \0"),
        *(b"Content-Length: 3 ", b"Content-Length:\t3", b"Content-Length: 3\na: b", b"Content-Length: 3\rX: y"),
    )
]
STARTS = [
    b"%b\r\n" % line
    for line in (
        *rb"""GET /ping HTTP/1.1
POST /pub?topic=a HTTP/1.1
POST /pub?a=%20;!$&'()*+,:@~ HTTP/1.1
GET //x/../ HTTP/1.1
GET /ping HTTP/1.0
PUT /x HTTP/1.1
GET http://h/ping HTTP/1.1
GET /a#b HTTP/1.1
GET /"|{} HTTP/1.1
GET  /ping HTTP/1.1
GET /ping  HTTP/1.1
GET /ping HTTP/1.2
GET * HTTP/1.1
get /ping HTTP/1.1""".splitlines(),
        *(b"GET /ping HTTP/1.1\nX: y", b"\r\nGET /ping HTTP/1.1", b"GET /p\xc3\xa4 HTTP/1.1"),
    )
]
BODIES = [b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n"]
some_requests = st.lists(
    st.tuples(st.sampled_from(STARTS), st.lists(st.sampled_from(LINES), max_size=5), st.sampled_from(BODIES)).map(
        lambda parts: parts[0] + b"Host: h\r\n" + b"".join(parts[1]) + b"\r\n" + parts[2]
    ),
    min_size=1,
    max_size=3,
).map(b"".join)


@settings(max_examples=1000)
@given(some_requests, st.lists(st.integers(1, 90), max_size=4))
def test_a_plain_head_is_read_as_by_the_parser(stream: bytes, sizes: list[int]) -> None:
    """The fast path for plain heads changes no conversation, however its bytes are split."""
    by_parser = understood(stream, sizes, lambda data, start: None)
    assert understood(stream, sizes, plain_head) == by_parser


def test_requests_of_an_ordinary_client_are_plain() -> None:
    """They stay plain with a request id, a trace header and a user agent."""
    head = b"POST /pub?topic=t HTTP/1.1\r\nHost: h:4151\r\nUser-Agent: a/1 (b; c)\r\nAccept-Encoding: gzip, deflate\r\n"
    head += b"Connection: keep-alive\r\ntraceparent: 00-0af7-b7ad-01\r\nContent-Length: 3\r\n\r\n"
    target = (5, 17)
    assert plain_head(b"x" + head + b"abc", 1) == (1 + target[0], 1 + target[1], 1 + len(head), 3)


def limited(data: list[bytes]) -> tuple[bytes, bool]:
    """A conversation with one route that accepts ten bytes and one that accepts half a megabyte."""
    router = Router()
    router.add("GET", "/ping", lambda request: text_response(b"OK", nsq=False))
    for path, limit in (("/small", 10), ("/half", 500_000)):
        handler = partial(refuse_over, limit)
        router.add("POST", path, handler, too_big="MSG_TOO_BIG", max_body_size=limit)
    connection, output = Connection(LIMITED, body_limit=router.body_limit), b""
    for piece in data:
        connection.received(piece)
        while (request := connection.next_request()) is not None:
            answer = router.answer(request)
            assert isinstance(answer, Response)
            connection.respond(answer)
        output += connection.take_output()
    return output, connection.closed


def refuse_over(limit: int, request: Request) -> Response:
    if len(request.body) > limit:
        raise HTTPError(413, "MSG_TOO_BIG")
    return text_response(b"taken")


def test_a_body_over_its_routes_limit_is_refused_before_it_comes() -> None:
    """413 with the route's code after the head; the connection closes, because much would be left to read."""
    answered, closed = limited([b"POST /half" + HOST + b"Content-Length: 500001\r\n\r\n"])
    assert answered.startswith(b"HTTP/1.1 413 ")
    assert answered.endswith(b'{"message":"MSG_TOO_BIG"}')
    assert closed


def test_a_body_that_will_be_refused_gets_no_continue() -> None:
    """Expect: 100-continue is answered 413, not 100."""
    answered, closed = limited([b"POST /small" + HOST + b"Content-Length: 11\r\nExpect: 100-continue\r\n\r\n"])
    assert answered.startswith(b"HTTP/1.1 413 ")
    assert closed


@pytest.mark.parametrize("pieces", [1, 2, 40])
def test_a_small_body_that_is_refused_is_read_and_discarded(pieces: int) -> None:
    """The next request on the connection is answered, as by nsqd."""
    data = b"POST /small" + HOST + b"Content-Length: 11\r\n\r\n" + b"x" * 11 + b"GET /ping" + HOST + b"\r\n"
    size = -(-len(data) // pieces)
    answered, closed = limited([data[at : at + size] for at in range(0, len(data), size)])
    assert re.findall(rb"HTTP/1.1 (\d+)", answered) == [b"413", b"200"]
    assert not closed
