"""Invalid HTTP requests, while other clients are served as usual."""

from __future__ import annotations

import http.client
import re
import socket

import pytest

from tests.harness.waiting import DEADLINE_S

HOST = b"Host: x\r\n"
NEXT = b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Content-Length: 6\r\n\r\n"
CHUNKED = b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
UPGRADE = (
    b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 3\r\n\r\nabc"
)
MALFORMED = [
    # the request, the beginning of the answer, what else it contains
    (b"\x00\x01\x02\x03\r\n\r\n", b"HTTP/1.1 400 ", b"Connection: close"),
    (b"  V2IDENTIFY\n", b"HTTP/1.1 400 ", b"Connection: close"),
    (b"GET /ping\r\n\r\n", b"HTTP/1.1 400 ", b""),
    (b"GET /ping HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 ", b"Connection: close"),
    (b"GET /ping HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"HTTP/1.1 400 ", b"Connection: close"),
    (b"GET /ping HTTP/9.9\r\n" + HOST + b"\r\n", b"HTTP/1.1 400 ", b"Connection: close"),
    (b"GET /ping HTTP/1.1\r\n" + HOST + b"no colon\r\n\r\n", b"HTTP/1.1 400 ", b"Connection: close"),
    (b"GET /ping HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 100_000, b"HTTP/1.1 431 ", b"Connection: close"),
    (b"GET /" + b"p" * 100_000, b"HTTP/1.1 431 ", b"Connection: close"),
    (b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Content-Length: x\r\n\r\n", b"HTTP/1.1 400 ", b"Connection: close"),
    (b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", b"HTTP/1.1 400 ", b"Connection: close"),
    (
        b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 400 ",
        b"Connection: close",
    ),
    (
        b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999\r\n\r\nx",
        b"HTTP/1.1 413 ",
        b'{"message":"MSG_TOO_BIG"}',
    ),
    (
        b"POST /mpub?topic=t HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999\r\n\r\nx",
        b"HTTP/1.1 413 ",
        b'{"message":"BODY_TOO_BIG"}',
    ),
    # answered before the body comes, by the limit of the route
    (
        b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Content-Length: 1048577\r\n\r\n",
        b"HTTP/1.1 413 ",
        b'{"message":"MSG_TOO_BIG"}',
    ),
    (
        b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Content-Length: 1048577\r\nExpect: 100-continue\r\n\r\n",
        b"HTTP/1.1 413 ",
        b'{"message":"MSG_TOO_BIG"}',
    ),
    (
        b"PUT /config/log_level HTTP/1.1\r\n" + HOST + b"Content-Length: 1048577\r\n\r\n",
        b"HTTP/1.1 413 ",
        b'{"message":"INVALID_VALUE"}',
    ),
    # raw bytes in a URL
    (
        b"POST /pub?topic=\xc3\xa4 HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\nx",
        b"HTTP/1.1 400 ",
        b'{"message":"INVALID_TOPIC"}',
    ),
    (b"GET /p\xc3\xa4 HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 404 ", b'{"message":"NOT_FOUND"}'),
    (b"GET /nothing HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 404 ", b'{"message":"NOT_FOUND"}'),
    (b"GET / HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 404 ", b'{"message":"NOT_FOUND"}'),
    (b"POST /create_topic?topic=x HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 404 ", b'{"message":"NOT_FOUND"}'),
    (b"GET /pub?topic=t HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 405 ", b"Allow: OPTIONS, POST\r\n"),
    (b"GET /topic/delete?topic=t HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 405 ", b'{"message":"METHOD_NOT_ALLOWED"}'),
    (b"DELETE /stats HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 405 ", b"Allow: GET, OPTIONS\r\n"),
    (b"POST /ping HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 405 ", b"Allow: GET, OPTIONS\r\n"),
    (b"GET /stats?topic=%q HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 400 ", b'{"message":"INVALID_REQUEST"}'),
    (b"GET /stats?a;b HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 400 ", b'{"message":"INVALID_REQUEST"}'),
    (b"GET /config/none HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 400 ", b'{"message":"INVALID_OPTION"}'),
    (b"GET /ping/ HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 301 ", b"Location: /ping\r\n"),
    (b"POST /PUB?topic=t HTTP/1.1\r\n" + HOST + b"\r\n", b"HTTP/1.1 307 ", b"Location: /pub?topic=t\r\n"),
    # aborted by the client, who then receives nothing
    (b"GET /pi", b"", b""),
    (b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nhalf", b"", b""),
    (b"POST /pub?topic=t HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", b"", b""),
]


def exchange(address: tuple[str, int], request: bytes) -> bytes:
    """Send the bytes, shut down our side, and return all bytes received."""
    with socket.create_connection(address, DEADLINE_S) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def fill(connection: socket.socket, request: bytes) -> None:
    """Send a request again and again until the buffers of both sides are full."""
    try:
        while True:
            connection.send(request)
    except BlockingIOError:
        pass


def test_each_malformed_request_gets_its_error_and_disturbs_no_other_client(broker, connect):
    """A producer on a kept-alive connection and a consumer go on working."""
    producer = http.client.HTTPConnection(*broker.http, timeout=DEADLINE_S)
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    for number, (request, status, content) in enumerate(MALFORMED):
        answer = exchange(broker.http, request)
        assert answer.startswith(status), (request[:80], answer)
        assert answer or not status, request[:80]
        assert content in answer, (request[:80], answer)
        if not status:
            assert answer == b"", (request[:80], answer)

        producer.request("POST", "/pub?topic=t", b"%d" % number)
        assert producer.getresponse().read() == b"OK"
        message_id, attempts, body = consumer.message()
        assert (attempts, body) == (1, b"%d" % number)
        consumer.send(b"FIN " + message_id + b"\n")
    producer.close()
    assert not [line for line in broker.log if "ERROR" in line or "Traceback" in line]


def test_requests_sent_together_are_answered_in_order(broker):
    """Pipelining works, and requests after an unparsable one are dropped."""
    get = b"GET %b HTTP/1.1\r\n" + HOST + b"\r\n"
    answer = exchange(
        broker.http, get % b"/ping" + get % b"/nothing" + get % b"/ping" + b"nonsense\r\n\r\n" + get % b"/info"
    )
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"404", b"200", b"400"]


def response_to(client: socket.socket) -> bytes:
    """The body of the next response, whose status is 200."""
    response = http.client.HTTPResponse(client, method="POST")
    response.begin()
    assert response.status == 200
    return response.read()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # the second request begins in a read with the end of the first, and its body comes later
        (b"", CHUNKED + NEXT),
        # the same without chunks: the head of the first comes in two reads
        (b"POST /pub?topic=t HT", b"TP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc" + NEXT),
        # a request that offers another protocol
        (b"", UPGRADE + NEXT),
    ],
)
def test_the_body_of_a_pipelined_request_is_stored_as_it_was_sent(broker, connect, first, second):
    """A read may end between the head of a request and its body, of which no byte is ASCII."""
    body = bytes(range(250, 256))
    with socket.create_connection(broker.http, DEADLINE_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(first)
        broker.request("GET", "/ping")  # served after what was sent before
        client.sendall(second)
        assert response_to(client) == b"OK"
        client.sendall(body)
        assert response_to(client) == b"OK"
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 2\n")
    assert [consumer.message()[2] for _ in range(2)] == [b"abc", body]


@pytest.mark.parametrize(("path", "allow"), [("/ping", "GET, OPTIONS"), ("/pub", "OPTIONS, POST")])
def test_options_lists_the_methods_of_an_endpoint(broker, path, allow):
    """OPTIONS is answered from the routing table, without calling the endpoint."""
    answer = broker.request("OPTIONS", path)
    assert (answer.status, answer.headers["allow"], answer.text) == (200, allow, "")
    assert broker.request("OPTIONS", "/config/id").headers["allow"] == "GET, OPTIONS, PUT"


def test_a_client_that_reads_nothing_does_not_delay_others(broker):
    """Only the slow reader of large answers waits."""
    for number in range(200):
        broker.request("POST", f"/topic/create?topic=topic-{number}")
    slow = socket.create_connection(broker.http, DEADLINE_S)
    try:
        slow.setblocking(False)
        fill(slow, b"GET /stats?format=json HTTP/1.1\r\n" + HOST + b"\r\n")
        assert broker.request("GET", "/ping").text == "OK"
    finally:
        slow.close()
    assert broker.request("GET", "/ping").text == "OK"
