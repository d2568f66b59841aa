"""HTTP client of nodes and registries, by the platform's settings."""

from __future__ import annotations

import ssl

from django.conf import settings

from nsqcluster import Client, tls_context
from nsqplatform.clusters import current
from nsqplatform.clusters.declaration import DEFAULT
from nsqwire.units import Seconds


def tls() -> ssl.SSLContext:
    """Return the context that the ``--http-client-tls-*`` settings describe, or the current cluster's declaration.
    Raises OSError for an unusable file."""
    declared = current.declaration()
    if declared.name != DEFAULT:
        return tls_context(
            root_ca_file=declared.tls_root_ca_file,
            cert=declared.tls_cert,
            key=declared.tls_key,
            skip_verify=declared.tls_insecure_skip_verify,
        )
    admin = settings.NSQADMIN
    return tls_context(
        root_ca_file=admin.http_client_tls_root_ca_file,
        cert=admin.http_client_tls_cert,
        key=admin.http_client_tls_key,
        skip_verify=admin.http_client_tls_insecure_skip_verify,
    )


def client(*, timeout_s: float | None = None) -> Client:
    """Return a client whose requests take at most ``timeout_s`` (default: the settings')."""
    return Client(
        tls=tls(),
        timeout_s=request_timeout_s() if timeout_s is None else timeout_s,
        connect_timeout_s=settings.NSQADMIN.http_client_connect_timeout.total_seconds(),
    )


def request_timeout_s() -> float:
    """Longest duration of one request, in seconds."""
    timeout: Seconds = settings.NSQADMIN.http_client_request_timeout.total_seconds()
    return timeout
