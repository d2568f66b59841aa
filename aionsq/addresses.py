"""Parsing and checking of addresses: of nsqds, and of the local end of a connection."""

from __future__ import annotations

import ipaddress


def is_unix_path(address: str) -> bool:
    """Whether an nsqd's address is the path of a Unix socket, that is, contains a slash."""
    return "/" in address


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port``. Raises ValueError, whose text contains the address."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def check_address(address: str) -> None:
    """Raise ValueError unless the address is ``host:port`` or the path of a Unix socket."""
    if not is_unix_path(address):
        split_address(address)


def local_address(text: str) -> tuple[str, int] | None:
    """Parse a local address, an IP address with or without a port; an empty text gives None. Raises ValueError."""
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):  # no port, or a bare IPv6 address
        host, port = text, "0"
    host = host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
        if not port.isascii() or not port.isdecimal() or int(port) > 65535:
            raise ValueError
    except ValueError:
        raise ValueError(f"invalid local_addr ! {text!r} is not an IP address with or without a port") from None
    return host, int(port)
