"""The server side of nsqlookupd's protocol V1, without a socket."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nsqwire.errors import REPLIES, BadBody, BadChannel, BadTopic, Invalid, NSQError
from nsqwire.gojson import decode_json
from nsqwire.names import is_valid_name

MAGIC: Final = b"  V1"
OK: Final = b"OK"

_MAX_LINE_BYTES: Final = 64 * 1024
_MAX_BODY_BYTES: Final = 1024 * 1024
_LENGTH: Final = struct.Struct(">i")
_WHITE_SPACE: Final = b" \t\n\v\f\r"
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Ping:
    """``PING``: the peer is alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identify:
    """``IDENTIFY``: the addresses and version of the peer."""

    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    hostname: str = ""
    topology_zone: str = ""
    topology_region: str = ""


@dataclass(frozen=True, slots=True)
class Register:
    """``REGISTER``: the peer has the topic, and the channel unless that is None."""

    topic: str
    channel: str | None


@dataclass(frozen=True, slots=True)
class Unregister:
    """``UNREGISTER``: the peer no longer has the channel, or the topic if that is None."""

    topic: str
    channel: str | None


Command = Ping | Identify | Register | Unregister


class Session:
    """One connection: parses received bytes into commands, and encodes replies. Every error closes the session.

    A command is ``NAME param...\\n``; IDENTIFY is followed by ``length i32 | JSON``. A reply is ``length i32 | data``;
    the data of an error is ``<code> <text>``. Source: NSQ's nsqlookupd. In addition, a line is limited to 64 KiB and a
    body to 1 MiB, and a negative length is answered with an error.
    """

    def __init__(self) -> None:
        self.closed = False
        self.greeted = False
        self.identified = False
        self._input = bytearray()
        self._output: list[bytes] = []
        self._awaiting_body = False

    def received(self, data: bytes) -> None:
        """Take bytes from the client. Input after an error is dropped."""
        if not self.closed:
            self._input += data

    def next_command(self) -> Command | None:
        """The next complete command; None if more bytes are needed or an error has closed the session."""
        if self.closed or not (self.greeted or self._greet()):
            return None
        try:
            return self._identify_body() if self._awaiting_body else self._command()
        except NSQError as error:
            self.refuse(error)
            return None

    def respond(self, data: bytes) -> None:
        """Queue a reply."""
        self._output.append(_LENGTH.pack(len(data)) + data)

    def refuse(self, error: NSQError) -> None:
        """Queue an error reply and close the session."""
        text = f"{REPLIES[type(error)].tcp} {error}"
        self.respond(text.encode("utf-8", "surrogateescape"))
        self._close()

    def end(self) -> None:
        """Close the session after the client's last input. An incomplete body is answered with an error."""
        if self._awaiting_body and not self.closed:
            missing = "body size" if len(self._input) < _LENGTH.size else "body"
            self.refuse(BadBody(f"IDENTIFY failed to read {missing}"))
        self._close()

    def take_output(self) -> bytes:
        """Return the queued replies, and clear the queue."""
        output = b"".join(self._output)
        self._output.clear()
        return output

    def _close(self) -> None:
        self.closed = True
        self._input.clear()

    def _greet(self) -> bool:
        if len(self._input) < len(MAGIC):
            return False
        magic = bytes(self._input[: len(MAGIC)])
        del self._input[: len(MAGIC)]
        if magic != MAGIC:
            self.respond(b"E_BAD_PROTOCOL")
            self._close()
            return False
        self.greeted = True
        return True

    def _command(self) -> Command | None:
        end = self._input.find(b"\n", 0, _MAX_LINE_BYTES)
        if end < 0:
            if len(self._input) >= _MAX_LINE_BYTES:
                raise Invalid(f"command line is longer than {_MAX_LINE_BYTES} bytes")
            return None
        line = bytes(self._input[:end]).strip(_WHITE_SPACE).decode("utf-8", "surrogateescape")
        del self._input[: end + 1]
        name, *params = line.split(" ")
        if name == "PING":
            return Ping()
        if name == "IDENTIFY":
            if self.identified:
                raise Invalid("cannot IDENTIFY again")
            self._awaiting_body = True
            return self._identify_body()
        if name == "REGISTER":
            return Register(*self._names(name, params))
        if name == "UNREGISTER":
            return Unregister(*self._names(name, params))
        raise Invalid(f"invalid command {name}")

    def _names(self, command: str, params: list[str]) -> tuple[str, str | None]:
        if not self.identified:
            raise Invalid("client must IDENTIFY")
        if not params:
            raise Invalid(f"{command} insufficient number of params")
        topic, channel = params[0], params[1] if len(params) > 1 else ""
        if not is_valid_name(topic):
            raise BadTopic(f"{command} topic name '{topic}' is not valid")
        if channel and not is_valid_name(channel):
            raise BadChannel(f"{command} channel name '{channel}' is not valid")
        return topic, channel or None

    def _identify_body(self) -> Identify | None:
        if len(self._input) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._input)
        if not 0 <= length <= _MAX_BODY_BYTES:
            raise BadBody(f"IDENTIFY invalid body size {length}, the largest is {_MAX_BODY_BYTES}")
        end = _LENGTH.size + length
        if len(self._input) < end:
            return None
        body = bytes(self._input[_LENGTH.size : end])
        del self._input[:end]
        identify = parse_identify(body)
        self._awaiting_body = False
        self.identified = True
        return identify


def parse_identify(body: bytes) -> Identify:
    """Read IDENTIFY's JSON as Go reads it into a struct: keys match in any case, unknown keys and nulls are ignored.

    Raises BadBody.
    """
    try:
        return _identify_of(decode_json(body))
    except (ValueError, RecursionError):
        raise BadBody("IDENTIFY failed to decode JSON body") from None


def _identify_of(document: object) -> Identify:
    """Read the known keys. Raises ValueError for a value of another type, and BadBody without a required one."""
    if not isinstance(document, dict | None):
        raise ValueError("not an object")
    given: dict[str, Any] = {}
    for key, value in (document or {}).items():
        name = key.lower()
        accepts = _FIELDS.get(name)
        if accepts is None or value is None:
            continue
        if not accepts(value):
            raise ValueError(f"{name} is of the wrong type")
        given[name] = value
    given.pop("remote_address", None)  # the address of the connection is used
    if not all(given.get(name) for name in ("broadcast_address", "tcp_port", "http_port", "version")):
        raise BadBody("IDENTIFY missing fields")
    return Identify(**given)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_int(value: Any) -> bool:
    return type(value) is int and value in _INT64


_FIELDS: Final[dict[str, Callable[[Any], bool]]] = {
    "broadcast_address": _is_text,
    "tcp_port": _is_int,
    "http_port": _is_int,
    "version": _is_text,
    "hostname": _is_text,
    "topology_zone": _is_text,
    "topology_region": _is_text,
    "remote_address": _is_text,
}
