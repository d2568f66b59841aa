"""TLS and deflate below the protocol, with a server that supports them."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
import struct
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aionsq import ConnectFailed, InvalidArgument, Producer, ProducerOptions
from tests.harness.waiting import DEADLINE_S


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nsqd")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "nsqd.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + private)
    return path


class LayeredNsqd:
    """Accepts IDENTIFY in plain text, then TLS and deflate as requested, then one PUB; records what it received."""

    def __init__(self, certificate: Path) -> None:
        self.published: list[bytes] = []
        self.raw = b""
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(certificate)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            pass  # the end of the test
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"IDENTIFY\n")
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        asked = json.loads(await reader.readexactly(size))
        granted = {"max_rdy_count": 2500, "version": "1.3.0", "tls_v1": asked["tls_v1"], "deflate": asked["deflate"]}
        writer.write(_frame(json.dumps(granted).encode()))
        if asked["tls_v1"]:
            await writer.start_tls(self._tls)
            writer.write(_frame(b"OK"))
        deflate, inflate = zlib.compressobj(wbits=-15), zlib.decompressobj(wbits=-15)

        def send(data: bytes) -> None:
            packed = deflate.compress(data) + deflate.flush(zlib.Z_SYNC_FLUSH) if asked["deflate"] else data
            writer.write(packed)

        if asked["deflate"]:
            send(_frame(b"OK"))
        data = b""
        while not data.endswith(b"the body" * 1000):
            part = await reader.read(65536)
            if not part:
                return
            self.raw += part
            data += inflate.decompress(part) if asked["deflate"] else part
        self.published.append(data)
        send(_frame(b"OK"))
        await reader.read()


def _frame(data: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(data), 0) + data


@pytest.mark.parametrize(("tls", "deflate"), [(True, False), (False, True), (True, True)])
async def test_a_publish_goes_through_the_requested_layers(certificate, tls, deflate):
    """The message arrives unchanged, and is smaller on the wire if compressed."""
    nsqd = LayeredNsqd(certificate)
    async with await asyncio.start_server(nsqd.serve, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        options = ProducerOptions(tls_v1=tls, deflate=deflate, tls_root_ca_file=str(certificate))
        async with asyncio.timeout(DEADLINE_S), Producer(address, options) as producer:
            await producer.pub("t", b"the body" * 1000)
    assert nsqd.published == [b"PUB t\n" + struct.pack(">i", 8000) + b"the body" * 1000]
    assert (len(nsqd.raw) < 1000) == deflate


async def test_a_certificate_of_an_unknown_authority_is_refused(certificate):
    """Nothing is published to such a server, unless verification was switched off."""
    nsqd = LayeredNsqd(certificate)
    async with await asyncio.start_server(nsqd.serve, "127.0.0.1", 0) as server, asyncio.timeout(DEADLINE_S):
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectFailed, match=r"TLS: certificate verification failed: self.signed"):
            await Producer(address, ProducerOptions(tls_v1=True)).start()
        async with Producer(address, ProducerOptions(tls_v1=True, tls_insecure_skip_verify=True)) as producer:
            await producer.pub("t", b"the body" * 1000)
    assert len(nsqd.published) == 1


def test_a_key_under_a_passphrase_is_named_and_not_asked_for(certificate, tmp_path):
    """A program with a terminal would wait there for the passphrase."""
    pem = certificate.read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        )
    )
    options = ProducerOptions(tls_v1=True, tls_cert=str(certificate), tls_key=str(locked))
    with pytest.raises(InvalidArgument, match=f"invalid tls_key ! the key in {locked} is encrypted"):
        Producer("127.0.0.1:4150", options)


async def test_a_certificate_file_that_goes_away_is_named_when_the_client_connects(certificate, nsqd, tmp_path):
    """The files are read again for each connection, so that new certificates are used."""
    nsqd.identify_answer["tls_v1"] = True
    authority = tmp_path / "authority.pem"
    authority.write_bytes(certificate.read_bytes())
    producer = Producer(nsqd.address, ProducerOptions(tls_v1=True, tls_root_ca_file=str(authority)))
    authority.unlink()
    with pytest.raises(ConnectFailed, match=f"TLS: invalid tls_root_ca_file ! {authority} is not a PEM file"):
        await producer.start()
    await producer.close()
