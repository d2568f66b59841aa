"""TLS of connections to nodes: a client's certificate, and the context of requests over HTTPS."""

from __future__ import annotations

import ssl
from functools import lru_cache

from nsqcluster.errors import reason_of


class EncryptedKey(OSError):
    """A key file that only a passphrase can decrypt; the text names the file."""


class UnusableFile(OSError):
    """A file that cannot be read, or does not contain what it must; the text names it.

    ``kind`` is ``root-ca-file``, ``cert`` or ``key``, as in the flags.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def load_client_certificate(context: ssl.SSLContext, cert: str, key: str = "") -> None:
    """Load a client's certificate, and its key from ``key``, or from ``cert`` if that is empty, into ``context``.

    Raises OSError as ``SSLContext.load_cert_chain``, and EncryptedKey where that would prompt for a passphrase on the
    terminal.
    """

    def refuse() -> str:
        raise EncryptedKey(f"the key in {key or cert} is encrypted: a key file must not require a passphrase")

    context.load_cert_chain(cert, key or None, password=refuse)


def new_tls_context(
    *, root_ca_file: str = "", cert: str = "", key: str = "", skip_verify: bool = False
) -> ssl.SSLContext:
    """Return a client's TLS context. All files are PEM; ``root_ca_file`` replaces the system's certificate authorities.

    ``cert`` and ``key`` are the client's certificate and its key. ``skip_verify`` accepts any server certificate.
    Raises UnusableFile.
    """
    try:
        context = ssl.create_default_context(cafile=root_ca_file or None)
    except OSError as error:
        raise UnusableFile(
            "root-ca-file", f"{root_ca_file} is not a PEM file of certificates: {reason_of(error)}"
        ) from None
    if cert:
        try:
            load_client_certificate(context, cert, key)
        except EncryptedKey as error:
            raise UnusableFile("key", str(error)) from None
        except OSError as error:
            files = " and ".join(filter(None, (cert, key)))
            raise UnusableFile(
                "cert", f"{files} are not PEM files of a certificate and its key: {reason_of(error)}"
            ) from None
    if skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@lru_cache(maxsize=4)
def tls_context(*, root_ca_file: str = "", cert: str = "", key: str = "", skip_verify: bool = False) -> ssl.SSLContext:
    """Return what :func:`new_tls_context` returned for the same arguments before. It is shared: do not change it."""
    return new_tls_context(root_ca_file=root_ca_file, cert=cert, key=key, skip_verify=skip_verify)
