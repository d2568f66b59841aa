"""Where webhooks may be sent: what the settings say of the address that is really connected to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from nsqplatform import outbound
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.nsqadmin.settings import from_environment
from tests.platform.receivers import Receiver

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    hook = Receiver()
    yield hook
    hook.stop()


@pytest.fixture
def admin(browser: Any, account: Any) -> Any:
    client = browser()
    account("admin")
    client.sign_in("admin")
    return client


@pytest.fixture
def send_test(admin: Any) -> Any:
    """Makes a notifier of an address, sends its test, and returns the error that the page shows."""

    def send(url: str) -> str:
        made = admin.request("POST", "alerts/notifiers", {"name": url[:60], "kind": "webhook", "url": url})
        assert made.status_code == 201, made.content
        answer = admin.request("POST", f"alerts/notifiers/{made.json()['id']}/test", {}).json()
        assert answer["delivered"] is (answer["error"] == "")
        return str(answer["error"])

    return send


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"),
        *("10.0.0.7", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "[fe80::1]", "[fd00:ec2::254]"),
        *("224.0.0.1", "255.255.255.255", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
        *("192.0.0.192", "168.63.129.16", "[64:ff9b:1::7f00:1]", "[fec0::1]", "[::7f00:1]", "[::ffff:0:7f00:1]"),
    ],
)
def test_a_private_address_is_refused_by_default(send_test, receiver, nsqadmin_settings, host):
    """Loopback, private, link-local and metadata addresses, however they are written; nothing is connected to."""
    nsqadmin_settings(webhook_allow=())
    assert "has no public address; NSQADMIN_WEBHOOK_ALLOW can permit it" in send_test(
        f"http://{host}:{receiver.port}/hook"
    )
    assert receiver.bodies == []


@pytest.mark.parametrize(
    ("allow", "deny", "delivered"),
    [
        (["127.0.0.0/8"], [], True),
        (["127.0.0.1"], [], True),
        (["::/0"], [], False),
        (["localhost"], [], True),
        (["LOCAL*"], [], True),
        (["*.example.org"], [], False),
        ([], ["127.0.0.0/8"], False),
        ([], ["localhost"], False),
        (["127.0.0.1"], ["0.0.0.0/0", "::/0"], True),
        (["localhost"], ["127.0.0.0/8", "::1"], True),
    ],
)
def test_the_lists_decide_on_networks_and_names(send_test, receiver, nsqadmin_settings, allow, deny, delivered):
    """What is allowed is not refused; so denying everything and allowing some permits these only."""
    nsqadmin_settings(webhook_allow=tuple(allow), webhook_deny=tuple(deny))
    error = send_test(f"http://localhost:{receiver.port}/hook")
    assert (error == "", len(receiver.bodies)) == (delivered, int(delivered))
    if deny and not delivered:
        assert error == "not sent: --webhook-deny excludes localhost"


def test_a_name_that_resolves_differently_the_next_time_leads_nowhere_else(
    send_test, receiver, nsqadmin_settings, monkeypatch
):
    """The connection is made to the address that was checked."""
    nsqadmin_settings(webhook_allow=("127.0.0.2",))
    resolve = socket.getaddrinfo
    answers = iter(["127.0.0.2"])

    def rebinding(host: Any, *args: Any, **kwargs: Any) -> Any:
        named = host in ("hook.example.org", b"hook.example.org")
        return resolve(next(answers, "127.0.0.1") if named else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    assert send_test(f"http://hook.example.org:{receiver.port}/hook") == "connection refused"
    assert receiver.bodies == []


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts HTTP servers with a given answer: status, headers and body; with TLS for the name ``localhost``."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, body: bytes = b"", *, tls: bool = False, **headers: str) -> tuple[int, list[str]]:
        hosts: list[str] = []

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                hosts.append(self.headers["Host"])
                self.send_response(status, "internal phrase")
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        if tls:
            authority = trustme.CA()
            authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("localhost").configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server.server_port, hosts

    yield start
    for each in servers:
        each.shutdown()
        each.server_close()


def test_a_redirect_is_not_followed(send_test, receiver, server):
    """Not even to an address that is allowed; the page shows the status."""
    port, _ = server(307, Location=receiver.url)
    assert send_test(f"http://127.0.0.1:{port}/hook") == "answers 307 Temporary Redirect"
    assert receiver.bodies == []


def test_a_reply_is_not_shown(send_test, server, admin):
    """Neither on the page nor in the audit trail: it may be of a server that only the platform can reach."""
    port, _ = server(500, b"AWS_SECRET=hunter2")
    assert send_test(f"http://127.0.0.1:{port}/hook") == "answers 500 Internal Server Error"
    shown = admin.request("GET", "alerts/notifiers").content.decode() + str(list(AuditEntry.objects.values()))
    assert "hunter2" not in shown
    assert "internal phrase" not in shown


def test_the_certificate_and_the_host_header_are_of_the_name(send_test, server):
    """Though the connection is made to a number."""
    port, hosts = server(200, tls=True)
    assert send_test(f"https://localhost:{port}/hook") == ""
    assert hosts == [f"localhost:{port}"]


@pytest.mark.parametrize("denied", [True, False])
def test_a_denied_name_is_refused_although_only_the_proxy_can_resolve_it(
    send_test, receiver, nsqadmin_settings, monkeypatch, denied
):
    """Networks cannot be checked then; names can."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{receiver.port}")
    nsqadmin_settings(webhook_allow=(), webhook_deny=("*.corp.invalid",) if denied else ())
    error = send_test("http://hooks.corp.invalid/hook")
    assert error == ("not sent: --webhook-deny excludes hooks.corp.invalid" if denied else "")
    assert len(receiver.bodies) == (0 if denied else 1)


def test_an_answer_that_trickles_ends_at_the_deadline(send_test, monkeypatch):
    """Each byte arrives in time, and the answer does not."""
    monkeypatch.setattr(outbound, "TIMEOUT_S", 1.0)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def trickle() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not over.wait(0.1):
                    connection.sendall(b"x")

        answering = threading.Thread(target=trickle)
        answering.start()
        try:
            assert send_test(f"http://127.0.0.1:{listening.getsockname()[1]}/hook") == "does not answer in time"
        finally:
            over.set()
            answering.join()


@pytest.mark.parametrize("entry", ["10.0.0.0/99", "http://example.org", "a b"])
def test_an_invalid_list_ends_the_start(entry):
    """With the name of the variable; that of the flag if it is one."""
    with pytest.raises(ValueError, match=r"NSQADMIN_WEBHOOK_DENY: .* is neither a network nor a host name"):
        from_environment({"NSQADMIN_WEBHOOK_DENY": entry})
