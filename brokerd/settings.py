"""The broker's settings: nsqd's flags and keys, their defaults, and combinations that are not allowed."""

from __future__ import annotations

import hashlib
import socket
import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from brokerd.arbiter_address import parse_arbiter
from brokerd.disk_reserve import DiskReserve
from nsqdaemon.logs import LOG_FORMATS, LogLevel
from nsqdaemon.otlp import OTLPUnusable, check_endpoint
from nsqdaemon.settings import Settings, setting
from nsqwire.addresses import parse_host_port
from nsqwire.durations import parse_duration
from nsqwire.units import Seconds

DESCRIPTION: Final = "Run the broker, which stores and delivers messages: nsqd, with its flags and a few more."
EXAMPLES: Final = (
    ("nsq brokerd --data-path data", "keep the data in this folder; it must exist"),
    ("nsq brokerd --data-path data --lookupd-tcp-address 127.0.0.1:4160", "and register with nsqlookupd"),
    ("nsq brokerd --data-path data --retention 24h", "keep messages for a day, for rewind"),
)

_TRUE_WORDS: Final = ("true", "1", "t")


class InvalidSettings(Exception):
    """A setting or a combination of settings is invalid; the text has the flag."""


def default_node_id() -> int:
    """nsqd's default node id, computed from the host name, so that a node keeps its id if it replaces nsqd."""
    return zlib.crc32(hashlib.md5(socket.gethostname().encode(), usedforsecurity=False).digest()) % 1024


SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts the service account of a pod."""

MOST_ATTEMPTS: Final = 65_535
"""Failed deliveries are counted up to this number."""


def parse_retry_delay(text: str) -> tuple[Seconds, Seconds]:
    """``1s..5m`` as seconds; ``(0, 0)`` for an empty text. Raises ValueError with a message for the user."""
    if not text:
        return 0.0, 0.0
    least, dots, most = text.partition("..")
    if not dots:
        raise ValueError(f"{text!r} is not MIN..MAX, such as 1s..5m")
    parsed = parse_duration(least).total_seconds(), parse_duration(most).total_seconds()
    if not 0 < parsed[0] <= parsed[1]:
        raise ValueError(f"{text!r}: MIN must be above 0 and at most MAX")
    return parsed


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(Settings, env="BROKERD_"):
    """Sizes are in bytes. An address without ``:port`` is the path of a Unix socket."""

    config: str = setting("", "TOML file with settings.", file=False)
    version: bool = setting(False, "Print the version and exit.", file=False)
    verbose: bool = setting(False, "No effect; accepted as in nsqd.", file=False, hidden=True)
    worker_id: bool = setting(False, "No effect; accepted as in nsqd.", file=False, hidden=True)

    log_level: LogLevel = setting("info", "Lowest level to log: debug, info, warn, error or fatal.")
    log_prefix: str = setting("[nsqd] ", "Prefix of each log line in nsqd's format.")
    log_format: str = setting(
        "nsqd", "Format of log lines: nsqd's, or json for one JSON object per line.", choices=LOG_FORMATS
    )
    node_id: int = setting(
        default_node_id, "Part of every message id, 0 to 1023.", key="id", shown="from the host's name"
    )

    tcp_address: str = setting("0.0.0.0:4150", "Address for TCP clients: host:port, or the path of a Unix socket.")
    http_address: str = setting("0.0.0.0:4151", "Address for HTTP clients; empty disables HTTP.")
    https_address: str = setting("0.0.0.0:4152", "Address for HTTPS clients, if there is a certificate.")
    broadcast_address: str = setting(
        socket.gethostname, "The address announced to nsqlookupd, which consumers connect to.", shown="the host's name"
    )
    broadcast_tcp_port: int = setting(0, "TCP port announced to nsqlookupd; 0: the bound one.", min=0, max=65535)
    broadcast_http_port: int = setting(0, "HTTP port announced to nsqlookupd; 0: the bound one.", min=0, max=65535)
    lookupd_tcp_address: tuple[str, ...] = setting(
        (), "An nsqlookupd's TCP address; may be repeated.", key="nsqlookupd_tcp_addresses"
    )
    auth_http_address: tuple[str, ...] = setting(
        (), "An auth server's address or URL; may be repeated.", key="auth_http_addresses"
    )
    auth_http_request_method: str = setting("get", "HTTP method of requests to auth servers: get or post.")
    http_client_connect_timeout: timedelta = setting("2s", "Timeout of connecting, for outgoing HTTP.", min="0s")
    http_client_request_timeout: timedelta = setting("5s", "Timeout of the whole request, for outgoing HTTP.", min="0s")
    topology_region: str = setting("", "The region this broker is in.")
    topology_zone: str = setting("", "The zone this broker is in.")

    data_path: str = setting("", "Directory of all data, which must exist.", shown="the current directory")
    mem_queue_size: int = setting(
        10_000, "Messages beyond these count as backend_depth; all are on disk and in the page cache.", min=0
    )
    max_bytes_per_file: int = setting(100 * 1024 * 1024, "No effect: segments of the log grow as needed.", min=1)
    sync_every: int = setting(2500, "Messages per fsync; 1 makes every acknowledgement wait for the disk.", min=1)
    sync_timeout: timedelta = setting("2s", "Longest time between two fsyncs.", min="1ms")
    disk_timeout: timedelta = setting(
        "20s",
        "Time that the disk may take for one operation before publishes are refused until it ends; 0s for none.",
        min="0s",
    )
    retention: timedelta = setting(
        "0s", "How long messages stay in the log after every channel has finished them, for rewinding.", min="0s"
    )
    retention_bytes: int = setting(0, "Largest size of a topic's files with such messages; 0 for no limit.", min=0)
    disk_reserve: str = setting(
        "", "Free space of the disk, such as 5% or 2GB, below which publishes are refused.", shown="none"
    )
    permanent_error_status: int = setting(
        1, "Exit status if the data path has to be repaired before it can be read, for supervisors.", min=1, max=255
    )
    drain_timeout: timedelta = setting(
        "10m", "Time after which a drained node ends although messages are left; 0: when it is empty.", min="0s"
    )
    drain_publishes: bool = setting(False, "Take publishes while the node is drained.")
    queue_scan_worker_pool_max: int = setting(4, "No effect: timers are exact, nothing is scanned.", min=1)
    queue_scan_selection_count: int = setting(20, "No effect: timers are exact, nothing is scanned.", min=1)

    msg_timeout: timedelta = setting("60s", "Time a message may stay in flight before it is requeued.", min="1ms")
    max_msg_timeout: timedelta = setting("15m", "Longest message timeout a client can have.", min="1ms")
    max_msg_size: int = setting(1_048_576, "Largest message body.", min=1)
    max_body_size: int = setting(5_242_880, "Largest body of one command or request.", min=1)
    max_unfinished_size: int = setting(
        268_435_456,
        "Memory limit of unfinished commands and request bodies, in bytes. Above it, long ones wait.",
        min=1,
    )
    max_attempts: int = setting(
        0,
        "Failed deliveries after which a channel keeps a message as dead; 0: it is delivered for ever.",
        min=0,
        max=MOST_ATTEMPTS,
    )
    retry_delay: str = setting(
        "",
        "Delay of a requeued or timed-out message, MIN..MAX: MIN times its failures, at most MAX.",
        shown="none",
    )
    msg_ttl: timedelta = setting("0s", "Age at which a channel drops a message that waits; 0: never.", min="0s")
    dedup_window: timedelta = setting(
        "2m", "Time in which a publish with a dedup_id is stored once, however often it is sent; 0: refuse dedup_id.",
        min="0s", max="24h",
    )  # fmt: skip
    max_req_timeout: timedelta = setting("1h", "Longest deferral of a message.", min="0s")
    max_heartbeat_interval: timedelta = setting("60s", "Longest heartbeat interval a client can have.", min="1s")
    max_rdy_count: int = setting(2500, "Highest RDY of a client.", min=0)
    max_output_buffer_size: int = setting(65_536, "Largest output buffer a client can have.", min=64)
    max_output_buffer_timeout: timedelta = setting("30s", "Longest output buffering a client can have.", min="1ms")
    min_output_buffer_timeout: timedelta = setting("25ms", "Shortest output buffering a client can have.", min="1ms")
    output_buffer_timeout: timedelta = setting("250ms", "Output buffering of a client that requests none.", min="1ms")
    max_channel_consumers: int = setting(0, "Most consumers of a channel; 0 for no limit.", min=0)

    mirror_address: str = setting(
        "", "Address for the other member of a pair, host:port; empty for a node without a mirror.", shown="none"
    )
    mirror_peer: str = setting("", "The other member's --mirror-address, as this machine reaches it: host:port.")
    arbiter: str = setting(
        "",
        "Where the pair records who leads: etcd://HOST:PORT[,HOST:PORT]/NAME of the pair, or"
        " kubernetes://NAMESPACE/NAME of a Lease.",
    )
    arbiter_ca_file: str = setting(
        "", "PEM file of the authorities that verify etcd's certificate, with etcds://.", shown="the system's"
    )
    arbiter_user_file: str = setting("", "File with a line NAME:PASSWORD, the user of etcd.", shown="no user")
    arbiter_service_account: str = setting(
        SERVICE_ACCOUNT, "Directory of the pod's service account: token and ca.crt, with kubernetes://."
    )
    mirror_tls: bool = setting(
        False, "Encrypt the stream between the members; both need --tls-cert, --tls-key and --tls-root-ca-file."
    )
    mirror_lease: timedelta = setting(
        "10s", "Time after which the other member takes over from a primary that does not answer.", min="2s", max="10m"
    )
    min_in_sync: int = setting(
        1, "Members that must be in sync; with 2, publishes are refused while one is missing.", min=1, max=2
    )

    statsd_address: str = setting("", "UDP address of the statsd daemon; empty for none.")
    statsd_prefix: str = setting("nsq.%s", "Prefix of statsd keys; %s becomes the broadcast address and port.")
    statsd_interval: timedelta = setting("60s", "Time between two pushes.", min="1001ms")
    statsd_mem_stats: bool = setting(True, "Push memory statistics as well.")
    statsd_udp_packet_size: int = setting(508, "Largest datagram.", min=1)
    statsd_exclude_ephemeral: bool = setting(False, "Leave out ephemeral topics and channels.")
    otlp_endpoint: str = setting(
        "",
        "Base URL of an OTLP/HTTP receiver, to which the metrics of /metrics are pushed; empty for none. Requires "
        "nsq-daemons[otel].",
    )
    otlp_interval: timedelta = setting("60s", "Time between two pushes by OTLP.", min="1s")

    e2e_processing_latency_percentile: tuple[float, ...] = setting(
        (),
        "A latency percentile to report, above 0 and up to 1; may be repeated.",
        key="e2e_processing_latency_percentiles",
    )
    e2e_processing_latency_window_time: timedelta = setting(
        "10m", "The longest period of the percentiles; the shortest is half of it.", min="1s"
    )

    tls_cert: str = setting("", "PEM file of the certificate.")
    tls_key: str = setting("", "PEM file of the certificate's key.")
    tls_client_auth_policy: str = setting(
        "", "Require TLS and a client certificate: require accepts any, require-verify verifies it."
    )
    tls_root_ca_file: str = setting(
        "",
        "PEM file of the authorities that verify the certificates of clients and auth servers.",
        shown="the system's",
    )
    tls_required: str = setting(
        "false",
        "Refuse plain connections: true, false, or tcp-https to allow plain HTTP.",
        choices=("false", "true", "tcp-https", "0", "1", "f", "t"),
        bare="true",
    )
    tls_min_version: str = setting(
        "tls1.2", "Oldest TLS version: tls1.0 to tls1.3.", choices=("", "tls1.0", "tls1.1", "tls1.2", "tls1.3")
    )
    deflate: bool = setting(True, "Let clients negotiate deflate.")
    snappy: bool = setting(True, "Let clients negotiate snappy.")
    max_deflate_level: int = setting(6, "Highest deflate level a client can have, 1 to 9.")
    enable_experiment: tuple[str, ...] = setting((), "Experiments to enable: topology-aware-consumption.")

    def check(self) -> None:
        """Check values and combinations that the declarations do not. Raises InvalidSettings with nsqd's message."""
        if not 1 <= self.max_deflate_level <= 9:
            raise InvalidSettings("--max-deflate-level must be [1,9]")
        if not 0 <= self.node_id < 1024:
            raise InvalidSettings("--node-id must be [0,1024)")
        for flag, parse in (("retry-delay", parse_retry_delay), ("disk-reserve", DiskReserve.of)):
            try:
                parse(getattr(self, flag.replace("-", "_")))
            except ValueError as error:
                raise InvalidSettings(f"--{flag}: {error}") from None
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
        self._check_mirror()
        if self.otlp_endpoint:
            try:
                check_endpoint(self.otlp_endpoint)
            except OTLPUnusable as error:
                raise InvalidSettings(f"--otlp-endpoint: {error}") from None

    def _check_mirror(self) -> None:
        if not self.mirror_address:
            if self.mirror_peer or self.arbiter or self.min_in_sync > 1:
                raise InvalidSettings("--mirror-peer, --arbiter and --min-in-sync need --mirror-address")
            if self.mirror_tls or self.arbiter_ca_file or self.arbiter_user_file:
                raise InvalidSettings("--mirror-tls, --arbiter-ca-file and --arbiter-user-file need --mirror-address")
            return
        if not self.mirror_peer or not self.arbiter:
            raise InvalidSettings("--mirror-address needs --mirror-peer and --arbiter")
        if self.mirror_tls and not (self.tls_cert and self.tls_key and self.tls_root_ca_file):
            raise InvalidSettings("--mirror-tls needs --tls-cert, --tls-key and --tls-root-ca-file")
        if self.mirror_lease.microseconds:
            raise InvalidSettings("--mirror-lease must be whole seconds")
        for flag, parse in (
            ("mirror-address", parse_host_port),
            ("mirror-peer", parse_host_port),
            ("arbiter", parse_arbiter),
        ):
            try:
                parse(getattr(self, flag.replace("-", "_")))
            except ValueError as error:
                raise InvalidSettings(f"--{flag}: {error}") from None
        if self.mirror_peer == self.mirror_address:
            raise InvalidSettings("--mirror-peer is the same as --mirror-address: it has to be the other member's")

    @property
    def tls_required_code(self) -> int:
        """nsqd's number in ``/config``: 0 not required, 1 on TCP, 2 everywhere. A client policy implies 2."""
        if self.tls_required == "tcp-https":
            return 1
        return 2 if self.tls_required in _TRUE_WORDS or self.tls_client_auth_policy else 0

    @property
    def has_tls(self) -> bool:
        """True if a certificate or key is configured."""
        return bool(self.tls_cert or self.tls_key)
