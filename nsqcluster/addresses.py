"""HTTP addresses of nsqd and nsqlookupd."""

from __future__ import annotations

from functools import lru_cache

from yarl import URL


@lru_cache(maxsize=4096)
def base_url(address: str) -> str:
    """Return ``host:port``, or a URL with or without a path, as a URL without a trailing slash.

    Raises ValueError for an invalid address, and for one that has neither a port nor a scheme.
    """
    try:
        url = URL(address if "://" in address else f"http://{address}")
        has_port = url.explicit_port is not None
    except ValueError:
        raise ValueError(f"{address!r} is not host:port") from None
    if (
        any(map(str.isspace, address))
        or not url.host
        or url.scheme not in ("http", "https")
        or (not has_port and "://" not in address)
    ):
        raise ValueError(f"{address!r} is not host:port")
    return str(url).rstrip("/")


def host_port(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
