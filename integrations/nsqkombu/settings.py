"""A connection's settings, from its URL and its transport options."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from aionsq import ConnectionOptions, ConsumerOptions, ProducerOptions, with_texts
from aionsq.addresses import check_address

DEFAULT_PORT = 4150

OWN_OPTIONS = frozenset(
    {
        "ephemeral_exchanges",
        "get_timeout",
        "lookupd_http_addresses",
        "max_defer",
        "max_in_flight",
        "nsqd_http_addresses",
        "publish_timeout",
        "purge_idle",
        "requeue_delay",
    }
)
CONNECTION_OPTIONS = frozenset(field.name for field in dataclasses.fields(ConnectionOptions))
CONSUMER_OPTIONS = frozenset({"lookupd_poll_interval", "lookupd_poll_jitter", "lookupd_poll_timeout", "msg_timeout"})
PRODUCER_OPTIONS = frozenset({"max_body_size", "max_msg_size", "nsqd_choice", "stalled_after"})
KOMBU_OPTIONS = frozenset(
    {
        "client_properties",
        "confirm_publish",
        "connect_retries_timeout",
        "connect_timeout",
        "errback",
        "interval_max",
        "interval_start",
        "interval_step",
        "max_retries",
        "on_revive",
        "polling_interval",
    }
)
"""Options that kombu or Celery reads itself, or adds for every transport."""

_TLS_FIELDS = {"ca_certs": "tls_root_ca_file", "certfile": "tls_cert", "keyfile": "tls_key"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one connection."""

    nsqd_tcp_addresses: tuple[str, ...]
    lookupd_http_addresses: tuple[str, ...] = ()
    nsqd_http_addresses: tuple[str, ...] = ()
    prefix: str = ""
    """Precedes the names of all topics: the URL's path and a dot."""
    producer_options: ProducerOptions
    consumer_options: ConsumerOptions
    max_in_flight: int = 2500
    """Most unacknowledged messages of a channel without a prefetch count; nsqd's default of ``--max-rdy-count``."""
    max_defer: timedelta = timedelta(hours=1)
    requeue_delay: timedelta = timedelta(0)
    get_timeout_s: float = 1.0
    purge_idle_s: float = 2.0
    ephemeral_exchanges: frozenset[str] = frozenset({"celeryev"})

    @property
    def publish_timeout_s(self) -> float:
        """Limit of one publish, in seconds."""
        return self.producer_options.publish_timeout.total_seconds()


def settings_of(client: Any, *, tls: bool) -> Settings:
    """Return the settings of a kombu ``Connection``.

    Raises ValueError, which names the option, for an unknown option or an invalid value.
    """
    options: dict[str, Any] = dict(client.transport_options)
    known = OWN_OPTIONS | CONNECTION_OPTIONS | CONSUMER_OPTIONS | PRODUCER_OPTIONS | KOMBU_OPTIONS
    if unknown := sorted(options.keys() - known):
        raise ValueError(f"unknown transport option {unknown[0]!r} of nsq://; known are {', '.join(sorted(known))}")
    # With several hosts, kombu parses the parameters of the first only.
    given = [str(each) for each in client.alt] or [client.hostname or "127.0.0.1"]
    addresses, secret = _addresses(given, DEFAULT_PORT if client.alt else client.port or DEFAULT_PORT)
    texts: list[tuple[str, str | None]] = [("user_agent", "nsqkombu")]
    if secret or client.password:
        texts.append(("auth_secret", secret or client.password))
    if client.connect_timeout:
        texts.append(("dial_timeout", _duration_text("connect_timeout", client.connect_timeout)))
    texts += _tls_texts(client.ssl, tls=tls)
    shared = [(name, _text(name, options[name])) for name in sorted(options.keys() & CONNECTION_OPTIONS)]
    for_producer = [(name, _text(name, options[name])) for name in sorted(options.keys() & PRODUCER_OPTIONS)]
    for_consumer = [(name, _text(name, options[name])) for name in sorted(options.keys() & CONSUMER_OPTIONS)]
    max_defer = _seconds(options, "max_defer", 3600.0)
    producer = ProducerOptions(
        publish_timeout=timedelta(seconds=_seconds(options, "publish_timeout", 10.0, least=0.001)),
        max_req_timeout=timedelta(seconds=max_defer),
        resend=True,
    )
    # No backoff and no limit of attempts: Celery decides what a failed task means.
    consumer = ConsumerOptions(
        max_in_flight=0, max_attempts=0, max_backoff_duration=timedelta(0), auto_touch=True, max_msg_size=0
    )
    virtual_host = (client.virtual_host or "").strip("/")
    max_in_flight = options.get("max_in_flight", Settings.max_in_flight)
    if isinstance(max_in_flight, bool) or not isinstance(max_in_flight, int) or max_in_flight < 1:
        raise ValueError(f"transport option max_in_flight: {max_in_flight!r} is not a whole number above 0")
    return Settings(
        nsqd_tcp_addresses=addresses,
        lookupd_http_addresses=_names(options, "lookupd_http_addresses"),
        nsqd_http_addresses=_names(options, "nsqd_http_addresses"),
        prefix=f"{virtual_host}." if virtual_host else "",
        producer_options=with_texts(producer, texts + shared + for_producer),
        consumer_options=with_texts(consumer, texts + shared + for_consumer),
        max_in_flight=max_in_flight,
        max_defer=timedelta(seconds=max_defer),
        requeue_delay=timedelta(seconds=_seconds(options, "requeue_delay", 0.0)),
        get_timeout_s=_seconds(options, "get_timeout", 1.0),
        purge_idle_s=_seconds(options, "purge_idle", 2.0),
        ephemeral_exchanges=frozenset(_names(options, "ephemeral_exchanges") or Settings.ephemeral_exchanges),
    )


def _addresses(given: Iterable[str], port: int) -> tuple[tuple[str, ...], str]:
    """Return the addresses, each once and in order, and the password of the first URL that has one."""
    addresses: dict[str, None] = {}
    secret = ""
    for text in given:
        parts = urlsplit(text if "://" in text else f"nsq://{text}")
        secret = secret or unquote(parts.password or "")
        host = parts.hostname or "127.0.0.1"
        address = f"{f'[{host}]' if ':' in host else host}:{parts.port or port}"
        check_address(address)
        addresses[address] = None
    return tuple(addresses), secret


def _tls_texts(given: object, *, tls: bool) -> list[tuple[str, str | None]]:
    """Return aionsq's options for kombu's ``ssl``, which is Celery's ``broker_use_ssl``."""
    if not given and not tls:
        return []
    texts: list[tuple[str, str | None]] = [("tls_v1", None)]
    if isinstance(given, Mapping):
        if unknown := sorted(given.keys() - _TLS_FIELDS.keys() - {"cert_reqs"}):
            raise ValueError(f"unknown TLS option {unknown[0]!r}; known are ca_certs, cert_reqs, certfile and keyfile")
        texts += [(_TLS_FIELDS[name], str(value)) for name, value in given.items() if name in _TLS_FIELDS and value]
        if given.get("cert_reqs") == ssl.CERT_NONE and "cert_reqs" in given:
            texts.append(("tls_insecure_skip_verify", None))
    return texts


def _names(options: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = options.get(name, ())
    texts = value.split(",") if isinstance(value, str) else value
    try:
        return tuple(str(text).strip() for text in texts if str(text).strip())
    except TypeError:
        raise ValueError(f"transport option {name}: {value!r} is not a list of texts") from None


def _seconds(options: Mapping[str, Any], name: str, default: float, *, least: float = 0.0) -> float:
    value = options.get(name, default)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1e9:
        raise ValueError(f"transport option {name}: {value!r} is not a number of seconds from {least:g}")
    return float(value)


def _duration_text(name: str, value: object) -> str:
    return f"{round(_seconds({name: value}, name, 0.0) * 1000)}ms"


def _text(name: str, value: object) -> str | None:
    """Return an option's value as :func:`aionsq.with_texts` reads it; a number for a duration is in seconds."""
    kinds = {
        field.name: field.type for kind in (ProducerOptions, ConsumerOptions) for field in dataclasses.fields(kind)
    }
    if value is True:
        return None
    if kinds[name] in (timedelta, "timedelta") and isinstance(value, int | float | timedelta) and value is not False:
        return _duration_text(name, value)
    return "false" if value is False else str(value)
