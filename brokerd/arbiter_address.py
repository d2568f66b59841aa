"""The address of a pair's arbiter."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from nsqwire.addresses import parse_host_port

_ETCD: Final = re.compile(r"(etcds?)://([^/]+)/([A-Za-z0-9._-]+)")
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_KUBERNETES: Final = re.compile(rf"kubernetes://({_LABEL})/({_LABEL}(?:\.{_LABEL})*)")
"""A namespace and the name of an object, as Kubernetes permits them."""


class EtcdAddress(NamedTuple):
    """Where etcd is, and what the pair is called there."""

    servers: list[tuple[str, int]]
    name: str
    has_tls: bool


class LeaseAddress(NamedTuple):
    """The Lease of a pair in the Kubernetes cluster that this process runs in."""

    namespace: str
    name: str


class InvalidArbiter(ValueError):
    """The address of an arbiter is invalid; the text is for the user."""


def parse_arbiter(text: str) -> EtcdAddress | LeaseAddress:
    """The parts of ``etcd://host:port,host:port/name``, ``etcds://`` for TLS, or ``kubernetes://namespace/name``.

    Raises InvalidArbiter.
    """
    if lease := _KUBERNETES.fullmatch(text):
        return LeaseAddress(lease[1], lease[2])
    match = _ETCD.fullmatch(text)
    if match is None:
        raise InvalidArbiter(
            f"{text!r} is not etcd://HOST:PORT/NAME, etcds://HOST:PORT/NAME or kubernetes://NAMESPACE/NAME, "
            "with the name of the pair; at etcd, it has the characters .a-zA-Z0-9_-"
        )
    try:
        servers = [parse_host_port(address) for address in match[2].split(",")]
        return EtcdAddress(servers, match[3], match[1] == "etcds")
    except ValueError as error:
        raise InvalidArbiter(f"{text!r}: {error}") from None
