"""What can be chosen about a connection, a producer and a consumer; names and defaults are go-nsq's.

Every option can also be read from text, as the tools' ``--consumer-opt name,value`` gives it: :func:`with_text`.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from aionsq.backoff import STRATEGIES
from nsqwire.durations import parse_duration
from nsqwire.settings import Settings, declarations, setting
from nsqwire.version import product_version

O = TypeVar("O", bound="ConnectionOptions")  # noqa: E741

_MS = timedelta(milliseconds=1)


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
    max_reconnect_delay: timedelta = setting("15s", "Longest pause between attempts to connect again.", min="10ms")
    client_id: str = setting(_client_id, "Name in nsqd's statistics.", shown="host name up to the first dot")
    hostname: str = setting(_hostname, "Host name in nsqd's statistics.", shown="host name")
    user_agent: str = setting(_user_agent, "Program in nsqd's statistics.", shown="aionsq/<version>")
    heartbeat_interval: timedelta = setting("30s", "How often nsqd sends a heartbeat.", min="1s")
    output_buffer_size: int = setting(16_384, "Bytes nsqd gathers before it writes; -1: none.", min=-1)
    output_buffer_timeout: timedelta = setting("250ms", "Longest time nsqd keeps a gathered message back.")
    tls_v1: bool = setting(False, "Encrypt the connection.")
    tls_root_ca_file: str = setting("", "Certificates to trust instead of the system's, PEM.")
    tls_cert: str = setting("", "Own certificate, PEM.")
    tls_key: str = setting("", "Key of the own certificate, PEM.")
    tls_insecure_skip_verify: bool = setting(False, "Accept any certificate.")
    deflate: bool = setting(False, "Compress the connection with deflate.")
    deflate_level: int = setting(6, "Effort of deflate.", min=1, max=9)
    auth_secret: str = setting("", "Secret for nsqd's auth server.")

    def __post_init__(self) -> None:
        for name, declaration in declarations(type(self)).items():
            value = getattr(self, name)
            if declaration.min is not None and value < declaration.min:
                raise ValueError(f"invalid {name} ! {value} < {declaration.min}")
            if declaration.max is not None and value > declaration.max:
                raise ValueError(f"invalid {name} ! {value} > {declaration.max}")
            if declaration.choices and value not in declaration.choices:
                raise ValueError(f"invalid {name} ! {value!r} is not one of {', '.join(declaration.choices)}")
        if self.heartbeat_interval > self.read_timeout:
            raise ValueError(f"invalid heartbeat_interval ! {self.heartbeat_interval} > read_timeout")

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
            "snappy": False,
        }

    def ssl_context(self) -> ssl.SSLContext:
        """How to encrypt. Raises OSError where a file named by an option cannot be used."""
        context = ssl.create_default_context(cafile=self.tls_root_ca_file or None)
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
    resend: bool = setting(False, "Publish again what a lost connection left unanswered: it may be stored twice.")
    max_waiting_bytes: int = setting(64 * 1024 * 1024, "Bytes that may wait for a connection.", min=1)
    max_msg_size: int = setting(1_048_576, "Largest message body, in bytes.", min=1)
    max_body_size: int = setting(5_242_880, "Largest MPUB, in bytes.", min=1)
    max_req_timeout: timedelta = setting("1h", "Longest delay of a deferred publish.")


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(ConnectionOptions, env="AIONSQ_"):
    """Options of a consumer."""

    max_in_flight: int = setting(1, "Messages that may be unanswered at once, over all nsqds; 0: paused.", min=0)
    msg_timeout: timedelta = setting("0s", "Time nsqd waits for an answer; 0: nsqd's own.", min="0s")
    sample_rate: int = setting(0, "Percent of the messages to be sent; 0: all.", min=0, max=99)
    max_attempts: int = setting(5, "A message delivered more often than this is given up; 0: never.", min=0, max=65_535)
    default_requeue_delay: timedelta = setting("90s", "Delay of a requeue, times attempts.", min="0s", max="60m")
    max_requeue_delay: timedelta = setting("15m", "Longest delay of a requeue that names none.", min="0s", max="60m")
    backoff_strategy: str = setting("exponential", "How a block grows.", choices=tuple(STRATEGIES))
    backoff_multiplier: timedelta = setting("1s", "Unit of a block: 2, 4, 8 … times this.", min="0s", max="60m")
    max_backoff_duration: timedelta = setting("2m", "Longest block; 0: no backoff.", min="0s", max="60m")
    low_rdy_idle_timeout: timedelta = setting("10s", "A scarce RDY 1 idle for this long moves on.", min="1s", max="5m")
    low_rdy_timeout: timedelta = setting("30s", "A scarce RDY 1 moves on after this long.", min="1s", max="5m")
    rdy_redistribute_interval: timedelta = setting("5s", "How often RDY is looked over.", min="1ms", max="5s")
    lookupd_poll_interval: timedelta = setting("60s", "How often nsqlookupd is asked.", min="10ms", max="5m")
    lookupd_poll_jitter: float = setting(0.3, "Part of the interval drawn at random.", min=0.0, max=1.0)
    lookupd_poll_timeout: timedelta = setting("1m", "Time for nsqlookupd to answer.", min="1ms")

    def identify_fields(self) -> dict[str, object]:
        timeout = {"msg_timeout": self.msg_timeout // _MS} if self.msg_timeout else {}
        return {**super().identify_fields(), "sample_rate": self.sample_rate, **timeout}


def with_text(options: O, name: str, text: str | None) -> O:
    """Return the options with one changed, read from text. ``-`` and ``_`` in the name are equal.

    Durations are Go's (``1m30s``) or whole milliseconds; None, an option without a value, means true. Raises ValueError
    with a sentence for the user: unknown name, unreadable value, out of range.
    """
    field = name.replace("-", "_")
    declaration = declarations(type(options)).get(field)
    if declaration is None:
        raise ValueError(f"invalid option {name}")
    value: Any = "true" if text is None else text
    try:
        if declaration.kind is bool:
            value = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}[value.lower()]
        elif declaration.kind is timedelta:
            value = timedelta(milliseconds=int(value)) if value.isdecimal() else parse_duration(value)
        else:
            value = declaration.kind(value)
    except (KeyError, ValueError):
        raise ValueError(f"invalid value {value!r} for option {name}") from None
    return replace(options, **{field: value})
