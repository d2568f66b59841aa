"""Network addresses as NSQ's flags and logs write them."""

from __future__ import annotations


def parse_host_port(text: str) -> tuple[str, int]:
    """Split ``host:port``. IPv6 is in brackets; an empty host is every interface. Raises ValueError with a message."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"address {text!r}: an IPv6 host is written in brackets, [::1]:4150")
    if not colon:
        raise ValueError(f"address {text!r}: missing port in address")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise ValueError(f"address {text!r}: {port!r} is not a port")
    return host, int(port)


def address_text(address: object) -> str:
    """A socket's address as Go prints it: ``ip:port``, IPv6 in brackets; ``@`` for the client of a Unix socket."""
    if not isinstance(address, tuple) or len(address) < 2:
        return "@"
    host, port = address[0], address[1]
    if ":" not in host:
        return f"{host}:{port}"
    mapped = host.removeprefix("::ffff:")
    return f"{mapped}:{port}" if "." in mapped and ":" not in mapped else f"[{host}]:{port}"
