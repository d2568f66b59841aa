"""Whether two TCP addresses, differently written, are those of one server."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from typing import Final

from aionsq.addresses import is_unix_path, split_address

RESOLVE_S: Final = 2.0
_UNUSED_LOOPBACK: Final = "127.255.41.50"
"""Nobody listens on this address alone: who has a port on it listens on all addresses of the machine."""


async def is_one_server(one: str, other: str) -> bool:
    """Whether the two addresses of nsqds lead to the same server, as far as their names and this machine tell.

    They do if a name resolves to the address of the other, or if both are IPv4 addresses of this machine and a server
    listens on their port for all of them. An address that is not resolved within RESOLVE_S is compared as text.
    """
    if is_unix_path(one) or is_unix_path(other):
        return _is_one_path(one, other)
    (host, port), (other_host, other_port) = split_address(one), split_address(other)
    if port != other_port:
        return False
    if host.lower() == other_host.lower():
        return True
    ips, other_ips = await asyncio.gather(_ips(host), _ips(other_host))
    if ips & other_ips:
        return True
    return any(map(_is_of_this_machine, ips)) and any(map(_is_of_this_machine, other_ips)) and _serves_all(port)


def _is_one_path(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


async def _ips(host: str) -> set[str]:
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # TimeoutError is an OSError
        return set()
    return {_plain(str(address[0])) for *_, address in found}


def _plain(text: str) -> str:
    """An IP address as the system connects to it: IPv4 in IPv6 is IPv4, and the unspecified address is loopback."""
    ip = ipaddress.ip_address(text)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_unspecified:
        return "127.0.0.1" if ip.version == 4 else "::1"
    return str(ip)


def _is_of_this_machine(ip: str) -> bool:
    """Whether an IPv4 address is this machine's: packets to it are then sent from it."""
    if ":" in ip:
        return False
    if ipaddress.ip_address(ip).is_loopback:
        return True
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ip, 9))  # sends nothing
        except OSError:
            return False
        return bool(probe.getsockname()[0] == ip)


def _serves_all(port: int) -> bool:
    """Whether a server of this machine listens for all IPv4 addresses: no other socket can then have the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((_UNUSED_LOOPBACK, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
