"""``/ws/cluster``, through Daphne: a whole snapshot once, then a delta every second."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from django.test import Client
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.harness.waiting import DEADLINE_S, wait_until
from tests.platform.browser import Browser
from tests.platform.socket_messages import checked

pytestmark = pytest.mark.django_db(transaction=True)

Join = Callable[..., Any]


class Live(Browser):
    """A browser's socket, and the snapshot that it builds from the messages."""

    def __init__(self, socket: ClientConnection) -> None:
        super().__init__()
        self.socket = socket

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def next(self, *kinds: str, within_s: float = DEADLINE_S) -> dict[str, Any]:
        """The next message of one of these types; those before it are applied."""
        deadline = time.monotonic() + within_s
        while True:
            message = json.loads(self.socket.recv(timeout=max(0.01, deadline - time.monotonic())))
            self.take(message)
            if message["type"] in kinds:
                return message


@pytest.fixture
def session(web, account) -> str:
    """The cookie of a signed-in viewer."""
    client = Client()
    client.force_login(account("viewer"))
    return f"sessionid={client.cookies['sessionid'].value}"


@pytest.fixture
def join(web, session) -> Join:
    """Opens sockets, with the session's cookie by default."""

    @contextmanager
    def open_socket(
        cookie: str | None = session, origin: str | None = None, sock: Any = None, query: str = "", **headers: str
    ) -> Iterator[Live]:
        with connect(
            f"ws://127.0.0.1:{web.port}/ws/cluster{query}",
            origin=origin or web.base,  # type: ignore[arg-type]
            additional_headers=headers | ({"Cookie": cookie} if cookie else {}),
            proxy=None,
            sock=sock,
            max_size=None,
        ) as opened:
            yield Live(opened)

    return open_socket


def test_a_browser_gets_the_snapshot_and_then_its_deltas(go_cluster, collect, snapshot, join):
    """Its snapshot equals the collector's."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5)
    collect()
    wait_until(lambda: snapshot() and snapshot()["channels"], "a snapshot with the channel")
    with join() as live:
        live.next("snapshot")
        assert live.rows["channels"]["orders/billing"]["depth"] == 5
        alpha.channel("orders", "billing", depth=6)
        beta.topic("returns", depth=1)
        while live.rows["channels"]["orders/billing"]["depth"] != 6 or "returns" not in live.rows["topics"]:
            live.next("delta")
        del beta.topics["returns"]
        while "returns" in live.rows["topics"]:
            live.next("delta")
        held = wait_until(
            lambda: live.next("delta") and (found := snapshot())["version"] == live.version and found, "both level"
        )
        shared = {name: row["nodes"] for name, row in live.rows["topics"].items()}
        assert live.rows["topics"] == {row["name"]: row | {"nodes": shared[row["name"]]} for row in held["topics"]}
        assert live.rows["nodes"] == {row["id"]: row for row in held["nodes"]}
        assert set(live.rows["nodes"]) == {alpha.address, beta.address}


def test_messages_are_as_the_openapi_document_declares_them(go_cluster, collect, snapshot, join):
    """The web app's types are generated from it."""
    go_cluster.nodes[0].channel("orders", "billing", depth=5)
    collect()
    wait_until(lambda: snapshot() and snapshot()["channels"], "a snapshot with the channel")
    with join() as live:
        live.send(type="explode")
        live.send(type="watch", topic="orders", channel="billing")
        live.send(type="view", topic="orders")
        live.send(type="rest")
        seen = set()
        while seen != {"snapshot", "rest", "delta", "clients", "error"}:
            seen.add(checked("ClusterMessage", live.socket.recv(timeout=DEADLINE_S))["type"])


def test_a_browser_that_connects_before_the_first_snapshot_gets_it_later(go_cluster, collect, join):
    """No reload is needed after a start of the cluster."""
    go_cluster.nodes[0].topic("orders")
    with join() as live:
        collect()
        live.next("snapshot", "delta")
        while "orders" not in live.rows["topics"]:
            live.next("delta")


def test_a_page_of_one_topic_receives_it_first_and_the_others_on_request(go_cluster, collect, snapshot, join):
    """Its address names the topic. The others come as ``rest``, and the deltas of the topic go on."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5)
    beta.topic("returns", depth=1)
    collect()
    wait_until(lambda: snapshot() and len(snapshot()["topics"]) == 2, "a snapshot with both topics")
    with join(query="?topic=orders") as live:
        first = live.next("snapshot")
        assert first["view"] == {"topic": "orders"}
        assert list(live.rows["topics"]) == ["orders"]
        live.send(type="rest")
        rest = live.next("rest")
        assert sorted(rest["topics"]["name"]) == ["orders", "returns"]
        assert rest["version"] >= first["version"]
        alpha.channel("orders", "billing", depth=6)
        while live.rows["channels"]["orders/billing"]["depth"] != 6:
            live.next("delta")


@pytest.mark.parametrize("query", ["?topic=orders&node=a:1", f"?topic={'t' * 301}"])
def test_an_address_with_an_invalid_view_is_answered_with_everything(go_cluster, collect, snapshot, join, query):
    """And with an error that says what a view is."""
    go_cluster.nodes[0].topic("orders")
    collect()
    wait_until(lambda: snapshot() and snapshot()["topics"], "a snapshot with the topic")
    with join(query=query) as live:
        assert "view takes the name of a topic" in live.next("error")["message"]
        assert live.next("snapshot")["view"] == {}


def test_deltas_contain_only_changes(go_cluster, collect, snapshot, join):
    """A cluster without traffic costs a browser a few bytes a second."""
    for number in range(50):
        go_cluster.nodes[0].channel(f"topic-{number}", "archive")
    collect()
    wait_until(lambda: (snapshot() or {}).get("version", 0) > 2, "rates have settled")
    with join() as live:
        live.next("snapshot")
        live.next("delta")
        delta = live.next("delta")
        assert delta["channels"] == delta["topics"] == delta["nodes"] == {"put": {}, "set": {}, "drop": []}
        go_cluster.nodes[0].topic("topic-7", depth=1)
        while not delta["topics"]["set"]:
            delta = live.socket.recv(timeout=DEADLINE_S)
            delta = json.loads(delta)
        assert delta["topics"]["set"] == {"keys": ["topic-7"], "depth": [1]}


def test_resync_returns_the_whole_snapshot(go_cluster, collect, snapshot, join):
    """For a browser that was suspended."""
    go_cluster.nodes[0].topic("orders")
    collect()
    wait_until(lambda: snapshot() and snapshot()["topics"], "a snapshot")
    with join() as live:
        live.next("snapshot")
        live.send(type="resync")
        assert live.next("snapshot")["topics"]["name"] == ["orders"]
        live.next("delta")


def test_a_browser_that_missed_a_delta_is_sent_the_whole_snapshot(go_cluster, collect, snapshot, join, web, redis):
    """Whatever was lost on the way, the browser's snapshot is right again one poll later."""
    collect()
    wait_until(lambda: snapshot(), "a snapshot")
    with join() as live:
        live.next("delta")
        # The browser's process loses its subscription, and messages until it has the next one.
        web.process.send_signal(signal.SIGSTOP)
        try:
            redis.client_kill_filter(_type="pubsub")
            version = snapshot()["version"]
            wait_until(lambda: snapshot()["version"] >= version + 3, "three polls")
        finally:
            web.process.send_signal(signal.SIGCONT)
        assert live.next("snapshot")["version"] > version
        live.next("delta")


def test_an_emptied_redis_receives_the_watched_views_again(go_cluster, collect, snapshot, join, redis):
    """A browser on a topic's page continues to receive it, without reconnecting."""
    go_cluster.nodes[0].topic("orders")
    collect()
    wait_until(lambda: snapshot() and snapshot()["topics"], "a snapshot")
    with join() as live:
        live.send(type="view", topic="orders")
        while live.next("snapshot")["view"] != {"topic": "orders"}:
            pass
        redis.flushall()
        wait_until(lambda: redis.zcard("nsq:views"), "what is looked at stands in Redis again")
        live.next("delta")


def test_watching_a_channel_shows_its_clients_each_second(go_cluster, collect, snapshot, join):
    """From all nodes, until the browser watches something else."""
    alpha, beta = go_cluster.nodes
    client = {
        "client_id": "c1",
        "hostname": "h1",
        "user_agent": "go-nsq/1.1.0",
        "state": 3,
        "ready_count": 5,
        "tls": True,
    }
    connected_at = int(time.time()) - 100
    alpha.channel("orders", "billing", clients=[client | {"connect_ts": connected_at}])
    beta.channel("orders", "billing", clients=[client | {"client_id": "c2"}])
    collect()
    wait_until(lambda: snapshot() and snapshot()["channels"], "a snapshot")
    with join() as live:
        live.send(type="watch", topic="orders", channel="billing")
        message = live.next("clients")
        while len(message["clients"]) < 2:
            message = live.next("clients")
        assert (message["topic"], message["channel"]) == ("orders", "billing")
        by_node = {each["node"]: each for each in message["clients"]}
        assert (by_node[alpha.address]["client_id"], by_node[beta.address]["client_id"]) == ("c1", "c2")
        assert 100 <= by_node[alpha.address]["connected_s"] <= time.time() - connected_at
        assert (by_node[alpha.address]["ready_count"], by_node[alpha.address]["tls"]) == (5, True)
        live.next("clients")
        live.send(type="unwatch")
        live.send(type="resync")
        live.next("snapshot")
        kinds = {live.next("delta", "clients")["type"] for _ in range(3)}
        assert kinds == {"delta"}


def whole_snapshot(version: int, nodes: dict[str, Any] | None = None) -> dict[str, Any]:
    """A snapshot of the collector that contains only ``nodes``."""
    message = {"type": "snapshot", "version": version, "taken_at": version, "view": {}}
    return message | {"nodes": nodes or {}, "topics": {}, "channels": {}}


def test_a_browser_that_does_not_read_costs_the_platform_little(join, web, redis):
    """Messages for which it is too slow are dropped; when it reads again, it is sent the newest snapshot."""
    from nsqplatform.cluster.live.broadcast import broadcast
    from nsqplatform.cluster.snapshots.snapshot import EVERYTHING

    same: dict[str, Any] = {"put": {}, "set": {}, "drop": []}

    def poll(version: int, padding: int = 0) -> None:
        redis.set("nsq:snapshot", json.dumps(whole_snapshot(version)))
        changes = same | {"put": {"id": ["x" * padding]}} if padding else same
        delta = whole_snapshot(version) | {"nodes": changes, "topics": same, "channels": same}
        broadcast(EVERYTHING.group, delta | {"type": "delta", "base": version - 1})

    redis.set("nsq:snapshot", json.dumps(whole_snapshot(0)))
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    narrow.connect(("127.0.0.1", web.port))
    polls = 2_000
    later = itertools.count(polls + 1)
    with join(sock=narrow) as live:
        assert live.next("snapshot")["version"] == 0
        for version in range(1, polls + 1):
            poll(version, padding=20_000)
        received = []
        while live.version <= polls:
            try:
                received.append(live.next("delta", "snapshot", within_s=2)["type"])
            except TimeoutError:
                poll(next(later))  # a browser that missed messages gets the snapshot at the next poll
        assert len(received) < polls * 0.8, "it was kept waiting for everything"
        assert "snapshot" in received
        live.send(type="nonsense")
        assert live.next("error")


def test_browsers_that_look_at_many_topics_miss_nothing(join, web, redis):
    """A poll has a delta for each watched topic; a web process that is busy meanwhile receives all of them."""
    from nsqplatform.cluster.live.broadcast import broadcast
    from nsqplatform.cluster.snapshots.snapshot import View

    same: dict[str, Any] = {"put": {}, "set": {}, "drop": []}
    redis.set("nsq:snapshot", json.dumps(whole_snapshot(1)))
    views = [View(topic=f"topic-{number}") for number in range(60)]
    with ExitStack() as opened:
        browsers = [opened.enter_context(join()) for _ in views]
        for live, view in zip(browsers, views, strict=True):
            live.send(type="view", topic=view.topic)
            while live.next("snapshot")["view"] != view.fields():
                pass
        redis.set("nsq:snapshot", json.dumps(whole_snapshot(2)))
        web.process.send_signal(signal.SIGSTOP)
        try:
            for view in views:
                delta = {"type": "delta", "version": 2, "base": 1, "taken_at": 2}
                broadcast(view.group, delta | {"nodes": same, "topics": same, "channels": same})
        finally:
            web.process.send_signal(signal.SIGCONT)
        assert {live.next("delta", "snapshot")["type"] for live in browsers} == {"delta"}


def test_a_silent_collector_ends_no_websocket(join):
    """While it restarts, or another one takes over, browsers stay connected, so they do not all reconnect at once."""
    from nsqplatform.cluster.live.broadcast import CLUSTER, broadcast

    with join() as live:
        live.send(type="nonsense")
        live.next("error")
        with pytest.raises(TimeoutError):
            live.next("run", within_s=7)  # longer than the channel layer waits at a time
        broadcast(CLUSTER, {"type": "run", "run": {"id": 1}})
        assert live.next("run")["run"] == {"id": 1}


def test_a_large_snapshot_reaches_the_browser(join, redis):
    """Thousands of channels take more than a megabyte, which is the limit of a browser's message."""
    node = {"id": ["n:1"], "hostname": ["h" * 3_000_000]}
    redis.set("nsq:snapshot", json.dumps(whole_snapshot(3, nodes=node)))
    with join() as live:
        assert live.next("snapshot")["nodes"]["hostname"] == node["hostname"]
        live.socket.send("x" * 2_000_000)
        with pytest.raises(ConnectionClosed):
            live.next("error")


def test_reports_reach_every_browser(join, web):
    """Any process may send all browsers a message, as reports do with their progress."""
    from nsqplatform.cluster.live.broadcast import CLUSTER, broadcast

    with join() as one, join() as other:
        for live in (one, other):
            live.send(type="nonsense")  # the answer shows that the socket is ready
            live.next("error")
        broadcast(CLUSTER, {"type": "run", "run": {"id": 7, "progress": 0.5}})
        for live in (one, other):
            assert live.next("run")["run"] == {"id": 7, "progress": 0.5}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("not json", "resync"),
        ("[]", "resync"),
        ('{"type":"explode"}', "explode"),
        ('{"type":"watch"}', "names"),
        ('{"type":"watch","topic":"a b","channel":"c"}', "names"),
        ('{"type":"watch","topic":{},"channel":["c"]}', "names"),
        ('{"type":["watch"]}', "unknown type"),
        ('{"type":"view","topic":"\\ud800"}', "view takes"),
        ('{"type":"view","node":"\\ud800"}', "view takes"),
        ('{"type":"view","topic":"a/b"}', "view takes"),
        ('{"type":"view","topic":"a","node":"b"}', "view takes"),
    ],
)
def test_an_invalid_message_is_answered(join, text, complaint):
    """The socket stays open."""
    with join() as live:
        live.socket.send(text)
        assert complaint in live.next("error")["message"]
        live.socket.send(b"\x00\xff")
        assert live.next("error")


def test_an_unknown_caller_is_asked_to_sign_in(join):
    """With a close code that the page recognises, and without any data."""
    for cookie in (None, "sessionid=forged"):
        with join(cookie=cookie) as live, pytest.raises(ConnectionClosed) as closed:
            live.socket.recv(timeout=DEADLINE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


def test_a_script_joins_with_its_token(join, account):
    """As for the API."""
    from nsqplatform.accounts.tokens import create_token

    token = create_token(user=account("operator"), name="watcher")
    with join(cookie=None, Authorization=f"Bearer {token}") as live:
        live.send(type="nonsense")
        assert live.next("error")


def test_a_request_of_another_sites_page_is_refused(join):
    """Its visitor's cookie does not help it."""
    with pytest.raises(InvalidStatus) as refused, join(origin="http://evil.example"):
        pass
    assert refused.value.response.status_code == 403


def test_a_socket_outside_the_known_paths_is_refused(web):
    """The web process is not affected."""
    with pytest.raises(InvalidStatus), connect(f"ws://127.0.0.1:{web.port}/ws/nowhere", proxy=None):
        pass
    assert httpx.get(f"{web.base}/ping", trust_env=False, timeout=DEADLINE_S).text == "OK"
