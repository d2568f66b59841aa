"""The registry's settings."""

import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from nsqdaemon.logs import LOG_FORMATS, LogLevel
from nsqdaemon.settings import Settings, setting

DESCRIPTION: Final = "Run the registry, which knows the brokers of each topic: nsqlookupd, with its flags."
EXAMPLES: Final = (
    ("nsq lookup", "listen on 4160 for brokers, on 4161 for HTTP"),
    ("nsq lookup --tcp-address 127.0.0.1:4160 --http-address 127.0.0.1:4161", "for this machine only"),
)


@dataclass(frozen=True, kw_only=True)
class LookupSettings(Settings, env="LOOKUP_"):
    """Flags, file keys and defaults are nsqlookupd 1.3.0's; ``log_format`` and ``otlp_…`` are in addition to these."""

    config: str = setting("", "Path to a TOML file with settings.", file=False)
    version: bool = setting(False, "Print the version and exit.", file=False)
    verbose: bool = setting(False, "No effect.", file=False, hidden=True)
    log_level: LogLevel = setting("info", "Lowest level to log: debug, info, warn, error or fatal.")
    log_prefix: str = setting("[nsqlookupd] ", "Prefix of each log line in nsqlookupd's format.")
    log_format: str = setting(
        "nsqd",
        "Format of log lines: nsqd's, or json for one JSON object per line.",
        choices=LOG_FORMATS,
    )
    tcp_address: str = setting("0.0.0.0:4160", "host:port to listen on for nsqd.")
    http_address: str = setting("0.0.0.0:4161", "host:port to listen on for HTTP.")
    broadcast_address: str = setting(
        socket.gethostname, "Address of this registry, announced to each nsqd.", shown="this host's name"
    )
    inactive_producer_timeout: timedelta = setting(
        "5m", "A producer that has not pinged for this long is left out of answers."
    )
    tombstone_lifetime: timedelta = setting(
        "45s", "How long a tombstoned producer is left out of a topic's answers, even if it registers again."
    )
    otlp_endpoint: str = setting(
        "",
        "Base URL of an OTLP/HTTP receiver, to which the metrics of /metrics are pushed; empty for none. Requires "
        "nsq-daemons[otel].",
    )
    otlp_interval: timedelta = setting("60s", "Time between two pushes by OTLP.", min="1s")
