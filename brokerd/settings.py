"""Every setting of the broker: nsqd's flags and keys, their defaults, and what may not be combined."""

from __future__ import annotations

import hashlib
import socket
import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from nsqwire.addresses import parse_host_port
from nsqwire.logs import LOG_FORMATS, LogLevel
from nsqwire.settings import Settings, setting

_TRUE_WORDS: Final = ("true", "1", "t")


class InvalidSettings(Exception):
    """Settings that cannot be used, or not together; the text names the flag."""


def default_node_id() -> int:
    """nsqd's default, so that a node keeps its id when this broker takes its place: from the host's name."""
    return zlib.crc32(hashlib.md5(socket.gethostname().encode(), usedforsecurity=False).digest()) % 1024


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(Settings, env="BROKERD_"):
    """Sizes are in bytes. Where an address has no ``:port`` it is the path of a Unix socket."""

    config: str = setting("", "TOML file with settings.", file=False)
    version: bool = setting(False, "Print the version and exit.", file=False)
    verbose: bool = setting(False, "No effect; accepted for nsqd's sake.", file=False, hidden=True)
    worker_id: bool = setting(False, "No effect; accepted for nsqd's sake.", file=False, hidden=True)

    log_level: LogLevel = setting("info", "Least level that is logged: debug, info, warn, error or fatal.")
    log_prefix: str = setting("[nsqd] ", "What each log line begins with, in nsqd's form.")
    log_format: str = setting(
        "nsqd", "Form of the log lines: nsqd's, or json for one object a line.", choices=LOG_FORMATS
    )
    node_id: int = setting(
        default_node_id, "Part of every message id, 0 to 1023.", key="id", shown="from the host's name"
    )

    tcp_address: str = setting("0.0.0.0:4150", "Where TCP clients connect: host:port, or a Unix socket's path.")
    http_address: str = setting("0.0.0.0:4151", "Where HTTP clients connect; empty switches HTTP off.")
    https_address: str = setting("0.0.0.0:4152", "Where HTTPS clients connect, if there is a certificate.")
    broadcast_address: str = setting(
        socket.gethostname, "The address that lookup hands to consumers.", shown="the host's name"
    )
    broadcast_tcp_port: int = setting(0, "The TCP port told to lookup; 0 for the one listened on.", min=0, max=65535)
    broadcast_http_port: int = setting(0, "The HTTP port told to lookup; 0 for the one listened on.", min=0, max=65535)
    lookupd_tcp_address: tuple[str, ...] = setting(
        (), "An nsqlookupd's TCP address; may be repeated.", key="nsqlookupd_tcp_addresses"
    )
    auth_http_address: tuple[str, ...] = setting(
        (), "An auth server's address or URL; may be repeated.", key="auth_http_addresses"
    )
    auth_http_request_method: str = setting("get", "How the auth server is asked: get or post.")
    http_client_connect_timeout: timedelta = setting("2s", "For outgoing HTTP.", min="0s")
    http_client_request_timeout: timedelta = setting("5s", "For outgoing HTTP, the whole request.", min="0s")
    topology_region: str = setting("", "The region this broker is in.")
    topology_zone: str = setting("", "The zone this broker is in.")

    data_path: str = setting("", "Existing directory of all data.", shown="the current directory")
    mem_queue_size: int = setting(
        10_000, "Messages beyond these count as backend_depth; all are on disk and in the page cache.", min=0
    )
    max_bytes_per_file: int = setting(100 * 1024 * 1024, "No effect: segments of the log grow as needed.", min=1)
    sync_every: int = setting(2500, "Messages per fsync; 1 makes every acknowledgement wait for the disk.", min=1)
    sync_timeout: timedelta = setting("2s", "Longest time between two fsyncs.", min="1ms")
    retention: timedelta = setting(
        "0s", "How long messages stay in the log after every channel is done with them, for rewinding.", min="0s"
    )
    retention_bytes: int = setting(
        0, "Largest size of a topic's files up to which such messages stay; 0 for any.", min=0
    )
    queue_scan_worker_pool_max: int = setting(4, "No effect: timers are exact, nothing is scanned.", min=1)
    queue_scan_selection_count: int = setting(20, "No effect: timers are exact, nothing is scanned.", min=1)

    msg_timeout: timedelta = setting("60s", "Time a message may stay in flight before it is requeued.", min="1ms")
    max_msg_timeout: timedelta = setting("15m", "Longest message timeout a client can have.", min="1ms")
    max_msg_size: int = setting(1_048_576, "Largest message body.", min=1)
    max_body_size: int = setting(5_242_880, "Largest body of one command or request.", min=1)
    max_unfinished_size: int = setting(
        268_435_456,
        "Most memory for unfinished commands and request bodies, in bytes. Above it, long ones wait.",
        min=1,
    )
    max_req_timeout: timedelta = setting("1h", "Longest deferral of a message.", min="0s")
    max_heartbeat_interval: timedelta = setting("60s", "Longest heartbeat interval a client can have.", min="1s")
    max_rdy_count: int = setting(2500, "Highest RDY of a client.", min=0)
    max_output_buffer_size: int = setting(65_536, "Largest output buffer a client can have.", min=64)
    max_output_buffer_timeout: timedelta = setting("30s", "Longest buffering a client can have.", min="1ms")
    min_output_buffer_timeout: timedelta = setting("25ms", "Shortest buffering a client can have.", min="1ms")
    output_buffer_timeout: timedelta = setting("250ms", "Buffering of a client that asks for none.", min="1ms")
    max_channel_consumers: int = setting(0, "Most consumers of a channel; 0 for any number.", min=0)

    statsd_address: str = setting("", "statsd daemon's UDP address; empty for none.")
    statsd_prefix: str = setting("nsq.%s", "Prefix of statsd's keys; %s becomes the broadcast address and port.")
    statsd_interval: timedelta = setting("60s", "Time between two pushes.", min="1001ms")
    statsd_mem_stats: bool = setting(True, "Push memory statistics as well.")
    statsd_udp_packet_size: int = setting(508, "Largest datagram.", min=1)
    statsd_exclude_ephemeral: bool = setting(False, "Leave ephemeral topics and channels out.")

    e2e_processing_latency_percentile: tuple[float, ...] = setting(
        (),
        "A latency percentile to tell, above 0 and up to 1; may be repeated.",
        key="e2e_processing_latency_percentiles",
    )
    e2e_processing_latency_window_time: timedelta = setting(
        "10m", "How far the percentiles look back, at most; half of it at least.", min="1s"
    )

    tls_cert: str = setting("", "PEM file of the certificate.")
    tls_key: str = setting("", "PEM file of its key.")
    tls_client_auth_policy: str = setting(
        "", "Have clients show a certificate, and TLS required: require takes any, require-verify verifies."
    )
    tls_root_ca_file: str = setting(
        "",
        "PEM file of the authorities that the certificates of clients and of auth servers are verified against.",
        shown="the system's",
    )
    tls_required: str = setting(
        "false",
        "Refuse plain connections: true, false, or tcp-https to leave plain HTTP open.",
        choices=("false", "true", "tcp-https", "0", "1", "f", "t"),
        bare="true",
    )
    tls_min_version: str = setting(
        "tls1.2", "Oldest TLS version: tls1.0 to tls1.3.", choices=("", "tls1.0", "tls1.1", "tls1.2", "tls1.3")
    )
    deflate: bool = setting(True, "Let clients negotiate deflate.")
    snappy: bool = setting(True, "Let clients negotiate snappy.")
    max_deflate_level: int = setting(6, "Highest deflate level a client can have, 1 to 9.")
    enable_experiment: tuple[str, ...] = setting((), "Experiments to switch on: topology-aware-consumption.")

    def check(self) -> None:
        """Raise InvalidSettings for what a single value's type does not rule out, in nsqd's words where it has them."""
        if not 1 <= self.max_deflate_level <= 9:
            raise InvalidSettings("--max-deflate-level must be [1,9]")
        if not 0 <= self.node_id < 1024:
            raise InvalidSettings("--node-id must be [0,1024)")
        if self.auth_http_request_method not in ("get", "post"):
            raise InvalidSettings("--auth-http-request-method must be post or get")
        if self.tls_required_code and not self.has_tls:
            raise InvalidSettings("cannot require TLS client connections without TLS key and cert")
        for percentile in self.e2e_processing_latency_percentile:
            if not 0 < percentile <= 1:
                raise InvalidSettings(
                    f"invalid E2E processing latency percentile: {str(percentile).removesuffix('.0')}"
                )
        if self.statsd_address:
            try:
                parse_host_port(self.statsd_address)
            except ValueError as error:
                raise InvalidSettings(f"--statsd-address: {error}") from None

    @property
    def tls_required_code(self) -> int:
        """0 no, 1 for TCP and HTTPS only, 2 everywhere; nsqd's numbers in ``/config``. A policy on clients means 2."""
        if self.tls_required == "tcp-https":
            return 1
        return 2 if self.tls_required in _TRUE_WORDS or self.tls_client_auth_policy else 0

    @property
    def has_tls(self) -> bool:
        """Whether there is a certificate, or at least someone meant there to be one."""
        return bool(self.tls_cert or self.tls_key)
