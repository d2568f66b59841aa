"""HTTP on the wire: bytes in, bytes out, and then again one byte at a time."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqdaemon.http import Connection, HTTPError, Limits, Request, Response, Router, empty, json_response, text_response
from nsqwire.errors import FinFailed, TopicNotFound
from nsqwire.gojson import encode, encode_without_floats

HOST = b" HTTP/1.1\r\nHost: h\r\n"
LIMITS = Limits(max_header_size=1024, max_body_size=100, max_pipelined=4)
NSQ = b"X-Nsq-Content-Type: nsq; version=1.0\r\n"


def fail(error: Exception) -> Response:
    raise error


def make_router() -> Router:
    router = Router()
    router.add("GET", "/ping", lambda request: text_response(b"OK", nsq=False))
    router.add("POST", "/pub", lambda request: json_response([request.params.get("topic"), len(request.body)]))
    router.add("POST", "/create", lambda request: text_response(request.required("topic", "MISSING_ARG_TOPIC")))
    router.add("PUT", "/empty", lambda request: empty(), too_big="INVALID_VALUE")
    router.add("GET", "/config/:opt", lambda request: text_response(request.path_value))
    router.add("GET", "/agent", lambda request: text_response(request.header("user-agent") or "none"))
    router.add("GET", "/refuse", lambda request: fail(HTTPError(418, "TEAPOT")))
    router.add("GET", "/missing", lambda request: fail(TopicNotFound()))
    router.add("GET", "/tcp-only", lambda request: fail(FinFailed()))
    router.add("GET", "/crash", lambda request: fail(ZeroDivisionError()))
    return router


def converse(data: bytes, *, chunk: int | None = None, limits: Limits = LIMITS) -> tuple[bytes, bool]:
    """All output for these bytes, without dates, and whether the conversation closed."""
    router, connection, output = make_router(), Connection(limits, "1.2.3.4:5"), b""
    for start in range(0, len(data), chunk or max(len(data), 1)):
        connection.received(data[start : start + (chunk or len(data))])
        while (request := connection.next_request()) is not None:
            answer = router.answer(request)
            assert isinstance(answer, Response)
            connection.respond(answer)
        output += connection.take_output()
    return re.sub(rb"Date: [^\r]+ GMT\r\n", b"", output), connection.closed


def both_ways(data: bytes) -> tuple[bytes, bool]:
    """The result of ``converse``, which must be the same for all bytes at once and one by one."""
    whole = converse(data)
    assert converse(data, chunk=1) == whole
    return whole


def message(head: bytes, body: bytes) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


PING = message(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n", b"OK")


def nsq_json(status: bytes, body: bytes, *, allow: bytes = b"") -> bytes:
    head = b"HTTP/1.1 " + status + b"\r\n" + allow + b"Content-Type: application/json; charset=utf-8\r\n" + NSQ
    return message(head, body)


def test_a_text_answer_on_a_connection_that_stays() -> None:
    """/ping: OK as text, without the NSQ header; the connection stays open."""
    assert both_ways(b"GET /ping" + HOST + b"\r\n") == (PING, False)
    assert both_ways((b"GET /ping" + HOST + b"\r\n") * 3) == (PING * 3, False)


def test_an_empty_answer_has_no_content_type() -> None:
    """Status, NSQ header and length 0."""
    expected = message(b"HTTP/1.1 200 OK\r\n" + NSQ, b"")
    assert both_ways(b"PUT /empty" + HOST + b"Content-Length: 0\r\n\r\n") == (expected, False)


@pytest.mark.parametrize(
    "headers_and_body",
    [
        b"Content-Length: 5\r\n\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
    ],
)
def test_bodies_arrive_with_a_length_or_in_chunks(headers_and_body: bytes) -> None:
    """Both kinds of body are equivalent, and the next request follows."""
    data = b"POST /pub?topic=t" + HOST + headers_and_body + b"GET /ping" + HOST + b"\r\n"
    assert both_ways(data) == (nsq_json(b"200 OK", b'["t",5]') + PING, False)


def test_a_publisher_that_expects_continue_receives_it() -> None:
    """100 Continue is sent before the body arrives, and after earlier answers."""
    ask = b"POST /pub?topic=t" + HOST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    answer = nsq_json(b"200 OK", b'["t",2]')
    go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert both_ways(ask) == (go_on, False)
    assert both_ways(b"GET /ping" + HOST + b"\r\n" + ask) == (PING + go_on, False)
    assert converse(ask + b"hi", chunk=1) == (go_on + answer, False)
    # The body came with the head, behind an unanswered request: there is no need for 100 Continue.
    assert converse(b"GET /ping" + HOST + b"\r\n" + ask + b"hi") == (PING + answer, False)


def test_an_offer_of_another_protocol_is_declined_and_the_request_answered() -> None:
    """``curl --http2 -d hello`` publishes its body over HTTP/1.1."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
    data = b"POST /pub?topic=t" + HOST + offer + b"Content-Length: 5\r\n\r\nhelloGET /ping" + HOST + b"\r\n"
    assert both_ways(data) == (nsq_json(b"200 OK", b'["t",5]') + PING, False)


@pytest.mark.parametrize(
    ("request_bytes", "extra", "closed"),
    [
        (b"GET /ping" + HOST + b"Connection: close\r\n\r\nGET /ping" + HOST + b"\r\n", b"Connection: close\r\n", True),
        (b"GET /ping HTTP/1.0\r\n\r\n", b"Connection: close\r\n", True),
        (b"GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"Connection: keep-alive\r\n", False),
    ],
)
def test_the_connection_closes_when_the_client_asks(request_bytes: bytes, extra: bytes, closed: bool) -> None:
    """Connection: close, and HTTP/1.0 without keep-alive, end it after one answer; later input is not read."""
    expected = PING.replace(b"\r\n\r\nOK", b"\r\n" + extra + b"\r\nOK")
    assert both_ways(request_bytes) == (expected, closed)


@pytest.mark.parametrize(
    ("request_line", "status", "code"),
    [
        (b"GET /nowhere", b"404 Not Found", b"NOT_FOUND"),
        (b"GET /pub/", b"404 Not Found", b"NOT_FOUND"),
        (b"GET /config/", b"404 Not Found", b"NOT_FOUND"),
        (b"GET /config/a%2Fb", b"404 Not Found", b"NOT_FOUND"),
        (b"GET /refuse", b"418 I'm a Teapot", b"TEAPOT"),
        (b"GET /missing", b"404 Not Found", b"TOPIC_NOT_FOUND"),
        (b"GET /tcp-only", b"500 Internal Server Error", b"INTERNAL_ERROR"),
        (b"GET /crash", b"500 Internal Server Error", b"INTERNAL_ERROR"),
        (b"POST /create", b"400 Bad Request", b"MISSING_ARG_TOPIC"),
        (b"POST /create?topic=a;b", b"400 Bad Request", b"INVALID_REQUEST"),
        (b"POST /create?topic=%zz", b"400 Bad Request", b"INVALID_REQUEST"),
        (b"POST /create?topic=%2", b"400 Bad Request", b"INVALID_REQUEST"),
        (b"POST /create?%=x&topic=t", b"400 Bad Request", b"INVALID_REQUEST"),
    ],
)
def test_errors_have_nsqds_body_and_leave_the_connection_open(request_line: bytes, status: bytes, code: bytes) -> None:
    """A status and {"message":"CODE"}; the next request on the connection is answered as usual."""
    answered, closed = both_ways(request_line + HOST + b"\r\n" + b"GET /ping" + HOST + b"\r\n")
    expected = nsq_json(status, b'{"message":"' + code + b'"}')
    assert answered.lower() == (expected + PING).lower()
    assert not closed


def test_a_crash_is_logged_with_its_request(caplog: pytest.LogCaptureFixture) -> None:
    """The traceback is in the log."""
    converse(b"GET /crash" + HOST + b"\r\n")
    assert "GET /crash" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_wrong_method_gets_the_allowed_ones() -> None:
    """405 with a sorted Allow header; HEAD gets only the head; OPTIONS is answered from the routing table."""
    body = b'{"message":"METHOD_NOT_ALLOWED"}'
    wrong = nsq_json(b"405 Method Not Allowed", body, allow=b"Allow: GET, OPTIONS\r\n")
    assert both_ways(b"POST /ping" + HOST + b"\r\n")[0] == wrong
    assert both_ways(b"HEAD /ping" + HOST + b"\r\n")[0] == wrong.removesuffix(body)
    allowed = message(b"HTTP/1.1 200 OK\r\nAllow: OPTIONS, POST\r\n", b"")
    assert both_ways(b"OPTIONS /pub" + HOST + b"\r\n")[0] == allowed
    assert both_ways(b"OPTIONS *" + HOST + b"\r\n")[0] == message(b"HTTP/1.1 200 OK\r\n", b"")


@pytest.mark.parametrize("path", [b"/ping/", b"//ping", b"/PING", b"/Ping/", b"/x/../ping", b"/./ping"])
def test_a_nearly_right_path_is_redirected(path: bytes) -> None:
    """A trailing slash, a doubled one or the wrong case: 301 to the right path, with the query."""
    link = b'<a href="/ping?a=b&amp;c">Moved Permanently</a>.\n\n'
    head = b"HTTP/1.1 301 Moved Permanently\r\nContent-Type: text/html; charset=utf-8\r\nLocation: /ping?a=b&c\r\n"
    assert both_ways(b"GET " + path + b"?a=b&c" + HOST + b"\r\n") == (message(head, link), False)


def test_a_redirect_keeps_the_method() -> None:
    """307 without a body for all methods but GET, so that the client repeats the request unchanged."""
    expected = message(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /pub?topic=t\r\n", b"")
    request = b"POST /PUB/?topic=t" + HOST + b"Content-Length: 0\r\n\r\n"
    assert both_ways(request) == (expected, False)
    assert b"Location: /config/Key\r\n" in both_ways(b"GET /Config/Key" + HOST + b"\r\n")[0]


@pytest.mark.parametrize(
    ("target", "topic"),
    [
        (b"/pub?topic=a&topic=b", "a"),
        (b"/pub?topic=a%20b+c", "a b c"),
        (b"/pub?topic=%C3%A9", "é"),
        (b"/pub?&&x&topic=", ""),
        (b"/pub?Topic=a", None),
        (b"/%70ub?topic=a", "a"),
        (b"http://h:1/pub?topic=a", "a"),
    ],
)
def test_parameters_come_from_the_query(target: bytes, topic: str | None) -> None:
    """The first value counts, + and %XX are decoded, names are case-sensitive; the path is decoded too."""
    answered, _ = both_ways(b"POST " + target + HOST + b"Content-Length: 0\r\n\r\n")
    assert json.loads(answered.partition(b"\r\n\r\n")[2]) == [topic, 0]


def test_a_header_is_found_in_any_case() -> None:
    """Header names are case-insensitive."""
    assert both_ways(b"GET /agent" + HOST + b"uSER-aGENT:  me \r\n\r\n")[0].endswith(b"\r\n\r\nme")


MALFORMED = [
    (b"garbage\r\n\r\n", b"400 Bad Request"),
    (b"GET /ping\r\n\r\n", b"400 Bad Request: missing required Host header"),
    (b"GET /ping HTTP/1.1\r\n\r\n", b"400 Bad Request: missing required Host header"),
    (b"GET /ping" + HOST + b"Host: other\r\n\r\n", b"400 Bad Request: too many Host headers"),
    (b"GET /ping" + HOST + b"no colon\r\n\r\n", b"400 Bad Request"),
    (b"GET /ping" + HOST + b"a b: c\r\n\r\n", b"400 Bad Request"),
    (b"POST /pub" + HOST + b"Content-Length: x\r\n\r\n", b"400 Bad Request"),
    (b"POST /pub" + HOST + b"Content-Length: -1\r\n\r\n", b"400 Bad Request"),
    (b"POST /pub" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400 Bad Request"),
    (b"POST /pub" + HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400 Bad Request"),
    (b"POST /pub" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400 Bad Request"),
    (b"GET /%zz" + HOST + b"\r\n", b"400 Bad Request"),
    (b"CONNECT h:1" + HOST + b"\r\n", b"400 Bad Request"),
    (b"POST /pub" + HOST + b"Expect: miracles\r\n\r\n", b"417 Expectation Failed"),
    (b"GET /ping" + HOST + b"x: " + b"y" * 3000 + b"\r\n\r\n", b"431 Request Header Fields Too Large"),
    (b"GET /" + b"y" * 3000, b"431 Request Header Fields Too Large"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400 Bad Request"),
]


@pytest.mark.parametrize(("data", "text"), MALFORMED)
def test_malformed_requests_are_answered_with_a_text_and_end_the_connection(data: bytes, text: bytes) -> None:
    """A text with the reason, after earlier answers; then the connection closes."""
    answered, closed = both_ways(b"GET /ping" + HOST + b"\r\n" + data)
    assert answered.startswith(PING + b"HTTP/1.1 " + text[:4])
    assert b"\r\nConnection: close\r\n" in answered
    assert answered.endswith(b"\r\n\r\n" + text)
    assert closed


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"POST /pub" + HOST + b"Content-Length: 101\r\nExpect: 100-continue\r\n\r\n", b"BODY_TOO_BIG"),
        (b"PUT /empty" + HOST + b"Content-Length: 101\r\n\r\n" + b"x" * 101, b"INVALID_VALUE"),
        (b"PUT /empty" + HOST + b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101, b"INVALID_VALUE"),
    ],
)
def test_a_body_over_the_limit_is_refused_with_the_routes_own_code(request_bytes: bytes, code: bytes) -> None:
    """413 as soon as the size is known, without reading the body and without 100 Continue."""
    answered, closed = both_ways(request_bytes)
    assert answered.startswith(b"HTTP/1.1 413 ")
    assert answered.endswith(b'{"message":"' + code + b'"}')
    assert closed


def test_chunks_that_are_mostly_framing_are_refused() -> None:
    """A client cannot extend a small body for ever with chunk extensions."""
    data = b"POST /pub" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"1;" + b"p" * 500 + b"\r\nx\r\n") * 9
    answered, closed = converse(data, chunk=100)
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert closed


def test_a_connection_is_full_when_enough_requests_wait() -> None:
    """The transport stops reading while the maximum number of pipelined requests wait."""
    connection = Connection(LIMITS)
    connection.received((b"GET /ping" + HOST + b"\r\n") * 4)
    assert connection.full
    assert connection.next_request() is not None
    assert not connection.full


@given(st.binary(max_size=300), st.integers(1, 50))
def test_no_bytes_break_the_conversation(data: bytes, chunk: int) -> None:
    """Any input, however split, is answered or waits for more; nothing is raised."""
    converse(data, chunk=chunk)


PIECES = [
    b"GET ", b"POST ", b"/ping", b"/pub?topic=a", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"Host: h\r\n", b"\r\n", b"\n",
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n", b"0\r\n", b"hello",
    b"Upgrade: x\r\n", b"Connection: upgrade\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"\x00", b"%",
    b";", b"\xff",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join), st.integers(1, 20))
def test_the_result_does_not_depend_on_how_the_bytes_arrive(data: bytes, chunk: int) -> None:
    """Requests with small mistakes get the same answers whole and in pieces."""
    whole, in_pieces = converse(data), converse(data, chunk=chunk)
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"  # sent or not, depending on how much of the body had arrived
    assert in_pieces[0].replace(interim, b"") == whole[0].replace(interim, b"")
    assert in_pieces[1] == whole[1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None, "x"]}, b'{"b":1,"a":[true,null,"x"]}'),
        ([1.0, 0.99, 748512795.0, 1e16, -2.0, 1e300], b"[1,0.99,748512795,10000000000000000,-2,1e+300]"),
        (2.0, b"2"),
        ({"version": "1.0", "text": "1.0,2.0]"}, b'{"version":"1.0","text":"1.0,2.0]"}'),
        ("<a&b>\u2028\u2029é", b'"\\u003ca\\u0026b\\u003e\\u2028\\u2029\xc3\xa9"'),
        ("\ud800\udcff", b'"\xef\xbf\xbd\xef\xbf\xbd"'),
    ],
)
def test_json_is_written_as_go_writes_it(value: object, expected: bytes) -> None:
    """Compact, safe inside HTML, whole floats without a fraction."""
    assert encode(value) == expected


def test_a_request_knows_its_client() -> None:
    """Handlers and the log have the client's address."""
    connection = Connection(LIMITS, "1.2.3.4:5")
    connection.received(b"GET /ping" + HOST + b"\r\n")
    request = connection.next_request()
    assert isinstance(request, Request)
    assert request.remote_address == "1.2.3.4:5"


HEADS = [
    b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n",
    b"POST /pub?topic=u HTTP/1.1\r\nHost: h\r\nX-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /pub?topic=v HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
    b"POST /pub?topic=w HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n",
    b"GET /agent HTTP/1.1\r\nHost: h\r\nUser-Agent: a%d\r\n\r\n",
    b"HEAD /ping HTTP/1.1\r\nHost: h\r\nX-Length: %d\r\n\r\n",
    b"\r\nGET /ping HTTP/1.1\r\nHost: h\r\nX-Length: %d\r\n\r\n",
]


def whole_request(head: bytes, body: bytes) -> bytes:
    if b"chunked" in head:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    elif b"Content-Length" not in head:
        body = b""
    return head % len(body) + body


@given(
    st.lists(
        st.tuples(st.sampled_from(HEADS), st.sampled_from([b"", b"x", b"y", b"\r\n\r\n", b"0\r\n\r\n"])), max_size=8
    ),
    st.data(),
)
def test_a_repeated_head_is_parsed_alike(requests: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    """Requests that arrive whole are answered like the same bytes in one piece, or split anywhere."""
    stream = b"".join(whole_request(head, body) for head, body in requests)
    limits = Limits(max_header_size=1024, max_body_size=100, max_pipelined=64)

    def answers(parts: list[bytes]) -> bytes:
        router, connection, output = make_router(), Connection(limits, "1.2.3.4:5"), b""
        for part in parts:
            connection.received(part)
            while (request := connection.next_request()) is not None:
                answer = router.answer(request)
                assert isinstance(answer, Response)
                connection.respond(answer)
            output += connection.take_output()
        return re.sub(rb"Date: [^\r]+ GMT\r\n", b"", output).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")

    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = answers([stream[at : at + 1] for at in range(len(stream))])
    assert answers([whole_request(head, body) for head, body in requests]) == expected
    assert answers([whole_request(head, body) for head, body in requests]) == expected
    assert answers([piece for piece in pieces if piece]) == expected


def test_a_known_head_is_checked_against_the_limits_of_its_connection() -> None:
    """One listener of a server may accept a request that another refuses."""
    request = b"POST /pub?topic=limits HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\n" + b"x" * 50
    for _ in range(2):
        assert converse(request)[0].endswith(b'["limits",50]')
    refused, closed = converse(request, limits=Limits(max_header_size=1024, max_body_size=49))
    assert (refused[:12], closed) == (b"HTTP/1.1 413", True)
    refused, closed = converse(request, limits=Limits(max_header_size=30, max_body_size=100))
    assert (refused[:12], closed) == (b"HTTP/1.1 431", True)


JSON_WITHOUT_FLOATS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec=None))
    | st.sampled_from(["<&>", "\u2028\u2029"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON_WITHOUT_FLOATS)
def test_the_faster_encoder_writes_the_same_bytes(value: object) -> None:
    """For all values without floats: undecodable text, numbers of any size, characters with a meaning in HTML."""
    assert encode_without_floats(value) == encode(value)


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_target_may_hold_raw_bytes(chunk: int | None) -> None:
    """As in Go: an invalid name is refused, an unknown path is not found, and the connection goes on."""
    data = b"GET /ping" + HOST + b"\r\n" + "POST /pub?topic=ä".encode() + HOST + b"Content-Length: 0\r\n\r\n"
    data += b"GET /p\xff" + HOST + b"\r\n" + b"GET /ping" + HOST + b"\r\n"
    answered, closed = converse(data, chunk=chunk)
    assert re.findall(rb"HTTP/1.1 (\d+)", answered) == [b"200", b"200", b"404", b"200"]
    assert "ä".encode() in answered
    assert not closed


@pytest.mark.parametrize("line", [b"X: " + 40 * b"a", b"X: y\r\n"], ids=["one endless line", "many lines"])
def test_a_trailer_is_no_longer_than_a_head(line):
    """Trailers are not part of the body, so they have a limit of their own."""
    start = b"POST /pub?topic=t" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    output, closed = converse(start + 400 * line, chunk=500)
    assert output.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert closed
    output, closed = converse(start + b"X: y\r\n\r\n")
    assert output.endswith(b'["t",3]')
    assert not closed


def test_many_small_chunks_are_one_body():
    """The limit is for the bytes between two parts of the body, not for all chunks together."""
    chunks = b"".join(b"1;" + 100 * b"x" + b"\r\na\r\n" for _ in range(90)) + b"0\r\n\r\n"
    limits = Limits(max_header_size=1024, max_body_size=2000)
    output, closed = converse(
        b"POST /pub?topic=t" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, chunk=100, limits=limits
    )
    assert output.endswith(b'["t",90]')
    assert not closed


def test_chunks_of_http_1_0_end_the_connection():
    """HTTP/1.0 has no chunks: a proxy of that version may split the stream into other messages."""
    head = b"POST /pub?topic=t HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
    output, closed = converse(head + b"3\r\nabc\r\n0\r\n\r\n" + b"GET /ping" + HOST + b"\r\n")
    assert output.count(b"HTTP/1.1 ") == 1
    assert closed


def test_http_1_0_expects_no_100():
    """A client of HTTP/1.0 would take 100 Continue for the answer."""
    head = b"POST /pub?topic=t HTTP/1.0\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    output, _ = converse(head + b"abc")
    assert b"100 Continue" not in output
    assert output.endswith(b'["t",3]')
