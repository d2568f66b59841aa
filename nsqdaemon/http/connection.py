"""One HTTP/1.1 connection, without a socket: it parses bytes into requests, and encodes responses."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httptools

from nsqdaemon.http.heads import PlainHead, plain_head
from nsqdaemon.http.messages import TEXT_HEADER, Request, Response, Stream
from nsqwire.units import Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of one connection; sizes in bytes."""

    max_header_size: int = 64 * 1024
    max_body_size: int = 8 * 1024 * 1024
    max_pipelined: int = 64


BodyLimit = Callable[[str, bytes], int | None]
"""Maps method and target to the largest permitted body in bytes; None if only the connection's limits apply."""

_POST_BYTES: Final = len(b"POST ")
_DISCARDED_BYTES: Final = 256 * 1024  # as Go: a larger refused body is not read, and the connection closes
_BLANK_LINE: Final = b"\r\n\r\n"

_METHODS: Final = {method.encode(): method for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS")}
_CHUNKING: Final = 8  # largest ratio of chunked size to body; a chunk of one byte takes six
_SMALL_PIECE_BYTES: Final = 1024
_JOINED_BYTES: Final = 64 * 1024
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"Connection: close\r\n"
_KEEP_ALIVE: Final = b"Connection: keep-alive\r\n"


class Connection:
    """Parses requests in order; each must be answered before the next is taken.

    No method raises on bad input: input that cannot be parsed is answered with 400, after the requests before it, and
    the connection closes. While ``full``, the transport must not read more.
    """

    def __init__(
        self,
        limits: Limits = Limits(),
        remote_address: str = "@",
        *,
        plain_head: PlainHead = plain_head,
        body_limit: BodyLimit | None = None,
    ) -> None:
        """``plain_head`` may be the compiled version. ``body_limit`` returns a lower limit for bodies of a method and
        target; a larger body is refused before it arrives."""
        self.closed = False
        self.waiting: deque[Request] = deque()
        """Received requests that are not taken yet."""
        self.within_message = False
        """True from the first to the last byte of a message that httptools parses, because its head is not plain."""
        self.output: list[bytes] = []
        """Encoded responses that are not sent yet."""
        self.has_large_output = False
        """True if the output is large, so that sending its parts is better than joining them."""
        self.stream: Stream | None = None
        """The Stream that answered the last request and takes over the connection."""
        self.remote_address = remote_address
        self._max_header_size = limits.max_header_size
        self._max_body_size = limits.max_body_size
        self._max_pipelined = limits.max_pipelined
        self._plain_head = plain_head
        self._body_limit = body_limit
        self._parser = httptools.HttpRequestParser(self)
        self._answering: Request | None = None
        self._failure: Response | None = None
        self._ignores_input = False  # input is ignored, after an error or the last request of the connection
        self._unparsed = 0  # bytes received since the last complete message
        self._continue_due = False
        self._saw_connection = False
        self._is_new_body = True
        self._begins = False  # a message began in the data that was parsed last
        self._awaits_target = True
        self._start_message()

    # --- called by the transport ---

    def drop(self) -> None:
        """Drop the received requests, after the client has disconnected."""
        self.waiting.clear()
        self._body.clear()

    @property
    def unfinished_bytes(self) -> int:
        """Bytes received of an incomplete body."""
        return self._body_size if self.within_message and not self._ignores_input else 0

    @property
    def is_new_unfinished(self) -> bool:
        """True the first time that this property is read for a body."""
        is_new, self._is_new_body = self._is_new_body, False
        return is_new

    def received(self, data: bytes) -> None:
        """Take bytes from the client; bytes after the end of the connection are dropped."""
        start, size = 0, len(data)
        while start < size and not self._ignores_input:
            if self.within_message:
                # Parse up to the end of the message, if known: the next head may be plain.
                end = min(size, start + self._body_left) if self._body_left > 0 else size
            else:
                if (found := self._plain_head(data, start)) is not None:
                    target_start, target_end, head_end, length = found
                    end = head_end + length
                    if end <= size and length <= self._max_body_size and head_end - start <= self._max_header_size:
                        method = "POST" if target_start - start == _POST_BYTES else "GET"
                        target, head, body = data[target_start:target_end], data[start:head_end], data[head_end:end]
                        self.waiting.append(Request(method, target, None, body, self.remote_address, head))
                        start = end
                        continue
                end = data.find(_BLANK_LINE, start) + len(_BLANK_LINE)
                if end < len(_BLANK_LINE):
                    end = size
            self._parse(data[start:end])
            start = end

    def _parse(self, data: bytes) -> None:
        # Pieces are limited, so that a head is refused before it exceeds its limit by more than one piece.
        size = self._max_header_size
        if len(data) <= size:
            if not self._ignores_input:
                self._feed(data)
            return
        for start in range(0, len(data), size):
            if self._ignores_input:
                return
            self._feed(data[start : start + size])

    def next_request(self) -> Request | None:
        """The next request to answer; None while more bytes are needed, or after the end of the connection."""
        if self.waiting:
            self._answering = request = self.waiting.popleft()
            return request
        if self._failure is not None:
            self._write(self._failure, head_only=False, connection=_CLOSE)
            self._failure = None
            self.closed = True
        return None

    def respond(self, response: Response) -> None:
        """Answer the request that ``next_request`` returned last."""
        request = self._answering
        assert request is not None, "there is no request to answer"
        self._answering = None
        if request.closes or response.closes:
            self._write(response, head_only=request.method == "HEAD", connection=_CLOSE)
            if isinstance(response, Stream) and request.method != "HEAD":
                self.stream = response
            self.waiting.clear()
            self._failure = None
            self._ignores_input = self.closed = True
            return
        if request.wants_keep_alive_header or request.method == "HEAD" or response.parts is not None:
            connection = _KEEP_ALIVE if request.wants_keep_alive_header else b""
            self._write(response, head_only=request.method == "HEAD", connection=connection)
        else:
            self.output.append(response.wire(_date_line()))
        if self._continue_due and not self.waiting:
            self._continue_due = False
            self.output.append(_CONTINUE)

    def take_output(self) -> bytes:
        """The bytes to send now."""
        parts = self.output
        output = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        return output

    def take_parts(self) -> list[bytes]:
        """The bytes to send now, in their parts."""
        parts, self.output, self.has_large_output = self.output, [], False
        return parts

    @property
    def full(self) -> bool:
        """Whether the waiting requests have reached the limit of number or of bytes for one connection."""
        waiting = self.waiting
        return len(waiting) >= self._max_pipelined or (
            sum(len(request.body) for request in waiting) > self._max_body_size
        )

    @property
    def has_unanswered(self) -> bool:
        """Whether a received request is not answered yet."""
        return self._answering is not None or bool(self.waiting) or self._failure is not None

    # --- called by httptools ---

    def on_message_begin(self) -> None:
        self.within_message = self._begins = True

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:  # trailers are ignored
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_done = True
        self._around_body = 0
        if self._unparsed > self._max_header_size:
            size = len(self._target) + sum(len(name) + len(value) for name, value in self._headers)
            if size > self._max_header_size:
                self._stop(431, "431 Request Header Fields Too Large")
        host = 0
        length = 0
        expectation = None
        chunked = False
        for name, value in self._headers:
            # Compared by length first: this runs for every header of every publish.
            size = len(name)
            if size == 4:
                if name == b"Host" or name.lower() == b"host":
                    host += 1
            elif size == 14:
                if name.lower() == b"content-length":
                    length = self._body_left = int(value)
            elif size == 10:
                self._saw_connection = self._saw_connection or name.lower() == b"connection"
            elif size == 6 and name.lower() == b"expect":
                expectation = value.strip().lower()
            elif size == 17 and name.lower() == b"transfer-encoding":
                chunked = True
        if (chunked or expectation is not None) and self._parser.get_http_version() == "1.0":
            # HTTP/1.0 has neither. A proxy of that version may delimit these messages differently (RFC 9112, 6.1).
            self._is_faulty, expectation = chunked, None
        if host != 1 and (host > 1 or self._parser.get_http_version() != "1.0"):
            what = "missing required Host header" if host == 0 else "too many Host headers"
            self._stop(400, f"400 Bad Request: {what}")
        if length:
            self._check_length(length, expects=expectation is not None)
        if expectation is not None:
            self._expect(expectation)

    def on_body(self, body: bytes) -> None:
        self._around_body = 0
        self._body_left -= len(body)
        if self._discards:
            return
        self._body_size += len(body)
        if self._body_size > self._max_body_size:
            self._give_up_on_body()
        if self._body and len(body) < _SMALL_PIECE_BYTES:  # joined, because an object for each takes more memory
            last = self._body[-1]
            if isinstance(last, bytearray) and len(last) < _JOINED_BYTES:
                last += body
            else:
                self._body.append(bytearray(body))
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._discards:
            self._unparsed = 0
            self.within_message = False
            self._start_message()
            return
        body = self._body
        request = self._request(b"".join(body))
        if self._is_faulty or not self._parser.should_keep_alive():
            request.closes = True
            self._ignores_input = True
        elif self._saw_connection:
            request.wants_keep_alive_header = self._parser.get_http_version() == "1.0"
        self.waiting.append(request)
        self._continue_due = False
        self._unparsed = 0
        self.within_message = False
        self._start_message()

    # --- inside ---

    def _feed(self, data: bytes) -> None:
        self._unparsed += len(data)
        self._around_body += len(data)
        self._begins = False
        if self._awaits_target:
            data = self._with_ascii_target(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if not self._ignores_input:  # otherwise one of our limits stopped the parser
                self._fail(400, "400 Bad Request")
        if self._begins and self._target:
            # The message may follow another one in the data, and the rest of its head or body must not be escaped.
            line = b"%s %s" % (self._parser.get_method(), self._target)
            self._awaits_target = not self._head_done and data.endswith(line)
        if self._unparsed > self._max_header_size and not self._ignores_input:
            if not self._head_done:
                self._fail(431, "431 Request Header Fields Too Large")
            elif (
                self._around_body > self._max_header_size
                or self._unparsed > self._max_header_size + _CHUNKING * self._max_body_size
            ):
                self._fail(400, "400 Bad Request: too much around the body")

    def _with_ascii_target(self, data: bytes) -> bytes:
        """Escape the non-ASCII bytes of the request line, which Go accepts and httptools does not."""
        line, newline, rest = data.partition(b"\n")
        if newline and (self.within_message or line.strip()):
            self._awaits_target = False
        if line.isascii():
            return data
        return _NOT_ASCII.sub(lambda match: b"%%%02X" % match[0][0], line) + newline + rest

    def _start_message(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes | bytearray] = []
        self._body_size = 0
        self._is_new_body = True
        self._head_done = False
        self._saw_connection = False
        self._body_left = 0
        """Bytes of the Content-Length that are not received yet; 0 or less without a Content-Length."""
        self._around_body = 0
        """Bytes received since the last byte of the head or body: chunk sizes and extensions, or a trailer."""
        self._is_faulty = False
        """The framing is invalid: the request is answered, and the connection closes."""
        self._discards = False
        """The request was refused, and its body is discarded."""
        self._awaits_target = True

    def _request(self, body: bytes) -> Request:
        return Request(self._method(), self._target, self._headers, body, self.remote_address)

    def _method(self) -> str:
        raw = self._parser.get_method()
        return _METHODS.get(raw) or raw.decode("latin-1")

    def _expect(self, expectation: bytes) -> None:
        if expectation != b"100-continue":
            self._stop(417, "417 Expectation Failed")
        if self.waiting or self._answering is not None:
            self._continue_due = True  # sent after the preceding responses
        else:
            self.output.append(_CONTINUE)

    def _check_length(self, length: int, *, expects: bool) -> None:
        """Refuse the request at once if its body exceeds the limit of its route or of the connection."""
        if length > self._max_body_size:
            self._give_up_on_body()
        if self._body_limit is None:
            return
        limit = self._body_limit(self._method(), self._target)
        if limit is None or length <= limit:
            return
        if length > _DISCARDED_BYTES or expects or not self._parser.should_keep_alive():
            self._give_up_on_body()
        request = self._request(b"")
        request.oversized = True
        self.waiting.append(request)
        self._discards = True

    def _give_up_on_body(self) -> None:
        """Pass the request on without its body, so that the response has the route's code for too big a body."""
        request = self._request(b"")
        request.oversized = request.closes = True
        self.waiting.append(request)
        self._ignores_input = True
        raise _Stopped

    def _decline_upgrade(self, rest: bytes) -> None:
        """Continue in HTTP/1.1 with a request that offered another protocol, as ``curl --http2`` does.

        The parser ended the request after its head; the request is parsed again without the offer, with its body.
        """
        request = self.waiting.pop()
        if request.method == "CONNECT":
            request.closes = self._ignores_input = True
            self.waiting.append(request)
            return
        lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.target)]
        lines += [b"%s: %s" % header for header in request.headers if header[0].lower() != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._ignores_input = False
        self._feed(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _stop(self, status: int, text: str) -> None:
        self._fail(status, text)
        raise _Stopped

    def _fail(self, status: int, text: str) -> None:
        self._failure = Response(status, text.encode(), (TEXT_HEADER,), closes=True)
        self._ignores_input = True
        self._body.clear()

    def _write(self, response: Response, *, head_only: bool, connection: bytes) -> None:
        self.output += [response.head, connection, _date_line()]
        if response.parts is not None and not head_only:
            self.output += response.parts
            self.has_large_output = True
        elif not head_only:
            self.output.append(response.body)


class _Stopped(Exception):
    """Raised in the parser's callbacks to stop it at once; the parser then raises HttpParserError."""


_date_ends_s = 0.0
_date = b""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _http_date(now: Seconds) -> str:
    """Format Unix seconds as an HTTP date in any locale: ``Sun, 06 Nov 1994 08:49:37 GMT``."""
    utc = time.gmtime(now)
    clock = f"{utc.tm_hour:02d}:{utc.tm_min:02d}:{utc.tm_sec:02d}"
    return f"{_DAYS[utc.tm_wday]}, {utc.tm_mday:02d} {_MONTHS[utc.tm_mon - 1]} {utc.tm_year} {clock} GMT"


def _date_line() -> bytes:
    """The Date header, which ends the head; formatted once a second."""
    global _date, _date_ends_s
    now = time.time()
    if not _date_ends_s - 1 <= now < _date_ends_s:
        _date_ends_s = int(now) + 1.0
        _date = f"Date: {_http_date(now)}\r\n\r\n".encode()
    return _date
