"""Parsing and checking of addresses: of nsqds, and of the local end of a connection."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from aionsq.arguments import check_type
from aionsq.errors import InvalidArgument, WrongType
from nsqcluster.addresses import base_url


def is_unix_path(address: str) -> bool:
    """Whether an nsqd's address is the path of a Unix socket, that is, contains a slash and is no URL."""
    return "/" in address and "://" not in address


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port``. Raises InvalidArgument, whose text contains the address."""
    if "://" in address:
        raise InvalidArgument(
            f"{address!r} is a URL: an nsqd's address is the host:port of its TCP port, without a scheme"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidArgument(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def check_address(address: str) -> None:
    """Raise InvalidArgument unless the address is ``host:port`` or the path of a Unix socket, WrongType if no str."""
    check_type("an address", address, str)
    if not is_unix_path(address):
        split_address(address)


def local_address(text: str) -> tuple[str, int] | None:
    """Parse a local address, an IP address with or without a port; an empty text gives None. Raises InvalidArgument."""
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
        raise InvalidArgument(f"invalid local_addr ! {text!r} is not an IP address with or without a port") from None
    return host, int(port)


def address_list(given: str | Sequence[str], name: str) -> list[str]:
    """Return one address or a sequence of them as a list, each once. ``name`` is the argument's.

    Raises WrongType for anything else.
    """
    addresses = [given] if isinstance(given, str) else given
    if not isinstance(addresses, Sequence) or not all(isinstance(address, str) for address in addresses):
        raise WrongType(f"{name} is an address or a sequence of addresses, not {given!r}")
    return list(dict.fromkeys(addresses))


def http_url(address: str) -> str:
    """Return an HTTP address, ``host:port`` or a URL, as a URL without a trailing slash.

    Raises InvalidArgument, WrongType.
    """
    check_type("an address", address, str)
    try:
        return base_url(address)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
