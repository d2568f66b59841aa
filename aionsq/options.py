"""What can be chosen about a connection, a producer and a consumer; names and meanings are go-nsq's.

Every option can also be read from text, as the tools' ``--consumer-opt name,value`` gives it: :func:`with_text`.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from aionsq.addresses import local_address
from aionsq.backoff import STRATEGIES, BackoffStrategy
from nsqwire.declaration import Declaration, shown_value, value_from_text
from nsqwire.frame import DEFAULT_MAX_FRAME_BYTES
from nsqwire.settings import Settings, declarations, setting
from nsqwire.version import product_version

O = TypeVar("O", bound="ConnectionOptions")  # noqa: E741

_MS = timedelta(milliseconds=1)
_TLS_VERSIONS = {
    "ssl3.0": ssl.TLSVersion.MINIMUM_SUPPORTED,  # OpenSSL has taken SSL 3.0 out
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}


def _hostname() -> str:
    return socket.gethostname()


def _client_id() -> str:
    return socket.gethostname().partition(".")[0]


def _user_agent() -> str:
    return f"aionsq/{product_version()}"


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(Settings, env="AIONSQ_"):
    """Options of every connection to nsqd. Making one checks the ranges: ValueError names the option."""

    dial_timeout: timedelta = setting("1s", "Time to connect.", min="1ms")
    read_timeout: timedelta = setting("60s", "A connection silent for this long is dead.", min="100ms", max="5m")
    write_timeout: timedelta = setting(
        "5s", "A connection whose nsqd takes nothing of what waits to be sent for this long is dead.",
        min="100ms", max="5m",
    )  # fmt: skip
    max_reconnect_delay: timedelta = setting("15s", "Longest pause between attempts to connect again.", min="10ms")
    local_addr: str = setting("", "Address to connect from, an IP address with or without a port.")
    client_id: str = setting(_client_id, "Name in nsqd's statistics.", shown="host name up to the first dot")
    hostname: str = setting(_hostname, "Host name in nsqd's statistics.", shown="host name")
    user_agent: str = setting(_user_agent, "Program in nsqd's statistics.", shown="aionsq/<version>")
    topology_region: str = setting("", "Region this client is in, for nsqd's statistics.")
    topology_zone: str = setting("", "Zone this client is in, for nsqd's statistics.")
    heartbeat_interval: timedelta = setting(
        "30s", "How often nsqd sends a heartbeat, at most `read_timeout`; -1: never, for a producer only."
    )
    output_buffer_size: int = setting(16_384, "Bytes nsqd gathers before it writes; -1: none.", min=-1)
    output_buffer_timeout: timedelta = setting(
        "250ms", "Longest time nsqd keeps a gathered message back; -1: no limit.", min="-1ms"
    )
    tls_v1: bool = setting(False, "Encrypt the connection.")
    tls_root_ca_file: str = setting("", "Certificates to trust instead of the system's, PEM.")
    tls_cert: str = setting("", "Own certificate, PEM.")
    tls_key: str = setting("", "Key of the own certificate, PEM.")
    tls_insecure_skip_verify: bool = setting(False, "Accept any certificate.")
    tls_min_version: str = setting("tls1.2", "Oldest version of TLS to accept.", choices=tuple(_TLS_VERSIONS))
    deflate: bool = setting(False, "Compress the connection with deflate.")
    deflate_level: int = setting(6, "Effort of deflate.", min=1, max=9)
    snappy: bool = setting(False, "Compress the connection with snappy; not together with `deflate`.")
    auth_secret: str = setting("", "Secret for nsqd's auth server.")

    def __post_init__(self) -> None:
        for name, declaration in declarations(type(self)).items():
            _check(name, declaration, getattr(self, name))
        if self.heartbeat_interval > self.read_timeout:
            shown = f"{shown_value(self.heartbeat_interval)} > read_timeout {shown_value(self.read_timeout)}"
            raise ValueError(f"invalid heartbeat_interval ! {shown}")
        if self.heartbeat_interval < _MS and self.heartbeat_interval != -_MS:
            raise ValueError(f"invalid heartbeat_interval ! {shown_value(self.heartbeat_interval)} < 1ms")
        if self.deflate and self.snappy:
            raise ValueError("invalid snappy ! not together with deflate: a connection has one compression")
        local_address(self.local_addr)

    @property
    def has_heartbeats(self) -> bool:
        """Whether nsqd is asked for heartbeats."""
        return self.heartbeat_interval > timedelta(0)

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame accepted from nsqd."""
        return DEFAULT_MAX_FRAME_BYTES

    def identify_fields(self) -> dict[str, object]:
        """The JSON object of IDENTIFY; times are milliseconds."""
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
        }

    def ssl_context(self) -> ssl.SSLContext:
        """How to encrypt. Raises OSError where a file named by an option cannot be used."""
        context = ssl.create_default_context(cafile=self.tls_root_ca_file or None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # versions that whoever names them knows to be old
            context.minimum_version = _TLS_VERSIONS[self.tls_min_version]
        if self.tls_cert:
            context.load_cert_chain(self.tls_cert, self.tls_key or None)
        if self.tls_insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(ConnectionOptions, env="AIONSQ_"):
    """Options of a producer. The size limits are nsqd's defaults: it does not tell its own."""

    publish_timeout: timedelta = setting("30s", "Time for a publish to be answered, connecting included.", min="1ms")
    nsqd_choice: str = setting(
        "round_robin",
        "Which of several nsqds gets a publish: each in turn, or the first that works.",
        choices=("round_robin", "failover"),
    )
    stalled_after: timedelta = setting(
        "2s", "An nsqd that owes answers and sends none for this long is passed over while another works.", min="100ms"
    )
    resend: bool = setting(False, "Publish again what a lost connection left unanswered: it may be stored twice.")
    gather: bool = setting(True, "Send many publishes of one turn of the event loop to one topic as MPUBs.")
    max_waiting_bytes: int = setting(64 * 1024 * 1024, "Bytes that may wait for a connection.", min=1)
    max_msg_size: int = setting(1_048_576, "Largest message body, in bytes; 0: no limit.", min=0)
    max_body_size: int = setting(5_242_880, "Largest MPUB, in bytes; 0: no limit.", min=0)
    max_req_timeout: timedelta = setting("1h", "Longest delay of a deferred publish.", min="0s")


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(ConnectionOptions, env="AIONSQ_"):
    """Options of a consumer."""

    max_in_flight: int = setting(1, "Messages that may be unanswered at once, over all nsqds; 0: paused.", min=0)
    msg_timeout: timedelta = setting("0s", "Time nsqd waits for an answer; 0: nsqd's own.", min="0s")
    max_msg_size: int = setting(0, "Largest frame accepted, in bytes; 0: 64 MiB.", min=0)
    sample_rate: int = setting(0, "Percent of the messages to be sent; 0: all.", min=0, max=99)
    max_attempts: int = setting(5, "A message delivered more often than this is given up; 0: never.", min=0, max=65_535)
    default_requeue_delay: timedelta = setting("90s", "Delay of a requeue, times attempts.", min="0s", max="60m")
    max_requeue_delay: timedelta = setting("15m", "Longest delay of a requeue that names none.", min="0s", max="60m")
    backoff_strategy: str | BackoffStrategy = setting(
        "exponential", "How a block grows; in code also an object with `calculate(attempt)`.", choices=tuple(STRATEGIES)
    )
    backoff_multiplier: timedelta = setting("1s", "Unit of a block: 2, 4, 8 … times this.", min="0s", max="60m")
    max_backoff_duration: timedelta = setting("2m", "Longest block; 0: no backoff.", min="0s", max="60m")
    low_rdy_idle_timeout: timedelta = setting(
        "1s", "A scarce RDY 1 that brings nothing more for this long moves on to another nsqd.", min="1s", max="5m"
    )
    low_rdy_timeout: timedelta = setting(
        "5s", "A scarce RDY 1 moves on after this long, messages or not.", min="1s", max="5m"
    )
    rdy_redistribute_interval: timedelta = setting(
        "250ms", "How often a scarce RDY 1 is looked at.", min="1ms", max="5s"
    )
    auto_touch: bool = setting(False, "Touch messages in hand in time, so that they do not time out while they wait.")
    lookupd_poll_interval: timedelta = setting("60s", "How often nsqlookupd is asked.", min="10ms", max="5m")
    lookupd_poll_jitter: float = setting(0.3, "Part of the interval drawn at random.", min=0.0, max=1.0)
    lookupd_poll_timeout: timedelta = setting("1m", "Time for nsqlookupd to answer.", min="1ms")
    lookupd_authorization: bool = setting(
        True, "Send a set `auth_secret` to nsqlookupd. In text also `skip_lookupd_authorization`, as go-nsq calls it."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.has_heartbeats:
            raise ValueError("invalid heartbeat_interval ! a consumer cannot do without heartbeats")

    @property
    def max_frame_bytes(self) -> int:
        return self.max_msg_size or DEFAULT_MAX_FRAME_BYTES

    def strategy(self) -> BackoffStrategy:
        """The backoff strategy, made of the multiplier where it was chosen by name."""
        if isinstance(self.backoff_strategy, str):
            return STRATEGIES[self.backoff_strategy](self.backoff_multiplier)
        return self.backoff_strategy

    def lookupd_headers(self) -> dict[str, str]:
        """Headers for nsqlookupd."""
        if not self.lookupd_authorization or not self.auth_secret:
            return {}
        return {"Authorization": f"Bearer {self.auth_secret}"}

    def identify_fields(self) -> dict[str, object]:
        timeout = {"msg_timeout": self.msg_timeout // _MS} if self.msg_timeout else {}
        return {**super().identify_fields(), "sample_rate": self.sample_rate, **timeout}


def with_text(options: O, name: str, text: str | None) -> O:
    """Return the options with one changed, read from text; see :func:`with_texts`."""
    return with_texts(options, [(name, text)])


def with_texts(options: O, texts: Iterable[tuple[str, str | None]]) -> O:
    """Return the options with those changed that ``(name, text)`` name; the last of one name counts.

    ``-`` and ``_`` in a name are equal. Durations are Go's (``1m30s``) or whole milliseconds; None, an option without
    a value, means true. As in go-nsq one set of names serves producers and consumers: an option that concerns only the
    other is read and has no effect. Raises ValueError with a sentence for the user: unknown name, unreadable value,
    out of range.
    """
    changes: dict[str, Any] = {}
    own = declarations(type(options))
    for name, text in texts:
        field = name.replace("-", "_")
        field = _ALIASES.get(field, field)
        declaration = own.get(field) or declarations(ConsumerOptions).get(field)
        if declaration is None:
            raise ValueError(f"invalid option {field}")
        value = _value(field, declaration, text)
        _check(field, declaration, value)
        if field in own:
            changes[field] = value
    return replace(options, **changes)


_ALIASES = {"skip_lookupd_authorization": "lookupd_authorization"}
"""go-nsq's name says the contrary of what it does: true sends the secret."""

_WHOLE = re.compile(r"[+-]?[0-9]+")


def _value(name: str, declaration: Declaration, text: str | None) -> Any:
    """One value from text, its range not yet checked."""
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
        raise ValueError(f"failed to coerce option {name} ({shown}) - {error}") from None
    return value


def _check(name: str, declaration: Declaration, value: Any) -> None:
    """Raise ValueError where the value is out of its range."""
    if declaration.min is not None and value < declaration.min:
        raise ValueError(f"invalid {name} ! {shown_value(value)} < {shown_value(declaration.min)}")
    if declaration.max is not None and value > declaration.max:
        raise ValueError(f"invalid {name} ! {shown_value(value)} > {shown_value(declaration.max)}")
    if declaration.choices and isinstance(value, str) and value not in declaration.choices:
        raise ValueError(f"invalid {name} ! {value!r} is not one of {', '.join(declaration.choices)}")
