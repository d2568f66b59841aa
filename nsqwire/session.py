"""The broker's side of one client's V2 connection, without the socket.

The transport reads into :meth:`Session.get_buffer`, reports the size with :meth:`Session.received`, takes commands with
:meth:`Session.next_command` until there is none, and sends :meth:`Session.take_output`. A malformed command queues its
error frame and, if the error is fatal, closes the session; no method raises on bad input.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from nsqwire import scan
from nsqwire.commands import (
    Auth,
    Authorize,
    Cls,
    Command,
    DpubRun,
    Fin,
    HeaderMpub,
    HeaderPub,
    IdentifyCommand,
    Mpub,
    MpubRun,
    Pub,
    PubRun,
    Rdy,
    Req,
    Sub,
    Touch,
)
from nsqwire.errors import (
    REPLIES,
    BadBody,
    BadChannel,
    BadHeaders,
    BadMessage,
    BadProtocol,
    BadTopic,
    Invalid,
    NSQError,
    go_quote,
)
from nsqwire.frame import ERROR, HEADER_SIZE, HEARTBEAT, MESSAGE_ID_BYTES, RESPONSE, encode_frame
from nsqwire.headers import MAX_BLOCK_BYTES, MAX_MESSAGES, decode_headers
from nsqwire.identify import IdentifyLimits, Terms, parse_identify
from nsqwire.names import is_valid_name
from nsqwire.params import decimal, raw
from nsqwire.read_buffer import ReadBuffer

MAX_LINE_BYTES = 16_384
"""Longest command line, newline included. A longer one closes the connection without an error frame."""

MAGIC = b"  V2"
OK = encode_frame(RESPONSE, b"OK")
CLOSE_WAIT = encode_frame(RESPONSE, b"CLOSE_WAIT")
HEARTBEAT_FRAME = encode_frame(RESPONSE, HEARTBEAT)


class State(enum.IntEnum):
    """State of a client; the values are those in ``/stats``."""

    INIT = 0
    SUBSCRIBED = 3
    CLOSING = 4


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    """The limits of a session; sizes in bytes, times in milliseconds.

    ``tls_required`` permits only IDENTIFY until :meth:`Session.secured` is called.
    """

    identify: IdentifyLimits
    tls_required: bool = False
    max_msg_size: int
    max_body_size: int
    max_rdy_count: int
    max_req_timeout_ms: int


class Session(ReadBuffer):
    """One client's V2 connection.

    ``scratch`` is a buffer that sessions of one thread share, so that an idle connection needs no read buffer.
    """

    def __init__(self, limits: SessionLimits, *, scratch: bytearray, scanner: scan.Scanner = scan) -> None:
        super().__init__(scratch)
        self.limits = limits
        self.state = State.INIT
        self.terms = Terms.before_identify(limits.identify)
        self.identified = False
        self.closed = False
        self._scanner = scanner
        self._resume = self._read_magic
        self._output: list[bytes] = []
        self._topics: dict[bytes, str] = {}
        self._incomplete_line = False
        self.awaits_magic = True
        """True until the client has sent its protocol version."""
        self._commands = _BEFORE_TLS if limits.tls_required else _COMMANDS
        # With an auth server, each publish may have to wait for the server's answer.
        self._takes_runs = not (limits.tls_required or limits.identify.auth_required)

    def secured(self) -> None:
        """Record that TLS protects the connection from now on."""
        self._commands = _COMMANDS
        self._takes_runs = not self.limits.identify.auth_required

    def eof(self) -> None:
        """Record that the client closed its side. A command with an incomplete body is answered with its error."""
        if self._eof_error is not None and not self.closed:
            self.refuse(self._eof_error)
        self.closed = True

    # -- taking commands ------------------------------------------------------------------------------------------

    def next_command(self) -> Command | None:
        """Return the next complete command; None if more bytes are needed or an error closed the session."""
        if self.closed:
            return None
        try:
            while self._start < self._end or self._resume is not None:
                command = self._resume() if self._resume is not None else self._read_line()
                if command is not None:
                    return command
                if self._resume is not None or self._incomplete_line:
                    break
        except NSQError as error:
            self.refuse(error)
            return None
        self._make_room()
        return None

    @property
    def is_between_commands(self) -> bool:
        """True if ``only_run`` may be called: runs are allowed, and all unread bytes are at the start of the shared
        buffer and begin with a command line."""
        between = not self._start and self._resume is None and self._buffer is self._scratch
        return between and self._takes_runs and not self.closed

    def only_run(self) -> PubRun | DpubRun | MpubRun | None:
        """Return the unread bytes as one command if they are a single run of publishes; otherwise None.

        Three times as fast as ``next_command``. Only valid if ``is_between_commands``.
        """
        end = self._end
        run = self._read_run(0, end)
        if run is not None and self._start == end:
            self.taken()
            return run
        self._start = 0
        return None

    def taken(self) -> None:
        """Mark all unread bytes as taken. Only valid if ``is_between_commands``."""
        self._start = self._end = self._line = self.unfinished_bytes = 0

    def respond(self, frame: bytes) -> None:
        """Queue a complete frame."""
        self._output.append(frame)

    def refuse(self, error: NSQError) -> None:
        """Queue the error frame; a fatal error closes the session."""
        reply = REPLIES[type(error)]
        text = f"{reply.tcp} {error}" if str(error) else reply.tcp
        self._output.append(encode_frame(ERROR, text.encode("utf-8", "surrogateescape")))
        if reply.fatal:
            self.closed = True

    def take_output(self) -> bytes:
        """Remove and return the queued frames."""
        if not self._output:
            return b""
        output = self._output[0] if len(self._output) == 1 else b"".join(self._output)
        self._output.clear()
        return output

    # -- grammar --------------------------------------------------------------------------------------------------

    def _read_magic(self) -> None:
        if self._end - self._start < 4:
            return
        self._resume = None
        self.awaits_magic = False
        if self._take(4) != MAGIC:
            raise BadProtocol("")

    def _read_line(self) -> Command | None:
        self._line = start = self._start
        end = self._end
        self._incomplete_line = False
        if self._buffer[start] == 0x46:  # "F"
            if (fins := self._read_fins(start, end)) is not None:
                return fins
        elif self._buffer[start] in b"RT" and self.state is not State.INIT:
            if (answers := self._read_answers(start, min(end, start + scan.MAX_RUN_BYTES))) is not None:
                return answers
        elif self._buffer[start] == 0x4E and self._commands is _COMMANDS:  # "N"
            self._start = start = self._line = self._scanner.nop_run(self._buffer, start, end)
            if start == end:
                return None
        elif self._takes_runs and (run := self._read_run(start, end)) is not None:
            return run
        newline = self._buffer.find(b"\n", start, min(end, start + MAX_LINE_BYTES))
        if newline < 0:
            if end - start >= MAX_LINE_BYTES:
                self.closed = True
            self._incomplete_line = True
            return None
        line = bytes(memoryview(self._buffer)[start:newline])
        self._start = newline + 1
        params = line.removesuffix(b"\r").split(b" ")
        handler = self._commands.get(params[0])
        if handler is None:
            if self._commands is _BEFORE_TLS:
                raise Invalid(f"cannot {raw(params[0])} in current state (TLS required)")
            raise Invalid(f"invalid command {raw(params[0])}")
        return handler(self, params)

    def _read_fins(self, start: int, end: int) -> Fin | None:
        """Return the run of FINs at ``start``, or None."""
        count = self._scanner.fin_run(self._buffer, start, end) if self.state is not State.INIT else 0
        return Fin(self._take(count * scan.FIN_LINE_BYTES), count) if count else None

    def _read_answers(self, start: int, end: int) -> Req | Touch | None:
        """Return the run of REQs or TOUCHes at ``start``, or None."""
        buffer = self._buffer
        if buffer[start] == 0x54:  # "T"
            count = self._scanner.touch_run(buffer, start, end)
            return Touch(self._take(count * scan.TOUCH_LINE_BYTES), count) if count else None
        length, count = self._scanner.req_run(buffer, start, end)
        if not count:
            return None
        delay_ms = int(bytes(buffer[start + scan.REQ_TIMEOUT_AT : start + length - 1]))
        return Req(self._take(count * length), count, delay_ms)

    def _read_run(self, start: int, end: int) -> PubRun | DpubRun | MpubRun | None:
        """Return the run of publishes at ``start``; None if there is none or its topic's name is not checked yet."""
        limits, buffer = self.limits, self._buffer
        if buffer[start] == 0x50:  # "P"
            length, count, stop = self._scanner.pub_run(buffer, start, end, limits.max_msg_size)
            if count and (topic := self._topics.get(bytes(buffer[start + 4 : start + length - 1]))) is not None:
                return PubRun(topic, self._take(stop - start), count, length)
        elif buffer[start] == 0x4D:  # "M"
            length, count, messages, stop = self._scanner.mpub_run(
                buffer, start, end, limits.max_msg_size, limits.max_body_size
            )
            if count and (topic := self._topics.get(bytes(buffer[start + 5 : start + length - 1]))) is not None:
                return MpubRun(topic, self._take(stop - start), count, messages, length)
        elif buffer[start] == 0x44:  # "D"
            length, count, nbytes, stop = self._scanner.dpub_run(
                buffer, start, end, limits.max_msg_size, limits.max_req_timeout_ms
            )
            if count and (topic := self._topics.get(bytes(buffer[start + 5 : start + 5 + length]))) is not None:
                return DpubRun(topic, self._take(stop - start), count, nbytes)
        return None

    def _in_state(self, command: str, *allowed: State) -> None:
        if self.state not in allowed:
            raise Invalid(f"cannot {command} in current state")

    def _topic(self, command: str, param: bytes, prefix: str = "") -> str:
        name = self._topics.get(param)
        if name is None:
            name = raw(param)
            if not is_valid_name(name):
                raise BadTopic(f"{prefix}{command} topic name {go_quote(param)} is not valid")
            if len(self._topics) < 64:
                self._topics[param] = name
        return name

    def _identify_body(self, command: str, then: Callable[[bytes], Command]) -> Command | None:
        """Read the body of IDENTIFY or AUTH, whose errors differ only in the command's name."""

        def sized(length: int) -> Command | None:
            limit = self.limits.max_body_size
            if length > limit:
                raise BadBody(f"{command} body too big {length} > {limit}")
            if length <= 0:
                raise BadBody(f"{command} invalid body size {length}")
            return self._need(
                length, lambda: then(bytes(self._take(length))), BadBody(f"{command} failed to read body")
            )

        return self._length(sized, BadBody(f"{command} failed to read body size"))

    def _identify(self, params: list[bytes]) -> Command | None:
        self._in_state("IDENTIFY", State.INIT)

        def whole(body: bytes) -> Command:
            asked = parse_identify(body)
            self.terms = self.terms.agree(asked, self.limits.identify)
            return IdentifyCommand(asked)

        return self._identify_body("IDENTIFY", whole)

    def _auth(self, params: list[bytes]) -> Command | None:
        self._in_state("AUTH", State.INIT)
        if len(params) != 1:
            raise Invalid("AUTH invalid number of parameters")
        return self._identify_body("AUTH", Auth)

    def _sub(self, params: list[bytes]) -> Command:
        self._in_state("SUB", State.INIT)
        if self.terms.heartbeat_interval_ms == 0:
            raise Invalid("cannot SUB with heartbeats disabled")
        if len(params) < 3:
            raise Invalid("SUB insufficient number of parameters")
        topic = self._topic("SUB", params[1])
        channel = raw(params[2])
        if not is_valid_name(channel):
            raise BadChannel(f"SUB channel name {go_quote(params[2])} is not valid")
        return Sub(topic, channel)

    def _rdy(self, params: list[bytes]) -> Command | None:
        if self.state is State.CLOSING:
            return None
        self._in_state("RDY", State.SUBSCRIBED)
        count, limit = 1, self.limits.max_rdy_count
        if len(params) > 1:
            count = decimal(params[1], f"RDY could not parse count {raw(params[1])}")
        if not 0 <= count <= limit:
            raise Invalid(f"RDY count {count} out of range 0-{limit}")
        return Rdy(count)

    def _message_id(self, command: str, params: list[bytes], wanted: int) -> bytes:
        self._in_state(command, State.SUBSCRIBED, State.CLOSING)
        if len(params) < wanted:
            raise Invalid(f"{command} insufficient number of params")
        if len(params[1]) != MESSAGE_ID_BYTES:
            raise Invalid("invalid message ID")
        return params[1]

    def _fin(self, params: list[bytes]) -> Command:
        message_id = self._message_id("FIN", params, 2)
        return Fin(memoryview(b"FIN " + message_id + b"\n"), 1)

    def _req(self, params: list[bytes]) -> Command:
        message_id = self._message_id("REQ", params, 3)
        delay_ms = decimal(params[2], f"REQ could not parse timeout {raw(params[2])}")
        return Req(memoryview(b"REQ " + message_id + b"\n"), 1, delay_ms)

    def _touch(self, params: list[bytes]) -> Command:
        return Touch(memoryview(b"TOUCH " + self._message_id("TOUCH", params, 2) + b"\n"), 1)

    def _cls(self, params: list[bytes]) -> Command:
        self._in_state("CLS", State.SUBSCRIBED)
        return Cls()

    def _nop(self, params: list[bytes]) -> None:
        return None

    def _pub(self, params: list[bytes]) -> Command | None:
        if len(params) < 2:
            raise Invalid("PUB insufficient number of parameters")
        return self._message("PUB", self._topic("PUB", params[1]), None)

    def _dpub(self, params: list[bytes]) -> Command | None:
        return self._message("DPUB", *self._deferred("DPUB", params))

    def _deferred(self, command: str, params: list[bytes]) -> tuple[str, int]:
        """The topic and the delay in milliseconds of a deferred publish."""
        if len(params) < 3:
            raise Invalid(f"{command} insufficient number of parameters")
        topic = self._topic(command, params[1])
        defer_ms = decimal(params[2], f"{command} could not parse timeout {raw(params[2])}")
        limit = self.limits.max_req_timeout_ms
        if not 0 <= defer_ms <= limit:
            raise Invalid(f"{command} timeout {defer_ms % 2**64} out of range 0-{limit}")
        return topic, defer_ms

    def _message(self, command: str, topic: str, defer_ms: int | None) -> Command | None:
        def sized(length: int) -> Command | None:
            limit = self.limits.max_msg_size
            if length <= 0:
                raise BadMessage(f"{command} invalid message body size {length}")
            if length > limit:
                raise BadMessage(f"{command} message too big {length} > {limit}")
            return self._need(
                length,
                lambda: Pub(topic, self._take(length), defer_ms),
                BadMessage(f"{command} failed to read message body"),
            )

        return self._length(sized, BadMessage(f"{command} failed to read message body size"))

    def _mpub_line(self, params: list[bytes]) -> Command | None:
        if len(params) < 2:
            raise Invalid("MPUB insufficient number of parameters")
        topic = self._topic("MPUB", params[1], prefix="E_BAD_TOPIC ")
        if self.limits.identify.auth_required:
            self._resume = lambda: self._mpub_body(topic)
            return Authorize(topic, "MPUB")
        return self._mpub_body(topic)

    def _mpub_body(self, topic: str) -> Command | None:
        def sized(length: int) -> Command | None:
            limit = self.limits.max_body_size
            if length <= 0:
                raise BadBody(f"MPUB invalid body size {length}")
            if length > limit:
                raise BadBody(f"MPUB body too big {length} > {limit}")
            return self._length(
                lambda count: self._mpub_count(topic, count, length), BadBody("MPUB failed to read message count")
            )

        return self._length(sized, BadBody("MPUB failed to read body size"))

    def _mpub_count(self, topic: str, count: int, length: int) -> Command | None:
        if count <= 0 or count > scan.max_mpub_messages(self.limits.max_body_size):
            raise BadBody(f"MPUB invalid message count {count}")
        self._want = length
        return self._mpub_messages(topic, count, 0, count)

    def _mpub_messages(self, topic: str, count: int, scanned: int, remaining: int) -> Command | None:
        """Check the sizes of the messages. The first ``scanned`` bytes are already checked."""
        limit = self.limits.max_msg_size
        status, offset, remaining, size = self._scanner.scan_messages(
            self._buffer, self._start + scanned, self._end, remaining, limit
        )
        index = count - remaining
        if status == scan.BAD_SIZE:
            if size <= 0:
                raise BadMessage(f"MPUB invalid message({index}) body size {size}")
            raise BadMessage(f"MPUB message too big {size} > {limit}")
        if status == scan.MORE:
            scanned = offset - self._start
            self._want = max(self._want, scanned + 4 + size)
            self._resume = lambda: self._mpub_messages(topic, count, scanned, remaining)
            self._eof_error = BadMessage(
                f"MPUB failed to read message({index}) body size"
                if self._end - offset < 4
                else "MPUB failed to read message body"
            )
            return None
        self._resume, self._eof_error, self._want = None, None, 0
        start, self._start = self._start, self._line
        if self._takes_runs and (run := self._read_run(self._start, self._end)) is not None:
            return run  # this MPUB and those after it
        self._start = start
        return Mpub(topic, self._take(offset - start), count)

    # -- publishes with headers -----------------------------------------------------------------------------------

    def _require_headers(self, command: str) -> None:
        """Raise the error of an unknown command if headers were not agreed on."""
        if not self.terms.headers:
            raise Invalid(f"invalid command {command}")

    def _hpub(self, params: list[bytes]) -> Command | None:
        self._require_headers("HPUB")
        if len(params) < 2:
            raise Invalid("HPUB insufficient number of parameters")
        return self._message_with_headers("HPUB", self._topic("HPUB", params[1]), None)

    def _hdpub(self, params: list[bytes]) -> Command | None:
        self._require_headers("HDPUB")
        return self._message_with_headers("HDPUB", *self._deferred("HDPUB", params))

    def _message_with_headers(self, command: str, topic: str, defer_ms: int | None) -> Command | None:
        def sized(length: int) -> Command | None:
            limit = HEADER_SIZE.size + MAX_BLOCK_BYTES + self.limits.max_msg_size
            if length <= HEADER_SIZE.size:
                raise BadMessage(f"{command} invalid message size {length}")
            if length > limit:
                raise BadMessage(f"{command} message too big {length} > {limit}")
            return self._need(
                length,
                lambda: HeaderPub(topic, *self._split(command, self._take(length)), defer_ms),
                BadMessage(f"{command} failed to read message"),
            )

        return self._length(sized, BadMessage(f"{command} failed to read message size"))

    def _split(self, command: str, message: memoryview) -> tuple[dict[str, str], memoryview]:
        """The headers and the body of ``header size i32 | header block | body``. Raises BadMessage."""
        (size,) = HEADER_SIZE.unpack_from(message)
        start, limit = HEADER_SIZE.size + size, self.limits.max_msg_size
        if not 0 < size <= MAX_BLOCK_BYTES or start > len(message):
            raise BadMessage(f"{command} invalid header block size {size}")
        if start == len(message):
            raise BadMessage(f"{command} invalid message body size 0")
        if len(message) - start > limit:
            raise BadMessage(f"{command} message too big {len(message) - start} > {limit}")
        try:
            return decode_headers(message[HEADER_SIZE.size : start]), message[start:]
        except BadHeaders as error:
            raise BadMessage(f"{command} {error}") from None

    def _hmpub(self, params: list[bytes]) -> Command | None:
        self._require_headers("HMPUB")
        if len(params) < 2:
            raise Invalid("HMPUB insufficient number of parameters")
        topic = self._topic("HMPUB", params[1])
        if self.limits.identify.auth_required:
            self._resume = lambda: self._hmpub_body(topic)
            return Authorize(topic, "HMPUB")
        return self._hmpub_body(topic)

    def _hmpub_body(self, topic: str) -> Command | None:
        def sized(length: int) -> Command | None:
            limit = self.limits.max_body_size
            if length < _COUNT_BYTES:
                raise BadBody(f"HMPUB invalid body size {length}")
            if length > limit:
                raise BadBody(f"HMPUB body too big {length} > {limit}")
            return self._need(
                length,
                lambda: HeaderMpub(topic, self._split_all(self._take(length))),
                BadBody("HMPUB failed to read body"),
            )

        return self._length(sized, BadBody("HMPUB failed to read body size"))

    def _split_all(self, body: memoryview) -> list[tuple[dict[str, str], memoryview]]:
        """The headers and the body of each message of an HMPUB. Raises BadBody and BadMessage."""
        count, at = int.from_bytes(body[:_COUNT_BYTES]), _COUNT_BYTES
        if count > MAX_MESSAGES:
            raise BadBody(f"HMPUB of {count} messages, more than {MAX_MESSAGES}")
        messages = list[tuple[dict[str, str], memoryview]]()
        while at < len(body):
            start = at + HEADER_SIZE.size
            size = int.from_bytes(body[at:start])
            at = start + size
            if size <= HEADER_SIZE.size or at > len(body):
                raise BadMessage(f"HMPUB invalid message({len(messages)}) size {size}")
            if len(messages) == count:
                raise BadBody(f"HMPUB invalid message count {count}")
            messages.append(self._split("HMPUB", body[start:at]))
        if not count or len(messages) != count:
            raise BadBody(f"HMPUB invalid message count {count}")
        return messages


_COUNT_BYTES = 4
_COMMANDS: dict[bytes, Callable[[Session, list[bytes]], Command | None]] = {
    b"IDENTIFY": Session._identify,
    b"AUTH": Session._auth,
    b"SUB": Session._sub,
    b"PUB": Session._pub,
    b"DPUB": Session._dpub,
    b"MPUB": Session._mpub_line,
    b"HPUB": Session._hpub,
    b"HDPUB": Session._hdpub,
    b"HMPUB": Session._hmpub,
    b"RDY": Session._rdy,
    b"FIN": Session._fin,
    b"REQ": Session._req,
    b"TOUCH": Session._touch,
    b"CLS": Session._cls,
    b"NOP": Session._nop,
}
_BEFORE_TLS = {b"IDENTIFY": Session._identify}
"""The commands that are permitted before TLS if TLS is required."""
