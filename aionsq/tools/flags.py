"""Flags shared by the tools, and what they determine: the addresses to consume from and the client's options."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from aionsq.addresses import split_address
from aionsq.consumer import Consumer
from aionsq.options import ConnectionOptions, ConsumerOptions, ProducerOptions
from aionsq.options import with_texts as options_with_texts
from nsqcluster.addresses import base_url
from nsqcluster.tls import UnusableFile, tls_context
from nsqdaemon.default_ports import default_ports
from nsqdaemon.logs import LOG_FORMATS, LogLevel
from nsqdaemon.node_http import HTTPTimeouts, NodeTLSSettings
from nsqdaemon.settings import Settings, setting
from nsqwire.version import NSQ_VERSION, product_version

O = TypeVar("O", bound=ConnectionOptions)  # noqa: E741

LOOKUPDS_VARIABLE = "NSQLOOKUPD_HTTP_ADDRESSES"
PROGRESS = ("auto", "lines", "none")


class ToolFailed(Exception):
    """Ends the tool with this line on standard error and the exit status ``status``."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class WrongUsage(ToolFailed):
    """The command line is invalid: status 2 of a subcommand of ``nsq``, and NSQ's own 1 of a program under its name."""


@dataclass(frozen=True, kw_only=True)
class ToolFlags(Settings):
    """Flags of every tool."""

    log_level: LogLevel = setting("warn", "Lowest severity to log: debug, info, warn, error or fatal.")
    log_prefix: str = setting("[<TOOL>] ", "Prefix of each log line in nsqd's format; <TOOL> is the tool's name.")
    log_format: str = setting(
        "nsqd", "Format of the log: nsqd's lines, or json for one object per line.", choices=LOG_FORMATS
    )
    version: bool = setting(False, "Print the version and exit.")


@dataclass(frozen=True, kw_only=True)
class ProgressFlags(ToolFlags):
    """Flags of the tools that may run for a long time."""

    progress: str = setting(
        "auto",
        "How to show progress: auto (an updating line if stderr is a terminal, otherwise lines), lines (a log line of "
        "level info every minute) or none.",
        choices=PROGRESS,
    )


@dataclass(frozen=True, kw_only=True)
class ConsumerFlags(NodeTLSSettings, ProgressFlags):
    """Flags of the tools that consume."""

    nsqd_tcp_address: tuple[str, ...] = setting((), "nsqd to consume from, host:port.")
    lookupd_http_address: tuple[str, ...] = setting(
        (), f"nsqlookupd that lists the nsqds, host:port (default: {LOOKUPDS_VARIABLE})."
    )
    max_in_flight: int = setting(200, "Most messages in flight.", min=1)
    consumer_opt: tuple[str, ...] = setting((), "Option of the client, as name,value; see docs/client.md.")


def check_timeouts(flags: HTTPTimeouts) -> None:
    """Raise ToolFailed, naming the flag, for a timeout that is not positive."""
    try:
        flags.check_timeouts()
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def node_tls(flags: NodeTLSSettings) -> ssl.SSLContext:
    """Return the context that the flags describe. Raises WrongUsage."""
    try:
        flags.check_tls()
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    try:
        return tls_context(
            root_ca_file=flags.http_client_tls_root_ca_file,
            cert=flags.http_client_tls_cert,
            key=flags.http_client_tls_key,
            skip_verify=flags.http_client_tls_insecure_skip_verify,
        )
    except UnusableFile as error:
        raise WrongUsage(f"--http-client-tls-{error.kind}: {error}") from None


@dataclass(frozen=True)
class Sources:
    """The addresses to consume from; one of the two is empty."""

    nsqd_tcp_addresses: Sequence[str]
    lookupd_http_addresses: Sequence[str]
    tls: ssl.SSLContext
    """For HTTP requests to nodes and nsqlookupds."""

    def consumer(
        self, topic: str, channel: str, options: ConsumerOptions, *, make: Callable[..., Consumer] = Consumer
    ) -> Consumer:
        """Return a consumer of these addresses. ``make`` is its class, or a function with the same arguments.

        Raises as Consumer.
        """
        return make(
            topic,
            channel,
            nsqd_tcp_addresses=self.nsqd_tcp_addresses,
            lookupd_http_addresses=self.lookupd_http_addresses,
            lookupd_tls=self.tls,
            options=options,
        )


def sources(flags: ConsumerFlags, *, local: bool) -> Sources:
    """Return the given addresses, else those of the environment, else with ``local`` the registry's default address.

    Raises ToolFailed.
    """
    nsqds, lookupds = flags.nsqd_tcp_address, flags.lookupd_http_address
    if nsqds and lookupds:
        raise WrongUsage("use --nsqd-tcp-address or --lookupd-http-address not both")
    if not nsqds and not lookupds:
        lookupds = lookupds_of_environment(local=local)
        if not lookupds:
            raise WrongUsage("--nsqd-tcp-address or --lookupd-http-address required")
    try:
        for address in nsqds:
            split_address(address)
        for address in lookupds:
            base_url(address)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    return Sources(nsqds, lookupds, node_tls(flags))


def default_nsqd() -> str:
    """The TCP address of the broker of ``nsq up`` on this machine. Raises InvalidVariable."""
    return f"127.0.0.1:{default_ports().nsqd_tcp}"


def default_lookupd() -> str:
    """The HTTP address of the registry of ``nsq up`` on this machine. Raises InvalidVariable."""
    return f"127.0.0.1:{default_ports().lookupd_http}"


def lookupds_of_environment(*, local: bool) -> tuple[str, ...]:
    """Return the addresses in ``NSQLOOKUPD_HTTP_ADDRESSES``, else with ``local`` the registry's default address."""
    listed = [part.strip() for part in os.environ.get(LOOKUPDS_VARIABLE, "").split(",")]
    return tuple(part for part in listed if part) or ((default_lookupd(),) if local else ())


def consumer_options(flags: ConsumerFlags, tool: str, defaults: ConsumerOptions | None = None) -> ConsumerOptions:
    """The client's options from ``--consumer-opt`` and ``--max-in-flight``; ``tool`` is its name in NSQ.

    Without ``defaults``, nsqlookupd is polled every two seconds, so that the first messages of a new topic appear soon.
    Raises ToolFailed.
    """
    options = defaults or ConsumerOptions(lookupd_poll_interval=timedelta(seconds=2))
    options = with_texts(options, flags.consumer_opt, "--consumer-opt")
    return replace(options, user_agent=user_agent(tool), max_in_flight=flags.max_in_flight)


def producer_options(texts: Sequence[str], tool: str) -> ProducerOptions:
    """The client's options from ``--producer-opt``; ``tool`` is its name in NSQ. Raises ToolFailed."""
    return replace(with_texts(ProducerOptions(), texts, "--producer-opt"), user_agent=user_agent(tool))


def user_agent(tool: str) -> str:
    """The user agent sent to nsqd: the tool with NSQ's version, then the client with its own."""
    return f"{tool}/{NSQ_VERSION} aionsq/{product_version()}"


def with_texts(options: O, texts: Sequence[str], flag: str) -> O:
    """Apply the values ``name,value`` or ``name`` of a repeated flag. Raises ToolFailed."""
    pairs: list[tuple[str, str | None]] = []
    for text in texts:
        name, comma, value = text.partition(",")
        pairs.append((name, value if comma else None))
    try:
        return options_with_texts(options, pairs)
    except ValueError as error:
        raise ToolFailed(f"{flag} {' '.join(texts)}: {error}", status=2) from None
