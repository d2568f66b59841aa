"""The addresses that webhooks may be posted to: public ones, as ``--webhook-allow`` and ``--webhook-deny`` change it.

People with accounts enter webhook URLs, and the platform can reach what their browsers cannot: its own services, the
network behind it, and the metadata service of its cloud, whose credentials are for the platform only.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

from nsqplatform.accounts.networks import Network, within

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOST_PATTERN = re.compile(r"[a-z0-9*_-]+(\.[a-z0-9*_-]+)*")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
NOT_PUBLIC: tuple[Network, ...] = (
    ipaddress.IPv4Network("192.0.0.0/24"),  # IETF protocol assignments (RFC 6890); Oracle Cloud's metadata: 192.0.0.192
    ipaddress.IPv4Network("168.63.129.16/32"),  # Azure's platform service (Azure Virtual Network documentation)
    ipaddress.IPv6Network("64:ff9b:1::/48"),  # NAT64 for local use (RFC 8215)
    ipaddress.IPv6Network("fec0::/10"),  # site-local, deprecated (RFC 3879)
    ipaddress.IPv6Network("::/96"),  # IPv4-compatible, deprecated (RFC 4291, 2.5.5.1)
    ipaddress.IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated (RFC 2765)
)
"""Networks that ``is_global`` of some Python versions counts as public."""


class DestinationRefused(Exception):
    """The settings permit no address of the host; the text says which setting would."""


@dataclass(frozen=True)
class Destinations:
    """Networks, and shell patterns of host names."""

    networks: tuple[Network, ...]
    hosts: tuple[str, ...]

    @classmethod
    def parse(cls, flag: str, entries: Sequence[str]) -> Self:
        """Parse CIDRs, IP addresses and host names such as ``hooks.example.org`` or ``*.example.org``.

        Raises ValueError that names the flag.
        """
        networks, hosts = [], []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                if _HOST_PATTERN.fullmatch(entry.lower()) is None:
                    raise ValueError(f"--{flag}: {entry!r} is neither a network nor a host name") from None
                hosts.append(entry.lower())
        return cls(tuple(networks), tuple(hosts))

    def contain(self, host: str, address: str) -> bool:
        return self.contain_name(host) or within(address, self.networks)

    def contain_name(self, host: str) -> bool:
        name = host.lower().rstrip(".")
        return any(fnmatchcase(name, each) for each in self.hosts)


def permitted_addresses(host: str, port: int, *, allow: Destinations, deny: Destinations) -> list[str]:
    """Resolve ``host``; return those of its IP addresses that may be connected to.

    ``allow`` counts before ``deny``, and ``deny`` before the rule for everything else: public addresses only.
    Raises DestinationRefused, and OSError if the name cannot be resolved.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    permitted = [
        address
        for address in addresses
        if allow.contain(host, address) or (not deny.contain(host, address) and is_public(address))
    ]
    if not permitted:
        if any(deny.contain(host, address) for address in addresses):
            raise DestinationRefused(f"not sent: --webhook-deny excludes {host}")
        raise DestinationRefused(f"not sent: {host} has no public address; NSQADMIN_WEBHOOK_ALLOW can permit it")
    return permitted


def refuse_denied_name(host: str, *, allow: Destinations, deny: Destinations) -> None:
    """Raise DestinationRefused if ``deny`` has the name of a host whose addresses only a proxy knows."""
    if deny.contain_name(host) and not allow.contain_name(host):
        raise DestinationRefused(f"not sent: --webhook-deny excludes {host}")


def is_public(address: str) -> bool:
    """Whether an IP address, and every IPv4 address that it embeds, is one of the public internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return all(
        each.is_global and not each.is_multicast and not within(str(each), NOT_PUBLIC) for each in _with_embedded(ip)
    )


def _with_embedded(ip: IpAddress) -> Iterator[IpAddress]:
    """``ip``, and the IPv4 addresses to which a gateway may translate it."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            yield ip.ipv4_mapped
            return
        if ip in _NAT64:
            yield ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if ip.sixtofour is not None:
            yield ip.sixtofour
        if ip.teredo is not None:
            yield from ip.teredo
    yield ip
