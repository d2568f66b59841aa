"""The HTTP address of a node or registry."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit


class Address(NamedTuple):
    """Where an HTTP server listens. Rows and offsets name a node by ``name``."""

    host: str
    port: int
    is_https: bool = False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port``, ``http://host:port`` or ``https://host:port``. Raises ValueError."""
        url = urlsplit(text if "://" in text else f"http://{text}")
        try:
            host, port = url.hostname, url.port
        except ValueError:
            host, port = None, None
        plain = not (url.path.strip("/") or url.query or url.fragment or url.username)
        if url.scheme not in ("http", "https") or not host or port is None or not plain:
            raise ValueError(f"{text!r} is not an address such as 10.0.0.1:4151 or https://10.0.0.1:4152")
        return cls(host, port, url.scheme == "https")

    @property
    def name(self) -> str:
        """``host:port``, with the brackets of an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
