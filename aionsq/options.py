"""Options of connections, producers and consumers, with go-nsq's names and meanings.

:func:`with_text` reads an option from text, as in the tools' ``--consumer-opt name,value``.
"""

from __future__ import annotations

import math
import os
import re
import socket
import ssl
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from aionsq.addresses import local_address
from aionsq.arguments import check_type
from aionsq.backoff import STRATEGIES, BackoffStrategy
from aionsq.errors import InvalidArgument
from nsqcluster.tls import UnusableFile, new_tls_context
from nsqdaemon.declaration import Declaration, shown_value, value_from_text
from nsqdaemon.settings import Settings, declarations, setting
from nsqwire.frame import DEFAULT_MAX_FRAME_BYTES
from nsqwire.version import product_version

O = TypeVar("O", bound="ConnectionOptions")  # noqa: E741

_MS = timedelta(milliseconds=1)
_TLS_VERSIONS = {
    "ssl3.0": ssl.TLSVersion.MINIMUM_SUPPORTED,  # OpenSSL has removed SSL 3.0
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}
_TLS_FILES = {"root-ca-file": "tls_root_ca_file", "cert": "tls_cert", "key": "tls_key"}


def _hostname() -> str:
    return socket.gethostname()


def _client_id() -> str:
    return socket.gethostname().partition(".")[0]


def _user_agent() -> str:
    return f"aionsq/{product_version()}"


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(Settings, env="AIONSQ_"):
    """Options of every connection to nsqd.

    The constructor raises InvalidArgument for a value that is out of range, and WrongType for one of another type.
    """

    dial_timeout: timedelta = setting("1s", "Timeout for connecting.", min="1ms")
    read_timeout: timedelta = setting(
        "60s", "A connection on which nothing arrives for this long is closed.", min="100ms", max="5m"
    )
    write_timeout: timedelta = setting(
        "5s", "A connection from which nsqd reads no pending output for this long is closed.",
        min="100ms", max="5m",
    )  # fmt: skip
    max_reconnect_delay: timedelta = setting("15s", "Longest pause between attempts to reconnect.", min="10ms")
    local_addr: str = setting("", "Local address to connect from: an IP address with or without a port.")
    client_id: str = setting(_client_id, "Client name in nsqd's statistics.", shown="host name up to the first dot")
    hostname: str = setting(_hostname, "Host name in nsqd's statistics.", shown="host name")
    user_agent: str = setting(_user_agent, "Client library in nsqd's statistics.", shown="aionsq/<version>")
    topology_region: str = setting("", "Region of this client, for nsqd's statistics.")
    topology_zone: str = setting("", "Zone of this client, for nsqd's statistics.")
    heartbeat_interval: timedelta = setting(
        "30s", "Interval of nsqd's heartbeats, at most `read_timeout`; -1: no heartbeats (producers only)."
    )
    output_buffer_size: int = setting(16_384, "Size of nsqd's output buffer in bytes; -1: no buffering.", min=-1)
    output_buffer_timeout: timedelta = setting(
        "250ms", "Longest time that nsqd buffers output; -1: no limit.", min="-1ms"
    )
    tls_v1: bool = setting(False, "Encrypt the connection with TLS.")
    tls_root_ca_file: str | os.PathLike[str] = setting("", "Trusted certificates, PEM, instead of the system's.")
    tls_cert: str | os.PathLike[str] = setting("", "Client certificate, PEM.")
    tls_key: str | os.PathLike[str] = setting("", "Key of the client certificate, PEM.")
    tls_insecure_skip_verify: bool = setting(False, "Do not verify nsqd's certificate.")
    tls_min_version: str = setting("tls1.2", "Oldest accepted TLS version.", choices=tuple(_TLS_VERSIONS))
    deflate: bool = setting(False, "Compress the connection with deflate.")
    deflate_level: int = setting(6, "Compression level of deflate.", min=1, max=9)
    snappy: bool = setting(False, "Compress the connection with snappy; excludes `deflate`.")
    auth_secret: str = setting("", "Secret for nsqd's auth server.")
    headers: bool = setting(False, "Ask nsqd for headers of messages; only brokerd supports them.")

    def __post_init__(self) -> None:
        for name, declaration in declarations(type(self)).items():
            value = getattr(self, name)
            check_type(f"the option {name}", value, declaration.kind)
            _check(name, declaration, value)
        if self.heartbeat_interval > self.read_timeout:
            shown = f"{shown_value(self.heartbeat_interval)} > read_timeout {shown_value(self.read_timeout)}"
            raise InvalidArgument(f"invalid heartbeat_interval ! {shown}")
        if self.heartbeat_interval < _MS and self.heartbeat_interval != -_MS:
            raise InvalidArgument(f"invalid heartbeat_interval ! {shown_value(self.heartbeat_interval)} < 1ms")
        if self.deflate and self.snappy:
            raise InvalidArgument("invalid snappy ! not together with deflate: a connection has one compression")
        local_address(self.local_addr)

    @property
    def has_heartbeats(self) -> bool:
        """Whether heartbeats are enabled."""
        return self.heartbeat_interval > timedelta(0)

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame accepted from nsqd."""
        return DEFAULT_MAX_FRAME_BYTES

    def identify_fields(self) -> dict[str, object]:
        """The JSON object of IDENTIFY; times are in milliseconds."""
        return {
            "client_id": self.client_id,
            "hostname": self.hostname,
            "user_agent": self.user_agent,
            "short_id": self.client_id,
            "long_id": self.hostname,
            "feature_negotiation": True,
            "heartbeat_interval": self.heartbeat_interval // _MS,
            "output_buffer_size": self.output_buffer_size,
            "output_buffer_timeout": self.output_buffer_timeout // _MS,
            "tls_v1": self.tls_v1,
            "deflate": self.deflate,
            "deflate_level": self.deflate_level,
            "snappy": self.snappy,
            "topology_region": self.topology_region,
            "topology_zone": self.topology_zone,
            **({"headers": True} if self.headers else {}),
        }

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context. Raises InvalidArgument, which names the file that cannot be used."""
        try:
            context = new_tls_context(
                root_ca_file=os.fspath(self.tls_root_ca_file),
                cert=os.fspath(self.tls_cert),
                key=os.fspath(self.tls_key),
                skip_verify=self.tls_insecure_skip_verify,
            )
        except UnusableFile as error:
            raise InvalidArgument(f"invalid {_TLS_FILES[error.kind]} ! {error}") from None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the user chose the old version explicitly
            context.minimum_version = _TLS_VERSIONS[self.tls_min_version]
        return context


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(ConnectionOptions, env="AIONSQ_"):
    """Options of a producer. The size limits have nsqd's defaults, because nsqd does not report the limits it has."""

    publish_timeout: timedelta = setting("30s", "Timeout of a publish, including connecting.", min="1ms")
    nsqd_choice: str = setting(
        "round_robin",
        "Which of several nsqds receives a publish: each in turn, or the first that works.",
        choices=("round_robin", "failover"),
    )
    stalled_after: timedelta = setting(
        "2s",
        "An nsqd that has not answered for this long is skipped if another works.",
        min="100ms",
    )
    publish_ids: bool = setting(False, "Ask nsqd for the ids of published messages; only brokerd reports them.")
    headers_fallback: str = setting(
        "error",
        "A publish with headers to an nsqd without headers: it fails, its headers are dropped, or its body is an "
        "envelope of headers and body (`open_envelopes` of consumers).",
        choices=("error", "drop", "envelope"),
    )
    resend: bool = setting(False, "After a lost connection, publish unanswered messages again; may duplicate them.")
    gather: bool = setting(True, "Combine publishes to one topic in one iteration of the event loop into MPUBs.")
    max_waiting_bytes: int = setting(64 * 1024 * 1024, "Most bytes that may wait for a connection.", min=1)
    max_msg_size: int = setting(1_048_576, "Largest message body, in bytes; 0: no limit.", min=0)
    max_body_size: int = setting(5_242_880, "Largest MPUB, in bytes; 0: no limit.", min=0)
    max_req_timeout: timedelta = setting("1h", "Longest delay of a deferred publish.", min="0s")

    def identify_fields(self) -> dict[str, object]:
        """The JSON object of IDENTIFY, which also asks for ids if they are wanted."""
        return {**super().identify_fields(), **({"publish_ids": True} if self.publish_ids else {})}


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(ConnectionOptions, env="AIONSQ_"):
    """Options of a consumer."""

    max_in_flight: int = setting(1, "Most messages in flight, over all nsqds; 0: paused.", min=0)
    msg_timeout: timedelta = setting("0s", "Message timeout; 0: nsqd's default.", min="0s")
    max_msg_size: int = setting(0, "Largest frame accepted, in bytes; 0: 64 MiB.", min=0)
    sample_rate: int = setting(0, "Percentage of the messages to deliver; 0: all.", min=0, max=99)
    max_attempts: int = setting(5, "A message delivered more often is given up; 0: never.", min=0, max=65_535)
    default_requeue_delay: timedelta = setting("90s", "Delay of a requeue, times the attempts.", min="0s", max="60m")
    max_requeue_delay: timedelta = setting(
        "15m", "Longest delay of a requeue without its own delay.", min="0s", max="60m"
    )
    backoff_strategy: str | BackoffStrategy = setting(
        "exponential",
        "How backoff pauses grow; in code also an object with `calculate(attempt)`.",
        choices=tuple(STRATEGIES),
    )
    backoff_multiplier: timedelta = setting("1s", "Unit of a backoff pause: 2, 4, 8 … times this.", min="0s", max="60m")
    max_backoff_duration: timedelta = setting("2m", "Longest backoff pause; 0: no backoff.", min="0s", max="60m")
    low_rdy_idle_timeout: timedelta = setting(
        "1s",
        "With more nsqds than `max_in_flight`: an nsqd idle for this long passes its RDY 1 to another.",
        min="1s",
        max="5m",
    )
    low_rdy_timeout: timedelta = setting(
        "5s", "With more nsqds than `max_in_flight`: longest time that an nsqd keeps its RDY 1.", min="1s", max="5m"
    )
    rdy_redistribute_interval: timedelta = setting(
        "250ms", "How often RDY 1 is redistributed if there are more nsqds than `max_in_flight`.", min="1ms", max="5s"
    )
    open_envelopes: bool = setting(
        False, "Replace an envelope by the headers and body that it contains (`headers_fallback` of producers)."
    )
    auto_touch: bool = setting(False, "Touch unanswered messages before they time out.")
    lookupd_poll_interval: timedelta = setting("60s", "Interval between polls of nsqlookupd.", min="10ms", max="5m")
    lookupd_poll_jitter: float = setting(0.3, "Random part of the poll interval, as a fraction.", min=0.0, max=1.0)
    lookupd_poll_timeout: timedelta = setting("1m", "Timeout of a request to nsqlookupd.", min="1ms")
    lookupd_authorization: bool = setting(
        True, "Send `auth_secret` to nsqlookupd. In text also `skip_lookupd_authorization`, go-nsq's name."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.has_heartbeats:
            raise InvalidArgument("invalid heartbeat_interval ! a consumer requires heartbeats")

    @property
    def max_frame_bytes(self) -> int:
        """Maximum size of a received frame, in bytes."""
        return self.max_msg_size or DEFAULT_MAX_FRAME_BYTES

    def strategy(self) -> BackoffStrategy:
        """Return the backoff strategy. A strategy given by name is created with ``backoff_multiplier``."""
        if isinstance(self.backoff_strategy, str):
            return STRATEGIES[self.backoff_strategy](self.backoff_multiplier)
        return self.backoff_strategy

    def lookupd_headers(self) -> dict[str, str]:
        """Headers for nsqlookupd."""
        if not self.lookupd_authorization or not self.auth_secret:
            return {}
        return {"Authorization": f"Bearer {self.auth_secret}"}

    def identify_fields(self) -> dict[str, object]:
        """The fields of IDENTIFY; durations are in milliseconds."""
        timeout = {"msg_timeout": self.msg_timeout // _MS} if self.msg_timeout else {}
        return {**super().identify_fields(), "sample_rate": self.sample_rate, **timeout}


def with_text(options: O, name: str, text: str | None) -> O:
    """Return the options with one changed, read from text; see :func:`with_texts`."""
    return with_texts(options, [(name, text)])


def with_texts(options: O, texts: Iterable[tuple[str, str | None]]) -> O:
    """Return the options with the changes of ``(name, text)`` pairs; for a repeated name, the last pair counts.

    ``-`` and ``_`` in a name are equivalent. Durations are in Go's format (``1m30s``) or whole milliseconds. None, for
    an option without a value, means true. As in go-nsq, producers and consumers accept the same names: an option of
    consumers is checked in a producer's options and has no effect there. Raises InvalidArgument, with a message for the
    user, for an unknown name, an invalid value or a value out of range.
    """
    changes: dict[str, Any] = {}
    own = declarations(type(options))
    for name, text in texts:
        field = name.replace("-", "_")
        field = _ALIASES.get(field, field)
        declaration = own.get(field) or declarations(ConsumerOptions).get(field)
        if declaration is None:
            raise InvalidArgument(f"invalid option {field}")
        value = _value(field, declaration, text)
        _check(field, declaration, value)
        if field in own:
            changes[field] = value
    return replace(options, **changes)


_ALIASES = {"skip_lookupd_authorization": "lookupd_authorization"}
"""In go-nsq, true for this name sends the secret, contrary to what the name says."""

_WHOLE = re.compile(r"[+-]?[0-9]+")


def _value(name: str, declaration: Declaration, text: str | None) -> Any:
    """Parse one value, without checking its range."""
    kind = declaration.kind
    unbounded = replace(declaration, min=None, max=None)
    try:
        if text is None:
            if kind is not bool:
                raise ValueError("a value is needed")
            return True
        if declaration.choices:
            return text.lower()
        if kind is timedelta and _WHOLE.fullmatch(text):
            return timedelta(milliseconds=int(text))
        if kind is int and not _WHOLE.fullmatch(text):
            raise ValueError(f"{text!r} is not a whole number")
        value = value_from_text(unbounded, text)
        if kind is float and not math.isfinite(value):
            raise ValueError(f"{text!r} is not a number")
    except (ValueError, OverflowError) as error:
        shown = "true" if text is None else text
        raise InvalidArgument(f"failed to coerce option {name} ({shown}) - {error}") from None
    return value


def _check(name: str, declaration: Declaration, value: Any) -> None:
    """Raise InvalidArgument if the value is out of range."""
    if isinstance(value, float) and math.isnan(value):
        raise InvalidArgument(f"invalid {name} ! {value} is not a number")
    if declaration.min is not None and value < declaration.min:
        raise InvalidArgument(f"invalid {name} ! {shown_value(value)} < {shown_value(declaration.min)}")
    if declaration.max is not None and value > declaration.max:
        raise InvalidArgument(f"invalid {name} ! {shown_value(value)} > {shown_value(declaration.max)}")
    if declaration.choices and isinstance(value, str) and value not in declaration.choices:
        raise InvalidArgument(f"invalid {name} ! {value!r} is not one of {', '.join(declaration.choices)}")
