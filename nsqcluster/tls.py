"""TLS settings of requests to nodes that require HTTPS."""

from __future__ import annotations

import ssl
from functools import lru_cache


@lru_cache(maxsize=4)
def tls_context(*, root_ca_file: str = "", cert: str = "", key: str = "", skip_verify: bool = False) -> ssl.SSLContext:
    """Return a client's TLS context. All files are PEM; ``root_ca_file`` replaces the system's certificate authorities.

    ``cert`` and ``key`` are the client's certificate and its key. ``skip_verify`` accepts any server certificate.
    Raises OSError for a file that cannot be read or is not a certificate or key.
    """
    context = ssl.create_default_context(cafile=root_ca_file or None)
    if cert:
        context.load_cert_chain(cert, key or None)
    if skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
