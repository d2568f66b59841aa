"""IDENTIFY: the client's request, and the settings that result for the connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from nsqwire.errors import BadBody
from nsqwire.gojson import decode_json

_INT64 = range(-(2**63), 2**63)
_INT32 = range(-(2**31), 2**31)

DEFAULT_HEARTBEAT_MS = 30_000
DEFAULT_OUTPUT_BUFFER_SIZE = 16_384
MIN_HEARTBEAT_MS = 1_000
MIN_MSG_TIMEOUT_MS = 1_000
MIN_OUTPUT_BUFFER_SIZE = 64
MAX_SAMPLE_RATE = 99


@dataclass(frozen=True, kw_only=True)
class Identify:
    """The fields of an IDENTIFY body. Its keys are these names without ``_ms``.

    For intervals, timeouts and sizes, 0 keeps the current value; -1 switches heartbeats or output buffering off.
    """

    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    heartbeat_interval_ms: int = 0
    output_buffer_size: int = 0
    output_buffer_timeout_ms: int = 0
    sample_rate: int = 0
    msg_timeout_ms: int = 0
    feature_negotiation: bool = False
    tls_v1: bool = False
    deflate: bool = False
    deflate_level: int = 0
    snappy: bool = False
    topology_region: str = ""
    topology_zone: str = ""
    publish_ids: bool = False
    headers: bool = False


_FIELDS = {field.name.removesuffix("_ms"): (field.name, type(field.default)) for field in fields(Identify)}
"""The attribute of each key, and its type."""


def parse_identify(body: bytes) -> Identify:
    """Read an IDENTIFY body: a JSON object, or ``null``.

    Keys are case-insensitive; unknown keys and nulls are ignored. Raises BadBody for anything else.
    """
    try:
        decoded = decode_json(body)
        if decoded is None:
            return Identify()
        if not isinstance(decoded, dict):
            raise ValueError("not an object")
        return _identify_of(decoded)
    except (ValueError, RecursionError):
        raise BadBody("IDENTIFY failed to decode JSON body") from None


def _identify_of(decoded: Mapping[str, object]) -> Identify:
    """Read the known keys. Raises ValueError for a value of another type or range."""
    known: dict[str, Any] = {}
    for key, value in decoded.items():
        field = _FIELDS.get(key.lower())
        if field is None or value is None:
            continue
        name, wanted = field
        if type(value) is not wanted:
            raise ValueError(f"{key} is not {wanted.__name__}")
        if wanted is int and value not in (_INT32 if name == "sample_rate" else _INT64):
            raise ValueError(f"{key} is out of range")
        known[name] = value
    return Identify(**known)


@dataclass(frozen=True, kw_only=True)
class IdentifyLimits:
    """The limits of the settings that a broker grants."""

    version: str
    max_rdy_count: int
    max_heartbeat_interval_ms: int
    max_output_buffer_size: int
    min_output_buffer_timeout_ms: int
    max_output_buffer_timeout_ms: int
    output_buffer_timeout_ms: int
    msg_timeout_ms: int
    max_msg_timeout_ms: int
    max_deflate_level: int
    tls: bool = False
    deflate: bool = False
    snappy: bool = False
    auth_required: bool = False
    topology_region: str = ""
    topology_zone: str = ""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The settings of a connection. Heartbeats are off if their interval is 0."""

    heartbeat_interval_ms: int = DEFAULT_HEARTBEAT_MS
    output_buffer_size: int = DEFAULT_OUTPUT_BUFFER_SIZE
    output_buffer_timeout_ms: int
    msg_timeout_ms: int
    sample_rate: int = 0
    tls: bool = False
    deflate: bool = False
    deflate_level: int
    snappy: bool = False
    publish_ids: bool = False
    """Publishes are answered with the ids of the messages. nsqd does not know it."""
    headers: bool = False
    """The client publishes and receives the headers of messages. nsqd does not know it."""

    @classmethod
    def before_identify(cls, limits: IdentifyLimits) -> Terms:
        """The terms of a client that has not sent IDENTIFY."""
        return cls(
            output_buffer_timeout_ms=limits.output_buffer_timeout_ms,
            msg_timeout_ms=limits.msg_timeout_ms,
            deflate_level=min(6, limits.max_deflate_level),
        )

    def agree(self, asked: Identify, limits: IdentifyLimits) -> Terms:
        """Return the terms after ``asked``. Raises BadBody for the first invalid value, in nsqd's order."""
        heartbeat = _bounded(
            "heartbeat interval", asked.heartbeat_interval_ms, self.heartbeat_interval_ms,
            MIN_HEARTBEAT_MS, limits.max_heartbeat_interval_ms, off=0,
        )  # fmt: skip
        buffer_timeout = _bounded(
            "output buffer timeout", asked.output_buffer_timeout_ms, self.output_buffer_timeout_ms,
            limits.min_output_buffer_timeout_ms, limits.max_output_buffer_timeout_ms, off=0,
        )  # fmt: skip
        buffer_size = _bounded(
            "output buffer size", asked.output_buffer_size, self.output_buffer_size,
            MIN_OUTPUT_BUFFER_SIZE, limits.max_output_buffer_size, off=1,
        )  # fmt: skip
        if not 0 <= asked.sample_rate <= MAX_SAMPLE_RATE:
            raise BadBody(f"IDENTIFY sample rate ({asked.sample_rate}) is invalid")
        msg_timeout = _bounded(
            "msg timeout",
            asked.msg_timeout_ms,
            self.msg_timeout_ms,
            MIN_MSG_TIMEOUT_MS,
            limits.max_msg_timeout_ms,
            off=None,
        )
        deflate = asked.feature_negotiation and limits.deflate and asked.deflate
        level = asked.deflate_level if deflate and asked.deflate_level > 0 else 6
        return replace(
            self,
            heartbeat_interval_ms=heartbeat,
            output_buffer_timeout_ms=0 if asked.output_buffer_size == -1 else buffer_timeout,
            output_buffer_size=buffer_size,
            sample_rate=asked.sample_rate,
            msg_timeout_ms=msg_timeout,
            tls=asked.feature_negotiation and limits.tls and asked.tls_v1,
            deflate=deflate,
            deflate_level=min(level, limits.max_deflate_level),
            snappy=asked.feature_negotiation and limits.snappy and asked.snappy,
            publish_ids=asked.feature_negotiation and asked.publish_ids,
            headers=asked.feature_negotiation and asked.headers,
        )

    def reply(self, limits: IdentifyLimits, *, draining: bool = False) -> bytes:
        """The JSON answer to an IDENTIFY with ``feature_negotiation``. ``draining``: the node refuses publishes."""
        answer: dict[str, object] = {
            "max_rdy_count": limits.max_rdy_count,
            "version": limits.version,
            "max_msg_timeout": limits.max_msg_timeout_ms,
            "msg_timeout": self.msg_timeout_ms,
            "tls_v1": self.tls,
            "deflate": self.deflate,
            "deflate_level": self.deflate_level,
            "max_deflate_level": limits.max_deflate_level,
            "snappy": self.snappy,
            "sample_rate": self.sample_rate,
            "auth_required": limits.auth_required,
            "output_buffer_size": self.output_buffer_size,
            "output_buffer_timeout": self.output_buffer_timeout_ms,
            "topology_region": limits.topology_region,
            "topology_zone": limits.topology_zone,
        }
        if self.publish_ids:  # other clients get nsqd's answer
            answer["publish_ids"] = True
        if self.headers:
            answer["headers"] = True
        if draining:
            answer["draining"] = True
        return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()


def _bounded(what: str, asked: int, current: int, low: int, high: int, *, off: int | None) -> int:
    """0 returns ``current``, -1 returns ``off`` (None: not allowed), other values must be within ``low..high``."""
    if asked == 0:
        return current
    if asked == -1 and off is not None:
        return off
    if not low <= asked <= high:
        raise BadBody(f"IDENTIFY {what} ({asked}) is invalid")
    return asked
