"""TLS without a socket: the context of the settings, and the broker's side of a TLS connection.

It uses pyOpenSSL, because the standard library's ``ssl`` cannot request a client certificate without verifying it, as
``--tls-client-auth-policy=require`` does.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from brokerd.client import TLSInfo
from nsqwire.codec import StreamBroken

if TYPE_CHECKING:
    from brokerd.settings import BrokerSettings

_RECORD_BYTES: Final = 16 * 1024
_VERSIONS: Final = {
    "": SSL.TLS1_VERSION,
    "tls1.0": SSL.TLS1_VERSION,
    "tls1.1": SSL.TLS1_1_VERSION,
    "tls1.2": SSL.TLS1_2_VERSION,
    "tls1.3": SSL.TLS1_3_VERSION,
}


class TLSConfigFailed(Exception):
    """The certificate, the key or the authorities cannot be used; the text has the file and the reason."""


def server_context(settings: BrokerSettings) -> SSL.Context:
    """The TLS context of the settings. Raises TLSConfigFailed."""
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(_VERSIONS[settings.tls_min_version])
    if settings.tls_min_version in ("", "tls1.0", "tls1.1"):
        # OpenSSL's default level excludes the hashes that old TLS versions sign with
        context.set_cipher_list(b"DEFAULT:@SECLEVEL=0")
    context.set_options(SSL.OP_NO_RENEGOTIATION)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(b"nsqd")  # without an id, a client with a certificate that resumes a session is refused
    context.set_passwd_cb(_refuse_passphrase)  # otherwise OpenSSL prompts for it on the terminal
    _load(settings.tls_cert, context.use_certificate_chain_file)
    _load(settings.tls_key, context.use_privatekey_file)
    _load(settings.tls_key, lambda _: context.check_privatekey())
    authorities = settings.tls_root_ca_file
    if authorities:
        _load(authorities, context.load_verify_locations)
        _load(authorities, lambda path: context.load_client_ca(path.encode()))
    policy = settings.tls_client_auth_policy
    if policy in ("require", "require-verify"):
        verify = policy == "require-verify"
        if verify and not authorities:
            context.set_default_verify_paths()
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, lambda *args: not verify or bool(args[4]))
    return context


def _refuse_passphrase(*_: object) -> bytes:
    raise TLSConfigFailed("the key is encrypted: a key file must not require a passphrase")


def _load(path: str, into: Callable[[str], object]) -> None:
    try:
        with open(path, "rb"):
            pass
        into(path)
    except OSError as error:
        raise TLSConfigFailed(f"open {path}: {os.strerror(error.errno or 0).lower()}") from None
    except SSL.Error as error:
        raise TLSConfigFailed(f"{path}: {_reason(error)}") from None
    except TLSConfigFailed as error:
        raise TLSConfigFailed(f"{path}: {error}") from None


def _reason(error: SSL.Error) -> str:
    """OpenSSL's text of its first error."""
    queue = error.args[0] if error.args else None
    return str(queue[0][-1]) if isinstance(queue, list) and queue else str(error) or type(error).__name__


class TLSConversation:
    """The broker's side of one TLS connection: decrypts received bytes, and encrypts bytes to send."""

    def __init__(self, context: SSL.Context) -> None:
        self._connection = SSL.Connection(context, None)
        self._connection.set_accept_state()

    def received(self, data: bytes) -> None:
        """Take ciphertext; :meth:`handshake` or :meth:`plaintext` must follow."""
        self._connection.bio_write(data)

    def handshake(self) -> bool:
        """Continue the handshake; True once it is complete. Raises StreamBroken, with an alert to be sent."""
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            return False
        except SSL.Error as error:
            raise StreamBroken(_reason(error)) from None
        return True

    def plaintext(self) -> Iterator[bytes]:
        """Yield the decrypted input, a TLS record at a time; b"" is the end of the stream. Raises StreamBroken."""
        while True:
            try:
                piece = self._connection.recv(_RECORD_BYTES)
            except SSL.WantReadError:
                return
            except SSL.ZeroReturnError:
                yield b""
                return
            except SSL.Error as error:
                raise StreamBroken(_reason(error)) from None
            yield piece

    def write(self, data: bytes | memoryview) -> None:
        """Encrypt all of ``data``. Raises StreamBroken."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._connection.send(view) :]
        except SSL.Error as error:
            raise StreamBroken(_reason(error)) from None

    def close(self) -> None:
        """Queue the end of our stream (``close_notify``)."""
        try:
            self._connection.shutdown()
        except SSL.Error:
            pass  # there was no handshake, or it failed

    def take_output(self) -> bytes:
        """Remove and return the ciphertext to send."""
        output = []
        try:
            while True:
                output.append(self._connection.bio_read(_OUTPUT_BYTES))
        except SSL.WantReadError:
            return output[0] if len(output) == 1 else b"".join(output)

    def info(self) -> TLSInfo:
        """The negotiated parameters. Only valid after the handshake."""
        return TLSInfo(
            version=_VERSION_NAMES.get(self._connection.get_protocol_version(), ""),
            cipher_suite=_cipher_suite(self._connection.get_cipher_name() or ""),
            common_name=self._common_name(),
        )

    def _common_name(self) -> str:
        certificate = self._connection.get_peer_certificate(as_cryptography=True)
        if certificate is None:
            return ""
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        value = names[-1].value if names else ""
        return value if isinstance(value, str) else value.decode("utf-8", "replace")


NewTLS = Callable[[], TLSConversation]
"""Creates a TLSConversation with the broker's context."""

_OUTPUT_BYTES: Final = 64 * 1024
_VERSION_NAMES: Final = {769: "TLS1.0", 770: "TLS1.1", 771: "TLS1.2", 772: "TLS1.3"}
_NAMED_SUITES: Final = {
    "RC4-SHA": "TLS_RSA_WITH_RC4_128_SHA",
    "DES-CBC3-SHA": "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "AES128-SHA": "TLS_RSA_WITH_AES_128_CBC_SHA",
    "AES256-SHA": "TLS_RSA_WITH_AES_256_CBC_SHA",
    "ECDHE-ECDSA-RC4-SHA": "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "ECDHE-ECDSA-AES128-SHA": "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "ECDHE-ECDSA-AES256-SHA": "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-RC4-SHA": "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "ECDHE-RSA-DES-CBC3-SHA": "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "ECDHE-RSA-AES128-SHA": "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "ECDHE-RSA-AES256-SHA": "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-AES128-GCM-SHA256": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
}
"""The cipher suites that nsqd shows by name; it shows all others by number."""


def _cipher_suite(name: str) -> str:
    return _NAMED_SUITES.get(name) or f"Unknown {_suite_numbers().get(name, 0)}"


@cache
def _suite_numbers() -> dict[str, int]:
    """The registered number of every cipher suite, by OpenSSL's name. pyOpenSSL has no function for it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return {cipher["name"]: cipher["id"] & 0xFFFF for cipher in context.get_ciphers()}
