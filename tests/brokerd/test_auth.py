"""AUTH: the request to the auth server, what its answer permits, and for how long."""

from __future__ import annotations

import http.server
import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from brokerd.auth import BadGrant, read_grant
from tests.harness import header_commands
from tests.harness.waiting import DEADLINE_S, wait_until

RESPONSE, ERROR = 0, 1
Connect = Callable[..., Any]

EVERYTHING = {"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def identify(**fields: object) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps({"feature_negotiation": True, **fields}).encode())


def auth(secret: bytes = b"secret") -> bytes:
    return b"AUTH\n" + sized(secret)


def pub(topic: str, body: bytes = b"body") -> bytes:
    return b"PUB %b\n" % topic.encode() + sized(body)


def dpub(topic: str) -> bytes:
    return b"DPUB %b 5\n" % topic.encode() + sized(b"body")


def mpub(topic: str) -> bytes:
    return b"MPUB %b\n" % topic.encode() + sized(struct.pack(">i", 1) + sized(b"body"))


class AuthServer:
    """A real HTTP server that gives the configured answer and records the requests."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.status = 200
        self.answer: Any = {"ttl": 3600, "identity": "", "identity_url": "", "authorizations": [EVERYTHING]}
        self.requests: list[tuple[str, str, Any, bytes]] = []
        """Method, path, headers and body of each."""
        self.gate = threading.Event()
        """Answers wait for it."""
        self.gate.set()
        self.asked = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.requests.append((self.command, self.path, self.headers, body))
                server.asked.set()
                server.gate.wait(DEADLINE_S)
                content = server.answer if isinstance(server.answer, bytes) else json.dumps(server.answer).encode()
                self.send_response(server.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def allow(self, *authorizations: dict[str, Any], **fields: Any) -> None:
        """Answer with these entries from now on."""
        self.answer = {"ttl": 3600, "authorizations": list(authorizations), **fields}

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def start_auth() -> Iterator[Callable[..., AuthServer]]:
    """Start auth servers; all are stopped at the end."""
    started: list[AuthServer] = []

    def start(tls: ssl.SSLContext | None = None) -> AuthServer:
        started.append(AuthServer(tls))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="module")
def server() -> Iterator[AuthServer]:
    """The auth server of the shared broker."""
    server = AuthServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def guarded(server: AuthServer, start_shared_broker: Callable[..., Any]) -> Any:
    """A broker that asks ``server``."""
    return start_shared_broker(f"--auth-http-address={server.address}")


@pytest.fixture(autouse=True)
def fresh(server: AuthServer) -> None:
    """Each test begins with a server that permits everything and has received no request."""
    server.status = 200
    server.allow(EVERYTHING)
    server.gate.set()
    server.asked.clear()
    server.requests.clear()


@pytest.fixture
def authed(connect: Connect) -> Connect:
    """``authed(broker)``: a client whose AUTH was accepted."""

    def open_(broker: Any, secret: bytes = b"secret") -> Any:
        peer = connect(broker)
        kind, data = peer.command(auth(secret))
        assert kind == RESPONSE, data
        return peer

    return open_


# -- the conversation -------------------------------------------------------------------------------------------------


def test_auth_is_answered_with_identity_and_number_of_permissions(server, guarded, connect) -> None:
    """nsqd's keys in nsqd's order; the reply to IDENTIFY says that AUTH is required."""
    server.allow(EVERYTHING, EVERYTHING, identity="consumer <7>", identity_url="http://id/7?a&b")
    peer = connect(guarded)
    _kind, reply = peer.command(identify())
    assert json.loads(reply)["auth_required"] is True
    assert peer.command(auth()) == (
        RESPONSE,
        b'{"identity":"consumer \\u003c7\\u003e","identity_url":"http://id/7?a\\u0026b","permission_count":2}',
    )
    peer.ok(b"SUB granted ch\n")
    (client,) = guarded.stats(topic="granted")["topics"][0]["channels"][0]["clients"]
    assert (client["authed"], client["auth_identity"]) == (True, "consumer <7>")
    assert client["auth_identity_url"] == "http://id/7?a&b"
    keys = list(client)
    assert keys[keys.index("user_agent") :][:4] == ["user_agent", "authed", "auth_identity", "auth_identity_url"]


def test_stats_omit_missing_identity_fields(server, guarded, authed) -> None:
    """An identity that the server does not give has no key in /stats."""
    peer = authed(guarded)
    peer.ok(b"SUB nobody ch\n")
    (client,) = guarded.stats(topic="nobody")["topics"][0]["channels"][0]["clients"]
    assert client["authed"] is True
    assert "auth_identity" not in client
    assert "auth_identity_url" not in client


def test_everything_works_with_all_permissions(guarded, authed) -> None:
    """Publishing in each way, and consuming."""
    peer = authed(guarded)
    peer.ok(pub("works"))
    peer.ok(mpub("works"))
    peer.ok(dpub("works"))
    peer.ok(b"SUB works ch\n")
    peer.send(b"RDY 5\n")
    assert [peer.message()[2] for _ in range(3)] == [b"body"] * 3


@pytest.mark.parametrize(
    ("verb", "command"),
    [("SUB", b"SUB t ch\n"), ("PUB", pub("t")), ("DPUB", dpub("t")), ("MPUB", b"MPUB t\n")],
)
def test_auth_comes_first(guarded, connect, verb, command) -> None:
    """MPUB is refused before its body is read, the other commands after it."""
    peer = connect(guarded)
    assert peer.command(command) == (ERROR, b"E_AUTH_FIRST AUTH required before %b" % verb.encode())
    assert peer.is_closed()


@pytest.mark.parametrize(
    ("commands", "error"),
    [
        pytest.param(b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters", id="a parameter"),
        pytest.param(b"AUTH\n" + struct.pack(">i", 0), b"E_BAD_BODY AUTH invalid body size 0", id="no secret"),
        pytest.param(
            b"AUTH\n" + struct.pack(">i", 6_000_000), b"E_BAD_BODY AUTH body too big 6000000 > 5242880", id="a long one"
        ),
        pytest.param(b"SUB \xff ch\n", b'E_BAD_TOPIC SUB topic name "\\xff" is not valid', id="names before auth"),
        pytest.param(
            b"MPUB t?\n", b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "t?" is not valid', id="names before auth, MPUB"
        ),
        pytest.param(
            b"PUB t\n" + struct.pack(">i", 0), b"E_BAD_MESSAGE PUB invalid message body size 0", id="sizes before auth"
        ),
    ],
)
def test_a_malformed_command_is_reported_before_auth_is_required(server, guarded, connect, commands, error) -> None:
    """The checks have nsqd's order; the auth server receives no request."""
    peer = connect(guarded)
    assert peer.command(commands) == (ERROR, error)
    assert peer.is_closed()
    assert server.requests == []


def test_auth_twice_is_refused(guarded, authed) -> None:
    """After SUB as well, where the state is the reason."""
    peer = authed(guarded)
    assert peer.command(auth()) == (ERROR, b"E_INVALID AUTH already set")
    assert peer.is_closed()
    peer = authed(guarded)
    peer.ok(b"SUB twice ch\n")
    assert peer.command(auth()) == (ERROR, b"E_INVALID cannot AUTH in current state")


def test_http_is_not_subject_to_auth(server, guarded) -> None:
    """As in nsqd, anyone who can connect to the HTTP port may publish."""
    assert guarded.request("POST", "/pub?topic=over-http", b"body").text == "OK"
    assert server.requests == []


# -- the request to the server
# ----------------------------------------------------------------------------------------


def test_the_server_is_asked_with_get(server, guarded, authed) -> None:
    """Parameters are sorted and form-encoded, bytes unchanged; the Accept header is nsqd's."""
    authed(guarded, b"s\xe9cret &=+ ~/")
    ((method, path, headers, _body),) = server.requests
    assert method == "GET"
    assert path == "/auth?common_name=&remote_ip=127.0.0.1&secret=s%E9cret+%26%3D%2B+~%2F&tls=false"
    assert headers["Accept"] == "application/vnd.nsq; version=1.0"


def test_a_url_is_taken_as_it_is(start_auth, start_broker, authed) -> None:
    """The query is appended even if the URL has one already, as nsqd does."""
    server = start_auth()
    authed(start_broker(f"--auth-http-address=http://{server.address}/some/where?x=1"), b"s")
    assert server.requests[0][1] == "/some/where?x=1?common_name=&remote_ip=127.0.0.1&secret=s&tls=false"


def test_a_client_on_a_unix_socket_has_no_address(start_auth, start_broker, connect, tmp_path) -> None:
    """The server receives an empty address."""
    server = start_auth()
    broker = start_broker(f"--tcp-address={tmp_path}/s", f"--auth-http-address={server.address}", ready=False)
    broker.wait_for_log("TCP: listening on ")
    assert connect(f"{tmp_path}/s").command(auth())[0] == RESPONSE
    assert parse_qs(urlsplit(server.requests[0][1]).query, keep_blank_values=True)["remote_ip"] == [""]


def test_the_server_can_be_asked_with_post(start_auth, start_broker, authed) -> None:
    """The same fields as JSON, each value in a list, to the given URL."""
    server = start_auth()
    broker = start_broker(
        f"--auth-http-address=http://{server.address}/some/where?x=1", "--auth-http-request-method=post"
    )
    authed(broker, b"secret")
    ((method, path, headers, body),) = server.requests
    assert (method, path) == ("POST", "/some/where?x=1")
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == {"common_name": [""], "remote_ip": ["127.0.0.1"], "secret": ["secret"], "tls": ["false"]}


def test_the_server_receives_the_subject_of_the_clients_certificate(
    start_auth, start_broker, connect, tmp_path
) -> None:
    """Its common name, and that TLS is used."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "broker.pem")
    client = authority.issue_cert("c@example.org", common_name="consumer 7").private_key_and_cert_chain_pem
    client.write_to_path(tmp_path / "client.pem")
    server = start_auth()
    broker = start_broker(
        f"--auth-http-address={server.address}",
        f"--tls-cert={tmp_path}/broker.pem",
        f"--tls-key={tmp_path}/broker.pem",
        f"--tls-root-ca-file={tmp_path}/ca.pem",
        "--tls-client-auth-policy=require-verify",
        "--https-address=",
    )
    peer = connect(broker)
    peer.command(identify(tls_v1=True))
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "client.pem")
    peer.socket = context.wrap_socket(peer.socket, server_hostname="127.0.0.1")
    assert peer.frame() == (RESPONSE, b"OK")
    assert peer.command(auth())[0] == RESPONSE
    asked = parse_qs(urlsplit(server.requests[0][1]).query, keep_blank_values=True)
    assert (asked["common_name"], asked["tls"]) == (["consumer 7"], ["true"])


def test_a_server_that_wants_https_is_asked_there(start_auth, start_broker, connect, tmp_path) -> None:
    """A 403 with the port redirects to HTTPS, as with nsqd; the certificate is checked against --tls-root-ca-file."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    secure, plain = start_auth(context), start_auth()
    plain.status, plain.answer = 403, {"message": "TLS_REQUIRED", "https_port": secure.port}
    broker = start_broker(f"--auth-http-address={plain.address}", f"--tls-root-ca-file={tmp_path}/ca.pem")
    assert connect(broker).command(auth())[0] == RESPONSE
    assert secure.requests[0][1] == plain.requests[0][1]
    distrustful = start_broker(f"--auth-http-address=https://{secure.address}/auth")
    assert connect(distrustful).command(auth()) == (ERROR, b"E_AUTH_FAILED AUTH failed")
    distrustful.wait_for_log("WARNING: .* AUTH failed against https://.*certificate verify failed")


def test_one_server_that_answers_is_enough(start_auth, start_broker, connect) -> None:
    """Servers that are down, refuse or send an invalid answer are skipped, whichever is asked first."""
    gone, broken, sound = start_auth(), start_auth(), start_auth()
    gone.close()
    broken.answer = b"nonsense"
    addresses = [f"--auth-http-address={server.address}" for server in (gone, broken, sound)]
    broker = start_broker(*addresses)
    for _ in range(20):
        peer = connect(broker)
        assert peer.command(auth())[0] == RESPONSE
        peer.ok(pub("t"))
    assert len(sound.requests) == 20
    assert 0 < len(broken.requests) < 20  # each of twenty requests started at a random server


def test_a_server_that_does_not_answer_in_time_is_given_up(start_auth, start_broker, connect) -> None:
    """After --http-client-request-timeout; the secret is not logged."""
    server = start_auth()
    server.gate.clear()
    broker = start_broker(
        f"--auth-http-address={server.address}", "--http-client-request-timeout=200ms", "--log-level=debug"
    )
    assert connect(broker).command(auth(b"hunter2")) == (ERROR, b"E_AUTH_FAILED AUTH failed")
    broker.wait_for_log("no answer in time")
    assert not [line for line in broker.log if "hunter2" in line]


# -- what its answer permits
# ------------------------------------------------------------------------------------------

PUBLISHING = {"permissions": ["publish"]}
CONSUMING = {"permissions": ["subscribe"]}


@pytest.mark.parametrize(
    ("entry", "command", "allowed"),
    [
        pytest.param({"topic": "^t$", "channels": [".*"], **PUBLISHING}, pub("t"), True, id="publish"),
        pytest.param({"topic": "^t$", "channels": [".*"], **PUBLISHING}, mpub("t"), True, id="publish many"),
        pytest.param({"topic": "^t$", "channels": [".*"], **PUBLISHING}, dpub("t"), True, id="publish later"),
        pytest.param({"topic": "^t$", "channels": [".*"], **PUBLISHING}, pub("other"), False, id="another topic"),
        pytest.param({"topic": "^t$", "channels": [".*"], **PUBLISHING}, b"SUB t ch\n", False, id="no consuming"),
        pytest.param({"topic": "^t$", "channels": [".*"], **CONSUMING}, b"SUB t ch\n", True, id="consume"),
        pytest.param({"topic": "^t$", "channels": ["^ch$"], **CONSUMING}, b"SUB t other\n", False, id="its channel"),
        pytest.param({"topic": "^t$", "channels": [], **CONSUMING}, b"SUB t ch\n", False, id="no channel"),
        pytest.param({"topic": "^t$", "channels": [".*"], **CONSUMING}, mpub("t"), False, id="no publishing"),
        pytest.param({"topic": "a", "channels": [""], **PUBLISHING}, pub("bar"), True, id="found anywhere"),
        pytest.param({"topic": ".*", "channels": ["ch"], **PUBLISHING}, pub("t"), False, id="publishing, a channel"),
        pytest.param({"topic": ".*", "channels": [], **PUBLISHING}, pub("t"), False, id="publishing, no channels"),
        pytest.param(
            {"topic": r"^\pL{2}\d\z", "channels": [".*"], **PUBLISHING}, pub("ab1"), True, id="Go's own syntax"
        ),
        pytest.param({"topic": "(a+)+$", "channels": [".*"], **PUBLISHING}, pub("a" * 60 + "-"), False, id="slow one"),
        pytest.param({"TOPIC": "^t$", "Channels": [".*"], "permissions": ["publish"]}, pub("t"), True, id="keys' case"),
    ],
)  # fmt: skip
def test_an_entry_permits_names_that_its_patterns_match(server, guarded, connect, entry, command, allowed) -> None:
    """Permission, topic and one of the channels must match; patterns are Go's, and match anywhere in the name."""
    server.allow(entry)
    peer = connect(guarded)
    assert peer.command(auth())[0] == RESPONSE
    kind, data = peer.command(command)
    if allowed:
        assert (kind, data) == (RESPONSE, b"OK")
        return
    words = command.split(b"\n")[0].split(b" ")
    channel = words[2] if words[0] == b"SUB" else b""
    assert (kind, data) == (
        ERROR,
        b'E_UNAUTHORIZED AUTH failed for %b on "%b" "%b"' % (words[0], words[1], channel),
    )
    assert peer.is_closed()


def test_any_entry_is_enough(server, guarded, connect) -> None:
    """The permissions of all entries add up."""
    server.allow(
        {"topic": "^a$", "channels": [".*"], "permissions": ["publish"]},
        {"topic": "^b$", "channels": ["^ch$"], "permissions": ["subscribe"]},
    )
    peer = connect(guarded)
    assert b'"permission_count":2' in peer.command(auth())[1]
    peer.ok(pub("a"))
    peer.ok(b"SUB b ch\n")
    assert peer.command(pub("b"))[1] == b'E_UNAUTHORIZED AUTH failed for PUB on "b" ""'


def test_a_denied_publish_leaves_nothing_behind(server, guarded, connect) -> None:
    """The topic is not created."""
    server.allow({"topic": "^mine$", "channels": [".*"], "permissions": ["publish"]})
    for command in (pub("theirs"), dpub("theirs"), mpub("theirs"), b"SUB theirs ch\n"):
        peer = connect(guarded)
        assert peer.command(auth())[0] == RESPONSE
        assert peer.command(command)[0] == ERROR
    assert guarded.stats(topic="theirs")["topics"] is None


HEADERS = b'{"a":"b"}'


@pytest.mark.parametrize(
    ("verb", "publish"),
    [
        ("HPUB", lambda topic, body: header_commands.hpub(topic, HEADERS, body)),
        ("HDPUB", lambda topic, body: header_commands.hdpub(topic, 5, HEADERS, body)),
        ("HMPUB", lambda topic, body: header_commands.hmpub(topic, [(HEADERS, body)])),
    ],
)
def test_publishes_with_headers_need_permission(server, guarded, connect, verb, publish) -> None:
    """As those without. One that has to wait for the auth server is then stored with its own body."""

    def with_headers():
        peer = connect(guarded)
        assert peer.command(identify(headers=True))[0] == RESPONSE
        return peer

    peer = with_headers()
    assert peer.command(publish("mine", b"x")) == (ERROR, b"E_AUTH_FIRST AUTH required before %b" % verb.encode())
    server.allow({"topic": "^mine$", "channels": [".*"], **PUBLISHING}, ttl=1)
    peer = with_headers()
    assert peer.command(auth())[0] == RESPONSE
    peer.ok(publish("mine", b"x"))
    wait_past_ttl()
    server.allow({"topic": "^mine$", "channels": [".*"], **PUBLISHING}, ttl=3600)
    peer.send(publish("mine", verb.encode() + b" waits") + pub("mine", b"y" * 1000))
    assert [peer.frame() for _ in range(2)] == [(RESPONSE, b"OK")] * 2
    refused = b'E_UNAUTHORIZED AUTH failed for %b on "theirs" ""' % verb.encode()
    assert peer.command(publish("theirs", b"x")) == (ERROR, refused)
    server.allow(EVERYTHING)
    reader = connect(guarded)
    assert reader.command(auth())[0] == RESPONSE
    reader.ok(b"SUB mine ch\n")
    reader.send(b"RDY 100\n")
    while reader.message()[2] != verb.encode() + b" waits":
        pass


def test_an_answer_without_authorizations_refuses_auth(server, guarded, connect) -> None:
    """AUTH itself is refused."""
    for entries in ([], None):
        server.answer = {"ttl": 10, "authorizations": entries}
        peer = connect(guarded)
        assert peer.command(auth()) == (ERROR, b"E_UNAUTHORIZED AUTH no authorizations found")
        assert peer.is_closed()


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        pytest.param(500, {"ttl": 1, "authorizations": [EVERYTHING]}, id="status 500"),
        pytest.param(201, {"ttl": 1, "authorizations": [EVERYTHING]}, id="status 201"),
        pytest.param(403, {"message": "no"}, id="status 403 without a port"),
        pytest.param(200, b"", id="nothing"),
        pytest.param(200, b"[" * 100_000, id="deep nonsense"),
        pytest.param(200, [1], id="a list"),
        pytest.param(200, {"ttl": 0, "authorizations": [EVERYTHING]}, id="ttl 0"),
        pytest.param(200, {"ttl": -1, "authorizations": [EVERYTHING]}, id="ttl -1"),
        pytest.param(200, {"ttl": 1.5, "authorizations": [EVERYTHING]}, id="ttl 1.5"),
        pytest.param(200, {"ttl": True, "authorizations": [EVERYTHING]}, id="ttl true"),
        pytest.param(200, {"authorizations": [EVERYTHING]}, id="no ttl"),
        pytest.param(200, {"ttl": 1, "authorizations": [{**EVERYTHING, "permissions": ["own"]}]}, id="a permission"),
        pytest.param(200, {"ttl": 1, "authorizations": [{**EVERYTHING, "topic": "("}]}, id="a topic pattern"),
        pytest.param(200, {"ttl": 1, "authorizations": [{**EVERYTHING, "channels": ["a(?=b)"]}]}, id="a channel's"),
        pytest.param(200, {"ttl": 1, "authorizations": [{**EVERYTHING, "channels": [1]}]}, id="channels of numbers"),
        pytest.param(200, {"ttl": 1, "authorizations": ["all"]}, id="an entry that is none"),
        pytest.param(200, {"ttl": 1, "identity": 7, "authorizations": [EVERYTHING]}, id="an identity of number"),
        pytest.param(200, b'{"ttl":1,"authorizations":[]}' + b" " * 2_000_000, id="two megabytes"),
    ],
)  # fmt: skip
def test_an_invalid_answer_counts_as_no_answer(server, guarded, connect, status, answer) -> None:
    """The reason is logged; the client does not receive it."""
    server.status, server.answer = status, answer
    logged = len(guarded.log)
    peer = connect(guarded)
    assert peer.command(auth()) == (ERROR, b"E_AUTH_FAILED AUTH failed")
    assert peer.is_closed()
    guarded.wait_for_log(
        r"WARNING: PROTOCOL\(V2\): \[127.0.0.1:\d+\] AUTH failed against http://\S+ - .+", after=logged
    )


# -- how long the answer is valid
# -------------------------------------------------------------------------------------


def wait_past_ttl() -> None:
    """Wait one second, the shortest ttl."""
    passed = time.monotonic() + 1.1
    wait_until(lambda: time.monotonic() > passed)


def test_an_answer_is_used_until_its_ttl_has_passed(server, guarded, connect) -> None:
    """The next publish asks again, with the secret of AUTH, and revoked permissions are gone."""
    server.allow({"topic": "^kept$|^lost$", "channels": [".*"], "permissions": ["publish"]}, ttl=1)
    peer = connect(guarded)
    assert peer.command(auth(b"the secret"))[0] == RESPONSE
    for _ in range(10):
        peer.ok(pub("kept"))
    peer.ok(pub("lost"))
    asked = len(server.requests)
    wait_past_ttl()
    server.allow({"topic": "^kept$", "channels": [".*"], "permissions": ["publish"]}, ttl=3600)
    peer.ok(pub("kept"))
    peer.ok(mpub("kept"))
    assert [parse_qs(urlsplit(path).query)["secret"] for _, path, _, _ in server.requests[asked:]] == [["the secret"]]
    assert peer.command(pub("lost"))[1] == b'E_UNAUTHORIZED AUTH failed for PUB on "lost" ""'


EACH = pytest.mark.parametrize(
    "command", [b"SUB t ch\n", pub("t"), dpub("t"), mpub("t")], ids=["SUB", "PUB", "DPUB", "MPUB"]
)


@EACH
@pytest.mark.parametrize("cut", [8, 1000])
def test_each_command_that_asks_again_is_then_carried_out(server, guarded, connect, command, cut) -> None:
    """However much of the command had arrived, and while others use the broker."""
    server.allow(EVERYTHING, ttl=1)
    peer, other = connect(guarded), connect(guarded)
    for client in (peer, other):
        assert client.command(auth())[0] == RESPONSE
    wait_past_ttl()
    server.gate.clear()
    server.asked.clear()
    peer.send(command[:cut])
    server.allow(EVERYTHING)
    assert guarded.request("POST", "/pub?topic=t", b"x" * 1000).text == "OK"
    other.send(b"NOP\n" * 1000)
    server.gate.set()
    peer.send(command[cut:])
    assert peer.frame() == (RESPONSE, b"OK")
    other.ok(pub("t", b"y" * 1000))


@EACH
def test_a_server_that_fails_later_ends_its_permissions(server, guarded, connect, command) -> None:
    """Nothing is permitted by an expired answer; a client without any permission left is refused."""
    for status, answer, error in (
        (500, b"", b"E_AUTH_FAILED AUTH failed"),
        (200, {"ttl": 9, "authorizations": []}, b"E_UNAUTHORIZED AUTH failed for "),
    ):
        server.status = 200
        server.allow(EVERYTHING, ttl=1)
        peer = connect(guarded)
        assert peer.command(auth())[0] == RESPONSE
        wait_past_ttl()
        server.status, server.answer = status, answer
        kind, data = peer.command(command)
        assert (kind, data[: len(error)]) == (ERROR, error)
        assert peer.is_closed()


def test_only_the_clients_own_commands_wait_for_the_auth_server(server, guarded, connect) -> None:
    """While the server computes its answer, messages are delivered, and other clients are served."""
    server.allow(EVERYTHING, ttl=1)
    peer, other = connect(guarded), connect(guarded)
    for client in (peer, other):
        assert client.command(auth())[0] == RESPONSE
    wait_past_ttl()
    other.ok(pub("order", b"0"))
    server.gate.clear()
    server.asked.clear()
    bodies = [b"%d" % number + b"x" * 5000 for number in range(1, 200)]
    peer.send(b"".join(pub("order", body) for body in bodies) + mpub("order") + b"SUB order ch\nRDY 500\n")
    assert server.asked.wait(DEADLINE_S)
    assert guarded.request("GET", "/ping").text == "OK"
    assert guarded.stats(topic="order")["topics"][0]["message_count"] == 1
    server.gate.set()
    for _ in range(len(bodies) + 2):
        assert peer.frame() == (RESPONSE, b"OK")
    assert [peer.message()[2] for _ in range(len(bodies) + 2)] == [b"0", *bodies, b"body"]


def test_a_client_that_leaves_while_authorizing_is_forgotten(server, guarded, connect) -> None:
    """The broker goes on."""
    server.allow(EVERYTHING, ttl=1)
    peer = connect(guarded)
    assert peer.command(auth())[0] == RESPONSE
    wait_past_ttl()
    server.gate.clear()
    server.asked.clear()
    logged = len(guarded.log)
    peer.send(pub("abandoned"))
    assert server.asked.wait(DEADLINE_S)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()  # by a reset
    server.gate.set()
    guarded.wait_for_log(r"PROTOCOL\(V2\): \[127.0.0.1:\d+\] closed", after=logged)
    assert guarded.request("GET", "/ping").text == "OK"


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="without epoll the next heartbeat notices")
def test_a_client_that_disconnects_while_authorizing_is_noticed_at_once(server, guarded, connect) -> None:
    """A reset is noticed although there is no heartbeat; a client that only shut down its sending side gets its
    answer."""
    server.gate.clear()
    leaving, staying = connect(guarded), connect(guarded)
    for client in (leaving, staying):
        client.ok(identify(heartbeat_interval=-1, feature_negotiation=False))
        server.asked.clear()
        client.send(auth())
        assert server.asked.wait(DEADLINE_S)
    staying.socket.shutdown(socket.SHUT_WR)
    logged = len(guarded.log)
    leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    leaving.socket.close()
    guarded.wait_for_log(r"PROTOCOL\(V2\): .* closed", after=logged)
    assert not [line for line in guarded.log[logged:] if "AUTH failed" in line], "it was the answer that showed it"
    server.gate.set()
    assert json.loads(staying.frame()[1])["permission_count"] == 1


def test_the_broker_stops_while_an_auth_server_is_queried(start_auth, start_broker, connect) -> None:
    """The broker stops at once, with exit status 0."""
    server = start_auth()
    server.gate.clear()
    broker = start_broker(f"--auth-http-address={server.address}")
    peer = connect(broker)
    peer.send(auth())
    assert server.asked.wait(DEADLINE_S)
    assert broker.terminate() == 0
    assert not [line for line in broker.log if "Traceback" in line or "ERROR" in line]


def test_a_running_subscription_is_not_checked_again(server, guarded, connect) -> None:
    """FIN and RDY ask the auth server nothing, as in nsqd."""
    server.allow(EVERYTHING, ttl=1)
    peer = connect(guarded)
    assert peer.command(auth())[0] == RESPONSE
    peer.ok(b"SUB running ch\n")
    peer.send(b"RDY 1\n")
    wait_past_ttl()
    server.allow()
    assert guarded.request("POST", "/pub?topic=running", b"body").text == "OK"
    message_id, _attempts, body = peer.message()
    assert body == b"body"
    peer.send(b"FIN " + message_id + b"\n")
    assert len(server.requests) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["ttl", "identity", "authorizations", "topic", "channels", "permissions", "TTL", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_answer_of_an_auth_server_is_parsed_or_refused(answer: Any) -> None:
    """Any JSON from an auth server gives a grant or BadGrant."""
    try:
        grant = read_grant(json.dumps(answer).encode())
    except BadGrant:
        return
    assert grant.ttl_s > 0
    assert grant.allows("topic", "") in (True, False)
