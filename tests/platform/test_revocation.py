"""Open websockets end with the session, token, password or account that opened them, without waiting for a message."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from django.db import OperationalError, connection
from django.utils import timezone
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from nsqplatform.accounts.models import ApiToken, Session, User
from nsqplatform.cluster import store
from nsqplatform.cluster.live import subscribers as live_subscribers
from nsqplatform.cluster.live.broadcast import packed, unpacked
from nsqplatform.cluster.live.signed_in_socket import NOT_ALLOWED, REVOKED_WITHIN_S, SIGN_IN_FIRST, SignedInSocket
from nsqplatform.cluster.live.subscribers import Subscribers, subscribers
from tests.database import url_of
from tests.harness.redis import running_redis
from tests.harness.waiting import DEADLINE_S
from tests.platform.callers import Caller
from tests.platform.conftest import PASSWORD, Web

pytestmark = pytest.mark.django_db(transaction=True)

NEW_PASSWORD = "another horse battery staple"


@pytest.fixture(autouse=True)
def hashes_of_the_web_process(settings: Any) -> None:
    """The tests' own password hashes are fast, and unknown to the web process."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]


def call(web: Web, caller: Caller, method: str, path: str, body: Any = None) -> None:
    """One request to the API, as the web app sends it."""
    answer = httpx.request(
        method, f"{web.base}/api/v1/{path}", json=body, headers=caller.as_sent, timeout=DEADLINE_S, trust_env=False
    )
    assert answer.is_success, answer.text


@contextmanager
def opened(web: Web, path: str, caller: Caller) -> Iterator[ClientConnection]:
    """A websocket that has answered, so its user was accepted."""
    with connect(
        f"ws://127.0.0.1:{web.port}{path}",
        origin=web.base,  # type: ignore[arg-type]
        additional_headers=caller.as_sent,
        proxy=None,
    ) as socket:
        socket.send("nonsense")
        assert answers(socket)
        yield socket


def answers(socket: ClientConnection) -> bool:
    return bool(json.loads(socket.recv(timeout=DEADLINE_S))["type"] == "error")


def close_code(socket: ClientConnection) -> int | None:
    """Wait for the server to close it; nothing is sent meanwhile."""
    with pytest.raises(ConnectionClosed) as closed:
        socket.recv(timeout=DEADLINE_S)
    return closed.value.rcvd.code if closed.value.rcvd else None


def another_session(caller: Caller) -> Caller:
    """The same person in another browser."""
    from django.test import Client

    client = Client()
    client.force_login(caller.user)
    secret = "b" * 32
    cookie = f"sessionid={client.cookies['sessionid'].value}; csrftoken={secret}"
    return Caller(caller.name, caller.user, {"Cookie": cookie, "X_CSRFToken": secret})


def account_closed(web: Web, person: Caller, admin: Caller) -> None:
    call(web, admin, "PATCH", f"people/{person.user.pk}", {"is_active": False})


def signed_out_by_an_admin(web: Web, person: Caller, admin: Caller) -> None:
    call(web, admin, "DELETE", f"people/{person.user.pk}/sessions")


def signed_out(web: Web, person: Caller, admin: Caller) -> None:
    call(web, person, "DELETE", "session")


def signed_out_elsewhere(web: Web, person: Caller, admin: Caller) -> None:
    call(web, another_session(person), "DELETE", "account/sessions")


def password_changed_elsewhere(web: Web, person: Caller, admin: Caller) -> None:
    body = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    call(web, another_session(person), "PUT", "account/password", body)


def password_set_by_a_command(web: Web, person: Caller, admin: Caller) -> None:
    user = User.objects.get(pk=person.user.pk)  # what `manage.py changepassword` does
    user.set_password(NEW_PASSWORD)
    user.save()


@pytest.mark.parametrize("path", ["/ws/cluster", "/ws/tail"])
@pytest.mark.parametrize(
    "revoke",
    [
        account_closed,
        signed_out_by_an_admin,
        signed_out,
        signed_out_elsewhere,
        password_changed_elsewhere,
        password_set_by_a_command,
    ],
)
def test_an_open_socket_ends_when_its_session_does(
    web: Web, callers: Callable[[str], Caller], path: str, revoke: Callable[[Web, Caller, Caller], None]
) -> None:
    """The server closes it at once, even while nothing happens in the cluster; feeds of others stay open."""
    person, admin = callers("operator"), callers("admin")
    with opened(web, path, person) as socket, opened(web, path, admin) as other:
        revoke(web, person, admin)
        assert close_code(socket) == SIGN_IN_FIRST
        other.send("nonsense")
        assert answers(other)


@pytest.mark.parametrize("path", ["/ws/cluster", "/ws/tail"])
def test_an_open_socket_ends_when_its_token_is_revoked(web: Web, callers: Callable[[str], Caller], path: str) -> None:
    """A script's socket ends; the owner's session continues."""
    script = callers("operator's token")
    owner = another_session(script)
    with opened(web, path, script) as socket, opened(web, path, owner) as session:
        call(web, owner, "DELETE", f"account/tokens/{ApiToken.objects.get().pk}")
        assert close_code(socket) == SIGN_IN_FIRST
        session.send("nonsense")
        assert answers(session)


@pytest.mark.parametrize("path", ["/ws/cluster", "/ws/tail"])
def test_an_open_socket_ends_with_its_account_while_redis_is_down(
    path: str, callers: Callable[[str], Caller], start_web: Callable[..., Web], tmp_path: Path, redis: Any
) -> None:
    """Nothing is published then; feeds of others stay open."""
    person, admin = callers("operator"), callers("admin")
    with TemporaryDirectory(prefix="nsq-", dir="/tmp") as folder:  # the path of a socket must be short
        url = f"unix://{folder}/redis.sock"
        with running_redis(url, tmp_path):
            web = start_web(DATABASE_URL=url_of(connection.settings_dict), REDIS_URL=url)
            sockets = ExitStack()
            socket, other = (sockets.enter_context(opened(web, path, caller)) for caller in (person, admin))
        with sockets:
            stored = User.objects.filter(pk=person.user.pk)
            for role in ("viewer", "operator"):  # the first change may be found by the check after Redis was reached
                stored.update(role=role)
                assert json.loads(socket.recv(timeout=DEADLINE_S)) == {"type": "account"}
            stored.update(is_active=False)
            assert close_code(socket) == SIGN_IN_FIRST
            other.send('{"type":"nonsense"}')
            assert answers(other)


def test_an_open_socket_of_a_cluster_ends_with_the_role_in_it(
    callers: Callable[[str], Caller], start_web: Callable[..., Web], tmp_path: Path
) -> None:
    """Those of the same person in another cluster stay open."""
    file = tmp_path / "clusters.toml"
    file.write_text('[clusters.berlin]\ntitle = "Berlin"\nlookupd_http_addresses = ["127.0.0.1:9"]\n')
    person, admin = callers("viewer"), callers("admin")
    web = start_web(DATABASE_URL=url_of(connection.settings_dict), NSQ_CLUSTERS=str(file))
    for path in ("/ws/cluster", "/ws/tail"):
        call(web, admin, "PATCH", f"people/{person.user.pk}", {"cluster_roles": {}})
        with opened(web, f"/c/berlin{path}", person) as berlin, opened(web, path, person) as default:
            role = {"berlin": {"role": "none", "topic_patterns": []}}
            call(web, admin, "PATCH", f"people/{person.user.pk}", {"cluster_roles": role})
            assert close_code(berlin) == NOT_ALLOWED
            default.send("nonsense")
            assert answers(default)


def test_a_change_without_loss_of_permission_ends_no_feed(web: Web, callers: Callable[[str], Caller]) -> None:
    """An account that becomes a viewer still sees the cluster."""
    person, admin = callers("operator"), callers("admin")
    with opened(web, "/ws/cluster", person) as socket:
        call(web, admin, "PATCH", f"people/{person.user.pk}", {"role": "viewer"})
        assert json.loads(socket.recv(timeout=DEADLINE_S)) == {"type": "account"}
        socket.send("nonsense")
        assert answers(socket)


def test_a_change_of_the_topics_of_an_operator_is_announced(web: Web, callers: Callable[[str], Caller]) -> None:
    """The open page then requests what it may offer; a change without effect on rights is not announced."""
    person, admin = callers("operator"), callers("admin")
    with opened(web, "/ws/cluster", person) as socket:
        call(web, admin, "PATCH", f"people/{person.user.pk}", {"role": "operator"})
        call(web, admin, "PATCH", f"people/{person.user.pk}", {"topic_patterns": ["orders*"]})
        assert json.loads(socket.recv(timeout=DEADLINE_S)) == {"type": "account"}
        socket.send("nonsense")
        assert answers(socket)


def test_a_sign_in_announces_no_expired_sessions(browser, account, redis) -> None:
    """It deletes them, and the feeds of their accounts are not checked for that."""
    signed_in = account("viewer")
    away = account("operator")
    for number in range(3):
        Session.objects.create(
            session_key=f"expired-{number}", user=away, expire_date=timezone.now() - timedelta(seconds=1)
        )
    received = redis.pubsub()
    received.subscribe(store.LIVE())
    browser().sign_in("viewer")
    redis.publish(store.LIVE(), packed([("end", {"type": "end"})]))
    announced = []
    while not announced or announced[-1]["type"] != "end":
        message = received.get_message(ignore_subscribe_messages=True, timeout=DEADLINE_S)
        if message is not None:
            announced += [json.loads(envelope.text) for envelope in unpacked(message["data"])]
    received.close()
    assert not Session.objects.filter(user=away).exists()
    assert {each["user_id"] for each in announced[:-1]} <= {signed_in.pk}


async def test_a_websocket_that_failed_is_not_checked_at_later_changes(monkeypatch):
    """A handler that raises ends its websocket without a disconnect; nothing of it is kept."""
    monkeypatch.setattr(subscribers(), "_start", lambda: None)  # its tasks would outlive the test

    class Failing(SignedInSocket):
        channel_layer_alias = ""

        async def connect(self) -> None:
            raise OperationalError("the database is locked")

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    before = set(subscribers()._account_listeners)
    with pytest.raises(OperationalError):
        await Failing()({"type": "websocket", "path": "/ws/cluster"}, receive, send)
    assert subscribers()._account_listeners == before


# ---- how long it takes at most


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on to the next timer as soon as nothing else is left to do."""

    at = 0.0

    def time(self) -> float:
        return self.at

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.at = max(self.at, self._scheduled[0].when())
        super()._run_once()


class FakeRedis:
    """Answers in these periods, each from a time to another. In between, a subscription is silent, and a new one takes
    ``fails_after_s`` until it fails."""

    def __init__(self, periods: Sequence[tuple[float, float]], fails_after_s: float) -> None:
        self.periods = periods
        self.fails_after_s = fails_after_s

    def answers(self) -> bool:
        now = asyncio.get_running_loop().time()
        return any(begins <= now < ends for begins, ends in self.periods)

    def from_url(self, *arguments: Any, **options: Any) -> FakeRedis:
        return self

    def pubsub(self, **options: Any) -> FakeRedis:
        return self

    async def __aenter__(self) -> FakeRedis:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def subscribe(self, *channels: str) -> None:
        if not self.answers():
            await asyncio.sleep(self.fails_after_s)
            raise ConnectionError("there is no answer")
        self.pinged = False

    async def ping(self) -> None:
        self.pinged = True

    async def get_message(self, timeout: float) -> dict[str, str] | None:
        if self.pinged and self.answers():
            self.pinged = False
            return {"type": "pong"}
        await asyncio.sleep(timeout)
        return None


@pytest.mark.parametrize("fails_after_s", [0.0, 127.0], ids=["refused", "no route"])
@pytest.mark.parametrize("seed", range(10))
def test_a_revocation_waits_at_most_five_seconds_when_redis_is_lost(
    seed: int, fails_after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any moment at which nothing can be published, each open socket is checked within the promised time."""
    assert REVOKED_WITHIN_S <= 5
    chance = random.Random(seed)
    lost = 10 + 10 * chance.random()
    back = lost + 20 + 10 * chance.random()
    monkeypatch.setattr(live_subscribers, "Redis", FakeRedis([(0.0, lost), (back, math.inf)], fails_after_s))
    checks: list[float] = []

    class Feed(SignedInSocket):
        async def check_sign_in(self) -> bool:
            checks.append(asyncio.get_running_loop().time())
            return True

    async def opened_until(end: float) -> None:
        listening = Subscribers()
        feed = Feed()
        listening.listen_to_accounts(feed._account_changed)
        await asyncio.sleep(end)
        for task in listening._tasks:
            task.cancel()

    loop = VirtualTime()
    loop.run_until_complete(opened_until(back + 20))
    loop.close()
    moments = [lost, *(check for check in checks if lost <= check < back), back]
    waits = [min((check for check in checks if check > moment), default=math.inf) - moment for moment in moments]
    assert max(waits) <= REVOKED_WITHIN_S
    assert [check for check in checks if 5 < check < lost] == []
