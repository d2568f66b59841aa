"""Networks that a setting trusts, and whether an address is in them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(flag: str, cidrs: Sequence[str]) -> tuple[Network, ...]:
    """Parse CIDRs such as ``10.0.0.0/8``; host bits are allowed. Raises ValueError that names the flag."""
    try:
        return tuple(ipaddress.ip_network(cidr, strict=False) for cidr in cidrs)
    except ValueError as error:
        raise ValueError(f"failed to parse --{flag} ({', '.join(cidrs)}) - {error}") from None


def within(address: str, allowed: Sequence[Network]) -> bool:
    """Whether a peer's IP address is in one of the networks; an IPv4 peer of an IPv6 socket counts as IPv4."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # the peer of a Unix socket has no address
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return any((mapped or ip) in network for network in allowed)
