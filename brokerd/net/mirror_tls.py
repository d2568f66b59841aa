"""TLS of the stream between the members of a pair: each presents a certificate, and verifies that of the other one."""

from __future__ import annotations

import asyncio
import os
import ssl
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, NamedTuple

from nsqwire.addresses import parse_host_port

if TYPE_CHECKING:
    from brokerd.settings import BrokerSettings


class MirrorTLSFailed(ValueError):
    """A file of ``--tls-cert``, ``--tls-key`` or ``--tls-root-ca-file`` cannot be used; the text is for the user."""


class MirrorTLS(NamedTuple):
    """The contexts of both directions, and the host that the other member's certificate has to name."""

    accepts: ssl.SSLContext
    connects: ssl.SSLContext
    peer: str

    @classmethod
    def of(cls, settings: BrokerSettings) -> MirrorTLS:
        """The contexts with the settings' certificate and authorities. Raises MirrorTLSFailed."""
        accepts, connects = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (accepts, connects):
            context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are ours
            context.verify_mode = ssl.CERT_REQUIRED
            files = f"{settings.tls_cert}, {settings.tls_key}, {settings.tls_root_ca_file}"
            try:
                context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_refuse_passphrase)
                context.load_verify_locations(settings.tls_root_ca_file)
            except ssl.SSLError as error:
                raise MirrorTLSFailed(f"{files}: {(error.reason or str(error)).lower().replace('_', ' ')}") from None
            except OSError as error:
                raise MirrorTLSFailed(f"open {files}: {os.strerror(error.errno or 0).lower()}") from None
        return cls(accepts, connects, parse_host_port(settings.mirror_peer)[0])

    def is_peer(self, transport: asyncio.BaseTransport) -> bool:
        """Return whether the certificate presented on an accepted connection names the other member's host."""
        conversation = transport.get_extra_info("ssl_object")
        certificate = None if conversation is None else conversation.getpeercert()
        peer = _comparable(self.peer)
        return any(_comparable(name) == peer for _, name in (certificate or {}).get("subjectAltName", ()))


def _comparable(host: str) -> str | IPv4Address | IPv6Address:
    """The form of a host for comparisons: addresses and names can be written in several ways."""
    try:
        return ip_address(host)
    except ValueError:
        return host.lower()


def _refuse_passphrase() -> bytes:
    raise MirrorTLSFailed("the key of --tls-key is encrypted: it must not require a passphrase")
