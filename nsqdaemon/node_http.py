"""Settings of HTTP requests to nsqd and nsqlookupd, the same for nsqadmin and the tools."""

import os
from dataclasses import dataclass
from datetime import timedelta

from nsqdaemon.settings import Settings, setting
from nsqwire.durations import format_duration, nanoseconds


@dataclass(frozen=True, kw_only=True)
class HTTPTimeouts(Settings):
    """The timeouts of requests. Flags and file keys are nsqadmin's."""

    http_client_connect_timeout: timedelta = setting("2s", "Timeout for connecting over HTTP.")
    http_client_request_timeout: timedelta = setting("5s", "Timeout of an HTTP request.")

    def check_timeouts(self) -> None:
        """Raise ValueError, naming the flag, for a timeout that is not positive."""
        for name in ("http_client_connect_timeout", "http_client_request_timeout"):
            if getattr(self, name) <= timedelta(0):
                shown = format_duration(nanoseconds(getattr(self, name)))
                raise ValueError(f"--{name.replace('_', '-')} should be positive, not {shown}")


@dataclass(frozen=True, kw_only=True)
class NodeTLSSettings(Settings):
    """TLS of requests over HTTPS. Flags and file keys are nsqadmin's."""

    http_client_tls_insecure_skip_verify: bool = setting(False, "Accept any certificate of nodes over HTTPS.")
    http_client_tls_root_ca_file: str = setting("", "PEM file of authorities that sign the nodes' certificates.")
    http_client_tls_cert: str = setting("", "PEM file of the client certificate, for nodes that require one.")
    http_client_tls_key: str = setting("", "PEM file of its key.")

    def check_tls(self) -> None:
        """Raise ValueError, naming the flag, for a file that cannot be read, and for only one of certificate and key.

        Whether a file is a certificate or a key is not checked.
        """
        if self.http_client_tls_cert and not self.http_client_tls_key:
            raise ValueError("--http-client-tls-key must be specified with --http-client-tls-cert")
        if self.http_client_tls_key and not self.http_client_tls_cert:
            raise ValueError("--http-client-tls-cert must be specified with --http-client-tls-key")
        for name in ("http_client_tls_root_ca_file", "http_client_tls_cert", "http_client_tls_key"):
            path = getattr(self, name)
            if path and not os.access(path, os.R_OK):
                raise ValueError(f"--{name.replace('_', '-')} ({path}) cannot be read")
