"""Pages, static files and websockets, for every caller, through Daphne: refused requests are audited.

The API has its own matrix (test_permissions.py); the two together cover every path that the web process serves.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from nsqplatform.accounts.models import AuditEntry
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.tokens import create_token
from tests.harness.waiting import DEADLINE_S, wait_until
from tests.platform.callers import CALLERS, Caller

pytestmark = pytest.mark.django_db(transaction=True)

PAGES = [
    "/",
    "/topics/orders",
    "/topics/orders/billing",
    "/nodes",
    "/counter",
    "/lookup",
    "/audit",
    "/people",
    "/account",
    "/masks",
    "/policies",
    "/dead",
    "/objectives",
    "/objectives/7",
]
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
SIGN_IN_FIRST = 4401


@pytest.fixture
def ask(web) -> Iterator[Callable[..., httpx.Response]]:
    with httpx.Client(base_url=web.base, trust_env=False, timeout=DEADLINE_S) as client:

        def request(method: str, path: str, caller: Caller, **headers: str) -> httpx.Response:
            # No cookie of one answer may help the next question.
            client.cookies.clear()
            return client.request(method, path, headers=caller.as_sent | {"Accept": "text/html"} | headers)

        yield request


# ---- pages


@pytest.mark.parametrize("name", CALLERS)
def test_pages_are_for_those_with_a_session(ask, callers, name):
    """Other callers are sent to the sign-in page, and pages change nothing."""
    caller = callers(name)
    for path in PAGES:
        answer = ask("GET", path, caller)
        if caller.user is not None and not caller.token:
            assert answer.status_code == 200, path
        else:
            assert (answer.status_code, answer.headers["Location"].partition("?")[0]) == (302, "/signin"), path
    assert ask("GET", "/signin", caller).status_code == 200
    for method, path in itertools.product(CHANGING, [*PAGES, "/signin"]):
        assert ask(method, path, caller).status_code in (403, 405), (method, path)
    assert ask("GET", "/nowhere", caller).status_code in ((404,) if caller.user and not caller.token else (302, 404))
    assert not AuditEntry.objects.exclude(outcome="refused").exists()


def test_a_page_of_a_session_without_its_csrf_token_is_refused_and_in_the_trail(ask, callers):
    """Another site's form would send the session cookie alone; it has no effect."""
    viewer = callers("viewer")
    session = Caller("viewer", viewer.user, {"Cookie": viewer.headers["Cookie"].partition(";")[0]})
    assert ask("POST", "/topics/orders", session).status_code == 403
    entry = AuditEntry.objects.get(outcome="refused")
    assert (entry.user, entry.subject) == ("viewer", "POST /topics/orders")


# ---- static files


@pytest.mark.parametrize("name", CALLERS)
def test_static_files_are_the_web_app_and_nothing_else(ask, callers, web, name):
    """They contain no data, so that the sign-in page can be shown; no path leads outside, and nobody can write to
    them."""
    caller = callers(name)
    shell = ask("GET", "/signin", caller).text
    script = next(word for word in shell.split('"') if word.startswith("/static/") and word.endswith(".js"))
    assert ask("GET", script, caller).status_code == 200
    for method in CHANGING:
        assert ask(method, script, caller).status_code in (403, 405), method
    for path in (
        "",
        "assets/",
        "nowhere.js",
        "..%2f..%2fplatform.sqlite3",
        "%2e%2e/secret_key",
        "assets/..%2f..%2f..%2fmanage.py",
    ):
        answer = ask("GET", f"/static/{path}", caller)
        assert answer.status_code in (302, 404), (path, answer.status_code)
        assert "SECRET" not in answer.text


# ---- websockets


def test_there_are_no_other_websockets():
    """A new one must be added here, with its permitted callers."""
    from nsqplatform.console.asgi import websockets

    assert {str(route.pattern) for route in websockets.routes} == {"ws/cluster", "ws/tail", ""}


@pytest.fixture
def opened(web) -> Callable[..., Any]:
    @contextmanager
    def open_socket(path: str, caller: Caller, **headers: str) -> Iterator[ClientConnection]:
        origin = headers.pop("Origin", web.base).replace("PORT", str(web.port)) or None
        with connect(
            f"ws://127.0.0.1:{web.port}{path}",
            origin=origin,  # type: ignore[arg-type]
            additional_headers=caller.as_sent | headers,
            proxy=None,
        ) as socket:
            yield socket

    return open_socket


def message_of(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of this type."""
    while True:
        message: dict[str, Any] = json.loads(socket.recv(timeout=DEADLINE_S))
        if message["type"] == kind:
            return message


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize("path", ["/ws/cluster", "/ws/tail"])
def test_a_websocket_stays_open_for_those_who_may_look(opened, callers, web, path, name):
    """A socket without permission is closed with a code of its own and no message, and this is logged."""
    caller = callers(name)
    logged = len(web.log)
    with opened(path, caller) as socket:
        if caller.may(Permission.VIEW):
            socket.send("nonsense")
            assert "expected" in message_of(socket, "error")["message"]
            return
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=DEADLINE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == SIGN_IN_FIRST
    refused = f"websocket {path}"
    wait_until(lambda: any(refused in line for line in web.log[logged:]), "the refusal is in the log")


@pytest.mark.parametrize("name", [name for name in CALLERS if name != "stranger"])
def test_messages_are_tailed_by_those_who_may_read_them(opened, callers, name):
    """Other callers get an error message and an audit entry; the socket stays open."""
    caller = callers(name)
    with opened("/ws/tail", caller) as socket:
        socket.send(json.dumps({"type": "start", "topic": "orders.eu"}))
        complaint = message_of(socket, "error")["message"]
        kept = list(
            AuditEntry.objects.filter(outcome="refused").values_list("user", "via", "action", "topic", "remote_address")
        )
        if caller.may(Permission.READ):
            assert "may not" not in complaint  # there is no such topic, or no cluster
            assert kept == []
        else:
            via = "token script" if caller.token else "session"
            assert "may not read messages" in complaint
            assert kept == [(caller.user.username, via, "tail", "orders.eu", "127.0.0.1")]
        socket.send("nonsense")
        assert message_of(socket, "error")


@pytest.mark.parametrize("path", ["/ws/cluster", "/ws/tail", "/ws/nowhere"])
@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "http://evil.example:PORT", "null", "http://localhost.evil.example"),
        *("http://127.0.0.1:1", "http://127.0.0.1", "https://127.0.0.1", "http://localhost:PORT"),
    ],
)
def test_another_sites_page_opens_no_websocket(opened, callers, web, path, origin):
    """Its visitor is signed in here, and the trail says what was tried. Another port of this host is another site."""
    with pytest.raises(InvalidStatus) as refused, opened(path, callers("admin"), Origin=origin):
        pass
    assert refused.value.response.status_code == 403
    entry = AuditEntry.objects.get(outcome="refused")
    tried = origin.replace("PORT", str(web.port))
    assert (entry.subject, entry.detail) == (f"websocket {path}", f"another site: {tried}")


@pytest.mark.parametrize("caller", ["admin", "stranger"])
def test_a_websocket_that_does_not_exist_is_refused(opened, callers, caller):
    """Whoever asks for it."""
    with pytest.raises(InvalidStatus) as refused, opened("/ws/nowhere", callers(caller)):
        pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("path", ["/ws/cluster", "/ws/tail"])
def test_a_request_without_an_origin_opens_a_websocket_only_with_a_token(opened, callers, account, path):
    """A script sends none; a browser always does, and never a token by itself."""
    with pytest.raises(InvalidStatus) as refused, opened(path, callers("admin"), Origin=""):
        pass
    assert refused.value.response.status_code == 403
    token = create_token(user=account("viewer"), name="script")
    with opened(path, callers("stranger"), Origin="", Authorization=f"Bearer {token}") as socket:
        socket.send("nonsense")
        assert "expected" in message_of(socket, "error")["message"]


@pytest.mark.parametrize("path", ["/ws/cluster", "/ws/tail"])
def test_a_token_that_is_refused_opens_no_websocket_for_the_cookie_beside_it(opened, callers, path):
    """The cookie may be another user's; the API refuses such a request too."""
    with opened(path, callers("admin"), Authorization="Bearer nsq_unknown") as socket:
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=DEADLINE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == SIGN_IN_FIRST


@pytest.mark.parametrize("path", ["/ws/cluster", "/ws/tail"])
def test_a_websocket_takes_no_message_however_long(opened, callers, path):
    """It is closed at a megabyte; a shorter message that is still too long is answered with an error."""
    with opened(path, callers("admin")) as socket:
        kind = "view" if path == "/ws/cluster" else "start"
        socket.send(json.dumps({"type": kind, "topic": "x" * 20_000}))
        assert "topic" in message_of(socket, "error")["message"]
        socket.send("x" * 2_000_000)
        with pytest.raises(ConnectionClosed):
            message_of(socket, "none but a close")
