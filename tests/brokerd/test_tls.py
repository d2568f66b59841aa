"""TLS: the upgrade in the handshake, policies, certificates, and HTTPS."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from tests.harness.waiting import DEADLINE_S, is_readable

RESPONSE, ERROR = 0, 1
Connect = Callable[..., Any]


def identify(**fields: object) -> bytes:
    body = json.dumps({"feature_negotiation": True, **fields}).encode()
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


def pub(topic: str, body: bytes) -> bytes:
    return b"PUB %b\n" % topic.encode() + struct.pack(">i", len(body)) + body


@dataclass
class Files:
    """Certificates as files: the broker's own (with its key), authorities, and clients' (with their keys)."""

    server: Path
    authority: Path
    client: Path
    stranger: Path
    """A client's, by an authority that nobody here knows."""
    locked: Path
    """The broker's, with its key under a passphrase."""

    @property
    def flags(self) -> tuple[str, ...]:
        return (f"--tls-cert={self.server}", f"--tls-key={self.server}", "--https-address=127.0.0.1:0")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("certificates")
    authority, elsewhere = trustme.CA(), trustme.CA()
    made = {
        "server": authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA),
        "client": authority.issue_cert("client@example.org", common_name="consumer-7"),
        "stranger": elsewhere.issue_cert("stranger@example.org", common_name="nobody"),
    }
    paths = {name: directory / f"{name}.pem" for name in (*made, "authority", "locked")}
    for name, certificate in made.items():
        certificate.private_key_and_cert_chain_pem.write_to_path(paths[name])
    authority.cert_pem.write_to_path(paths["authority"])
    key = serialization.load_pem_private_key(made["server"].private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"passphrase"),
    )
    paths["locked"].write_bytes(made["server"].cert_chain_pems[0].bytes() + locked)
    return Files(**paths)


@pytest.fixture(scope="module")
def context(files: Files) -> Callable[..., ssl.SSLContext]:
    """A client's side: ``context(certificate=…, version=…)``; verifies the broker."""

    def make(*, certificate: Path | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(files.authority))
        if certificate is not None:
            made.load_cert_chain(certificate)
        if version is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # some tests need old versions
                made.minimum_version = made.maximum_version = version
            made.set_ciphers("DEFAULT:@SECLEVEL=0")
        return made

    return make


@pytest.fixture
def connect_tls(connect: Connect, context: Callable[..., ssl.SSLContext]) -> Connect:
    """``connect_tls(broker)``: a client inside TLS, whose upgrade was answered with OK."""

    def open_(broker: Any, fields: dict[str, object] | None = None, **kind: Any) -> Any:
        peer = connect(broker)
        answer, data = peer.command(identify(tls_v1=True, **(fields or {})))
        assert (answer, json.loads(data)["tls_v1"]) == (RESPONSE, True)
        peer.socket = context(**kind).wrap_socket(peer.socket, server_hostname="127.0.0.1")
        assert peer.frame() == (RESPONSE, b"OK")
        return peer

    return open_


@pytest.fixture(scope="module")
def shared(files: Files, start_shared_broker: Callable[..., Any]) -> Any:
    """A broker with a certificate, and without requirements."""
    return start_shared_broker(*files.flags)


def https(broker: Any, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    host, port = broker.wait_for_log(r"HTTPS: listening on (\S+)")[1].split(":")
    return http.client.HTTPSConnection(host, int(port), context=context, timeout=DEADLINE_S)


def client_stats(broker: Any, topic: str) -> dict[str, Any]:
    (client,) = broker.stats(topic=topic)["topics"][0]["channels"][0]["clients"]
    return dict(client)


# -- the upgrade ------------------------------------------------------------------------------------------------------


def test_messages_go_both_ways_inside_tls(shared, connect_tls) -> None:
    """Small messages, megabytes, and many at once arrive unchanged."""
    bodies = [b"x", os.urandom(1 << 20), *(b"%d" % number for number in range(3000))]
    inner = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    peer = connect_tls(shared)
    peer.ok(b"MPUB both-ways\n" + struct.pack(">ii", 4 + len(inner), len(bodies)) + inner)
    peer.ok(b"SUB both-ways ch\n")
    peer.send(b"RDY 2500\n")
    received = []
    for _ in bodies:
        message_id, _attempts, body = peer.message()
        received.append(body)
        peer.send(b"FIN " + message_id + b"\n")
    assert received == bodies


def test_a_client_that_reads_slowly_gets_everything(shared, connect_tls) -> None:
    """More than all buffers can hold; other clients do not wait."""
    topic, body = "slow", os.urandom(100_000)
    for _ in range(300):
        assert shared.request("POST", f"/pub?topic={topic}", body).text == "OK"
    peer = connect_tls(shared)
    peer.ok(b"SUB slow ch\n")
    peer.send(b"RDY 2500\n")
    peer.message()
    assert shared.request("GET", "/ping").text == "OK"
    assert client_stats(shared, topic)["in_flight_count"] < 300  # it does not read, so it is sent no more
    for _ in range(299):
        message_id, _attempts, received = peer.message()
        assert received == body
        peer.send(b"FIN " + message_id + b"\n")


@pytest.mark.parametrize(
    ("version", "shown"),
    [(ssl.TLSVersion.TLSv1_3, ("TLS1.3", "Unknown ")), (ssl.TLSVersion.TLSv1_2, ("TLS1.2", "Unknown "))],
)
def test_stats_contain_the_negotiated_tls_settings(shared, connect_tls, version, shown) -> None:
    """With nsqd's text: a cipher suite without a name there is shown by its number."""
    topic = f"agreed-{version.name}"
    peer = connect_tls(shared, version=version)
    peer.ok(b"SUB %b ch\n" % topic.encode())
    stats = client_stats(shared, topic)
    assert (stats["tls"], stats["tls_version"], stats["tls_negotiated_protocol"]) == (True, shown[0], "")
    assert stats["tls_negotiated_protocol_is_mutual"] is True
    assert stats["tls_cipher_suite"].startswith(shown[1])
    assert int(stats["tls_cipher_suite"].removeprefix("Unknown ")) > 0
    assert (stats["deflate"], stats["snappy"]) == (False, False)


def test_stats_name_the_cipher_suites_that_nsqd_names(shared, connect, context) -> None:
    """By their registered name."""
    peer = connect(shared)
    peer.command(identify(tls_v1=True))
    client = context(version=ssl.TLSVersion.TLSv1_2)
    client.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    peer.socket = client.wrap_socket(peer.socket, server_hostname="127.0.0.1")
    assert peer.frame() == (RESPONSE, b"OK")
    peer.ok(b"SUB named ch\n")
    assert client_stats(shared, "named")["tls_cipher_suite"] == "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.parametrize("codec", ["deflate", "snappy"])
def test_a_compression_goes_inside_tls(shared, connect_tls, packed_socket, codec) -> None:
    """Two upgrades and two OKs, each sent through the layers before it."""
    peer = connect_tls(shared, {codec: True})
    peer.socket = packed_socket(codec, peer.socket)
    assert peer.frame() == (RESPONSE, b"OK")
    body = os.urandom(200_000)
    topic = f"inside-{codec}"
    peer.ok(pub(topic, body))
    peer.ok(b"SUB %b ch\n" % topic.encode())
    peer.send(b"RDY 1\n")
    assert peer.message()[2] == body
    stats = client_stats(shared, topic)
    assert (stats["tls"], stats[codec]) == (True, True)


def test_a_second_identify_can_add_a_compression_but_not_tls_again(shared, connect_tls, packed_socket) -> None:
    """TLS stays as it is."""
    peer = connect_tls(shared)
    kind, data = peer.command(identify(deflate=True))
    assert (kind, json.loads(data)["deflate"]) == (RESPONSE, True)
    peer.socket = packed_socket("deflate", peer.socket)
    assert peer.frame() == (RESPONSE, b"OK")
    assert peer.command(identify(tls_v1=True)) == (
        ERROR,
        b"E_IDENTIFY_FAILED IDENTIFY failed TLS or this compression is already enabled",
    )
    assert peer.is_closed()


@pytest.mark.parametrize("codec", ["", "deflate"])
def test_answers_that_wait_for_the_disk_come_before_the_upgrade(
    files, start_broker, connect, context, packed_socket, codec
) -> None:
    """They are sent in the clear, even if IDENTIFY follows a publish immediately."""
    broker = start_broker(*files.flags, "--sync-every=1")
    peer = connect(broker)
    for _ in range(20):
        peer.send(pub("synced", b"body"))
    peer.send(identify(tls_v1=True, deflate=bool(codec)))
    for _ in range(20):
        assert peer.frame() == (RESPONSE, b"OK")
    assert json.loads(peer.frame()[1])["tls_v1"] is True
    peer.socket = context().wrap_socket(peer.socket, server_hostname="127.0.0.1")
    assert peer.frame() == (RESPONSE, b"OK")
    if codec:
        peer.socket = packed_socket(codec, peer.socket)
        assert peer.frame() == (RESPONSE, b"OK")
    peer.ok(pub("synced", b"body"))


def test_without_negotiation_there_is_no_tls(shared, connect) -> None:
    """The field counts only with feature_negotiation."""
    peer = connect(shared)
    peer.ok(identify(feature_negotiation=False, tls_v1=True))
    peer.ok(pub("plain", b"body"))


def test_an_invalid_handshake_is_refused_without_encryption(shared, connect) -> None:
    """The client would not understand anything else."""
    peer = connect(shared)
    peer.command(identify(tls_v1=True))
    peer.send(pub("not-tls", b"body"))
    kind, data = peer.frame()
    assert kind == ERROR
    assert data.startswith(b"E_IDENTIFY_FAILED IDENTIFY failed handshake: ")
    assert peer.is_closed()


def test_a_handshake_that_never_comes_ends_after_five_seconds(shared, connect) -> None:
    """No heartbeat is sent meanwhile, because it would not be part of the handshake."""
    peer = connect(shared)
    peer.command(identify(tls_v1=True, heartbeat_interval=1000))
    assert peer.frame() == (ERROR, b"E_IDENTIFY_FAILED IDENTIFY failed handshake: i/o timeout")
    assert peer.is_closed()


def test_a_handshake_cut_into_bytes_succeeds(shared, connect, context) -> None:
    """The client's bytes come one by one; commands inside records may be split as well."""
    peer = connect(shared)
    peer.command(identify(tls_v1=True))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")

    def step(action: Callable[[], Any]) -> Any:
        while True:
            try:
                result = action()
            except ssl.SSLWantReadError:
                result = None
            for byte in outgoing.read():
                peer.send(bytes([byte]))
            if result is not None:
                return result
            incoming.write(peer.socket.recv(65536))

    step(lambda: tls.do_handshake() or True)
    assert step(lambda: tls.read(100)) == struct.pack(">ii", 6, RESPONSE) + b"OK"
    step(lambda: tls.write(pub("bytewise", b"body")))
    assert step(lambda: tls.read(100)) == struct.pack(">ii", 6, RESPONSE) + b"OK"


def test_both_sides_can_end_the_stream_properly(files, start_broker, connect_tls) -> None:
    """The broker sends close_notify, and recognises the client's: neither takes a broken connection for an end."""
    broker = start_broker(*files.flags)
    leaving = connect_tls(broker)
    leaving.ok(pub("ended", b"body"))
    leaving.socket.unwrap()
    broker.wait_for_log(r"PROTOCOL\(V2\): \[127.0.0.1:\d+\] closed")
    staying = connect_tls(broker)
    assert broker.terminate() == 0
    assert staying.socket.recv(1) == b""  # a broken connection would raise SSLEOFError


# -- versions and certificates ----------------------------------------------------------------------------------------


def refuses(peer: Any, client: ssl.SSLContext) -> bool:
    """Whether the handshake fails; with TLS 1.3 a client notices only when it reads."""
    try:
        peer.socket = client.wrap_socket(peer.socket, server_hostname="127.0.0.1")
        return peer.socket.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def test_versions_below_the_oldest_accepted_are_refused(shared, connect, context) -> None:
    """The minimum is TLS 1.2 unless a flag lowers it."""
    peer = connect(shared)
    peer.command(identify(tls_v1=True))
    assert refuses(peer, context(version=ssl.TLSVersion.TLSv1_1))
    shared.wait_for_log(r"IDENTIFY failed handshake: .*(protocol|version)")


def test_the_oldest_accepted_version_can_be_lowered(files, start_broker, connect_tls) -> None:
    """For old clients."""
    broker = start_broker(*files.flags, "--tls-min-version=tls1.0")
    for version, shown in ((ssl.TLSVersion.TLSv1, "TLS1.0"), (ssl.TLSVersion.TLSv1_1, "TLS1.1")):
        peer = connect_tls(broker, version=version)
        peer.ok(b"SUB %b ch\n" % shown.encode())
        stats = client_stats(broker, shown)
        assert stats["tls_version"] == shown
        assert stats["tls_cipher_suite"].startswith("TLS_ECDHE_RSA_WITH_AES_")


def test_the_oldest_accepted_version_can_be_raised(files, start_broker, connect_tls, connect, context) -> None:
    """--tls-min-version=tls1.3 permits one version."""
    broker = start_broker(*files.flags, "--tls-min-version=tls1.3")
    connect_tls(broker).ok(pub("t", b"body"))
    peer = connect(broker)
    peer.command(identify(tls_v1=True))
    assert refuses(peer, context(version=ssl.TLSVersion.TLSv1_2))


def test_require_takes_any_certificate_and_no_plain_connection(
    files, start_broker, connect, connect_tls, context
) -> None:
    """Whoever signed the certificate; the policy also makes TLS required."""
    broker = start_broker(*files.flags, "--tls-client-auth-policy=require", f"--tls-root-ca-file={files.authority}")
    connect_tls(broker, certificate=files.client).ok(pub("t", b"body"))
    connect_tls(broker, certificate=files.stranger).ok(pub("t", b"body"))
    without = connect(broker)
    without.command(identify(tls_v1=True))
    assert refuses(without, context())
    assert connect(broker).command(pub("t", b"body"))[0] == ERROR
    assert broker.request("GET", "/ping").status == 403
    assert broker.process.poll() is None


def test_require_verify_accepts_only_valid_certificates(files, start_broker, connect, connect_tls, context) -> None:
    """They must be signed by --tls-root-ca-file; the refusal is logged."""
    broker = start_broker(
        *files.flags, "--tls-client-auth-policy=require-verify", f"--tls-root-ca-file={files.authority}"
    )
    connect_tls(broker, certificate=files.client).ok(pub("t", b"body"))
    for certificate in (files.stranger, None):
        peer = connect(broker)
        peer.command(identify(tls_v1=True))
        assert refuses(peer, context(certificate=certificate))
    broker.wait_for_log("IDENTIFY failed handshake: certificate verify failed")
    broker.wait_for_log("IDENTIFY failed handshake: peer did not return a certificate")
    served = https(broker, context(certificate=files.client))
    served.request("GET", "/ping")
    assert served.getresponse().read() == b"OK"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        https(broker, context(certificate=files.stranger)).request("GET", "/ping", b"x" * 10_000_000)


def test_another_word_for_the_policy_asks_for_no_certificate(files, start_broker, connect, connect_tls) -> None:
    """It requires TLS, as in nsqd."""
    broker = start_broker(*files.flags, "--tls-client-auth-policy=whatever")
    connect_tls(broker).ok(pub("t", b"body"))
    assert connect(broker).command(b"NOP\n") == (ERROR, b"E_INVALID cannot NOP in current state (TLS required)")


def test_a_key_under_a_passphrase_is_refused_at_start(files, start_broker) -> None:
    """The broker does not ask for it on a terminal."""
    broker = start_broker(f"--tls-cert={files.locked}", f"--tls-key={files.locked}", ready=False)
    assert broker.wait_for_exit() == 1
    assert broker.log[-1].endswith(
        f"failed to instantiate nsqd - failed to build TLS config - {files.locked}: the key is encrypted: a key file "
        "must not require a passphrase"
    )


# -- TLS required -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(files: Files, start_shared_broker: Callable[..., Any]) -> Any:
    """A broker that accepts no plain connection."""
    return start_shared_broker(*files.flags, "--tls-required=true")


@pytest.mark.parametrize(
    "command",
    [
        *[b"AUTH", b"SUB t ch", b"PUB t", b"DPUB t 5", b"MPUB t", b"RDY 1", b"FIN 0123456789abcdef", b"CLS", b"NOP"],
        *[b"REQ 0123456789abcdef 1", b"TOUCH 0123456789abcdef", b"BOGUS", b""],
    ],
)
def test_nothing_but_identify_is_understood_before_tls(strict, connect, command) -> None:
    """Even unknown commands are answered as if TLS were missing."""
    peer = connect(strict)
    peer.ok(identify(feature_negotiation=False))
    word = command.split(b" ")[0]
    assert peer.command(command + b"\n") == (ERROR, b"E_INVALID cannot %b in current state (TLS required)" % word)
    assert peer.is_closed()


def test_inside_tls_everything_is_understood(strict, connect_tls) -> None:
    """All commands work as usual."""
    peer = connect_tls(strict)
    peer.ok(pub("inside", b"body"))
    peer.ok(b"SUB inside ch\n")
    peer.send(b"RDY 1\n")
    assert peer.message()[2] == b"body"


def test_plain_http_is_refused_with_the_https_port(strict, context) -> None:
    """On every path, with the port of HTTPS; the bytes are nsqd's."""
    port = int(strict.wait_for_log(r"HTTPS: listening on \S+:(\d+)")[1])
    for method, path in (("GET", "/ping"), ("POST", "/pub?topic=t"), ("GET", "/no/such")):
        answer = strict.request(method, path)
        assert (answer.status, answer.text) == (403, f'{{"message": "TLS_REQUIRED", "https_port": {port}}}')
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        assert answer.headers["X-Nsq-Content-Type"] == "nsq; version=1.0"
    served = https(strict, context())
    served.request("GET", "/ping")
    assert served.getresponse().read() == b"OK"


def test_without_https_the_port_is_zero(files, start_broker) -> None:
    """An empty --https-address= disables HTTPS."""
    broker = start_broker(*files.flags[:2], "--https-address=", "--tls-required")
    assert broker.request("GET", "/ping").text == '{"message": "TLS_REQUIRED", "https_port": 0}'
    assert broker.terminate() == 0
    assert not [line for line in broker.log if "HTTPS" in line]


def test_tcp_https_leaves_plain_http_open(files, start_broker, connect) -> None:
    """Health checks and scripts can use HTTP; TCP requires TLS all the same."""
    broker = start_broker(*files.flags, "--tls-required=tcp-https")
    assert broker.request("POST", "/pub?topic=t", b"body").text == "OK"
    assert connect(broker).command(pub("t", b"x")) == (
        ERROR,
        b"E_INVALID cannot PUB in current state (TLS required)",
    )
    assert broker.request("GET", "/config/tls_required").text == "1"


# -- HTTPS ------------------------------------------------------------------------------------------------------------


def test_https_answers_like_http(shared, context) -> None:
    """Publishes of megabytes and sequential requests on one connection."""
    connection = https(shared, context())
    body = os.urandom(1_000_000)
    connection.request("POST", "/pub?topic=https", body)
    assert connection.getresponse().read() == b"OK"
    connection.request("GET", "/stats?format=json&topic=https")
    answer = connection.getresponse()
    assert json.loads(answer.read())["topics"][0]["message_bytes"] == len(body)
    connection.request("GET", "/nothing")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (404, b'{"message":"NOT_FOUND"}')


def test_https_answers_and_ends_properly_when_asked_to_close(shared, context) -> None:
    """The whole answer, then TLS's close_notify."""
    host, port = shared.wait_for_log(r"HTTPS: listening on (\S+)")[1].split(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as plain:
        peer = context().wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
        peer.sendall(b"GET /ping HTTP/1.1\r\nHost: nsqd\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := peer.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nOK")


def test_pipelined_requests_over_https_are_answered_in_order(shared, context) -> None:
    """Also if a hundred of them come in one record."""
    host, port = shared.wait_for_log(r"HTTPS: listening on (\S+)")[1].split(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as plain:
        peer = context().wrap_socket(plain, server_hostname="127.0.0.1")
        ping = b"GET /ping HTTP/1.1\r\nHost: nsqd\r\n\r\n"
        peer.sendall(ping * 100 + ping.replace(b"/ping", b"/info").replace(b"Host", b"Connection: close\r\nHost"))
        answer = b""
        while part := peer.recv(65536):
            answer += part
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 101
    assert b'"tcp_port"' in answer[answer.rindex(b"HTTP/1.1") :]


def test_plain_http_on_the_https_port_is_refused_as_such(shared) -> None:
    """In the clear, as Go's server does."""
    host, port = shared.wait_for_log(r"HTTPS: listening on (\S+)")[1].split(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as peer:
        peer.sendall(b"GET /ping HTTP/1.1\r\nHost: nsqd\r\n\r\n")
        answer = b""
        while part := peer.recv(65536):
            answer += part
    assert answer == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


def test_garbage_on_the_https_port_is_hung_up_on(shared, context) -> None:
    """A silent client is disconnected after five seconds; others are served."""
    host, port = shared.wait_for_log(r"HTTPS: listening on (\S+)")[1].split(":")
    with (
        socket.create_connection((host, int(port)), DEADLINE_S) as garbage,
        socket.create_connection((host, int(port)), DEADLINE_S) as silent,
    ):
        garbage.sendall(os.urandom(1000))
        assert is_readable(garbage)
        served = https(shared, context())
        served.request("GET", "/ping")
        assert served.getresponse().read() == b"OK"
        try:
            assert silent.recv(1) == b""
        except ConnectionResetError:
            pass
