"""``/ws/tail``: a topic's messages as they are published, through Daphne, from brokers of this project."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from django.test import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from nsqplatform.accounts.models import User
from tests.harness.waiting import DEADLINE_S, wait_until
from tests.platform.socket_messages import checked

pytestmark = pytest.mark.django_db(transaction=True)


class Watcher:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.skipped = 0
        self.early: list[bytes] = []
        """Bodies that arrived while the nodes were being connected."""

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def next(self, *kinds: str, within_s: float = DEADLINE_S) -> dict[str, Any]:
        deadline = time.monotonic() + within_s
        while True:
            message = checked("TailMessage", self.socket.recv(timeout=max(0.01, deadline - time.monotonic())))
            self.skipped += message.get("skipped", 0)
            if message["type"] in kinds:
                return message

    def start(self, topic: str, **more: Any) -> str:
        """Start the tail, and return its channel once every node is connected."""
        self.send(type="start", topic=topic, **more)
        channel = self.next("started")["channel"]
        connected = 0
        while connected < 2:
            message = self.next("messages")
            connected = message["nodes"]
            self.early += bodies_of(message)
        return channel

    def bodies(self, count: int) -> list[bytes]:
        found, self.early = self.early, []
        while len(found) < count:
            found += bodies_of(self.next("messages"))
        return found


def bodies_of(message: dict[str, Any]) -> list[bytes]:
    return [b64decode(each["body"]) for each in message["messages"]]


@pytest.fixture
def watch(web, account, redis, cluster):
    """Opens sockets of an account, on a web process that knows the cluster."""
    redis.set("nsq:lookupd", json.dumps([cluster.registry.http_address]))
    people = {role: account(role) for role in ("viewer", "operator")}

    @contextmanager
    def open_socket(user: str | None = "operator") -> Iterator[Watcher]:
        client = Client()
        if user:
            client.force_login(people[user])
        headers = {"Cookie": f"sessionid={client.cookies['sessionid'].value}"} if user else {}
        with connect(
            f"ws://127.0.0.1:{web.port}/ws/tail", origin=web.base, additional_headers=headers, proxy=None
        ) as opened:
            yield Watcher(opened)

    return open_socket


def channels(cluster: Any, topic: str = "orders") -> set[str]:
    return {each["channel_name"] for broker in cluster.brokers for each in broker.topics()[topic]["channels"]}


def test_all_viewers_share_one_channel(cluster, watch):
    """The channel is created for the first viewer and removed after the last; another channel keeps every message."""
    cluster.make_channel("orders", "billing")
    with watch() as one:
        channel = one.start("orders")
        assert channel.endswith("#ephemeral")
        with watch() as other:
            assert other.start("orders") == channel
            assert channels(cluster) == {"billing", channel}
            cluster.publish("orders", 3)
            expected = sorted(b"message %d" % (n // 2) for n in range(6))
            assert sorted(one.bodies(6)) == sorted(other.bodies(6)) == expected
        cluster.brokers[0].request("POST", "/pub?topic=orders", b"one more")
        assert one.bodies(1) == [b"one more"]
    wait_until(lambda: channels(cluster) == {"billing"}, "the ephemeral channel is gone")
    assert sum(broker.topics()["orders"]["channels"][0]["depth"] for broker in cluster.brokers) == 7


def test_the_tail_of_a_quiet_topic_stays_open(cluster, watch):
    """It sends a message every second; a lack of messages does not end it."""
    cluster.make_channel("orders", "billing")
    with watch() as one:
        one.start("orders")
        for _ in range(10):
            assert one.next("messages")["messages"] == []
        cluster.brokers[0].request("POST", "/pub?topic=orders", b"at last")
        assert one.bodies(1) == [b"at last"]


def test_a_filter_and_a_pause_keep_messages_away(cluster, watch):
    """Messages skipped during the pause are counted, those that do not match are not; a body is cut to 4 KiB."""
    cluster.make_channel("orders", "billing")
    with watch() as one:
        one.start("orders", filter="ERROR 42")
        for body in (b"fine", b"error 7", b"42: Error"):
            cluster.brokers[0].request("POST", "/pub?topic=orders", body)
        assert one.bodies(1) == [b"42: Error"]
        one.send(type="filter", text="")
        one.send(type="pause")
        while one.skipped == 0:  # the pause has taken effect: until then, messages arrive
            cluster.brokers[0].request("POST", "/pub?topic=orders", b"unseen")
            one.next("messages")
        for _ in range(3):
            cluster.brokers[0].request("POST", "/pub?topic=orders", b"unseen")
            assert one.next("messages")["messages"] == []
        one.send(type="resume")
        long: list[Any] = []
        while not long:  # until the tail has resumed, what is published is skipped
            cluster.brokers[0].request("POST", "/pub?topic=orders", b"x" * 5_000)
            long = [each for each in one.next("messages")["messages"] if each["size"] == 5_000]
        assert (len(b64decode(long[0]["body"])), long[0]["truncated"]) == (4_096, True)


def test_a_busy_topic_is_sampled_and_the_rest_counted(cluster, watch):
    """A browser gets some messages and the number of the others, and the tail's channel has no backlog."""
    cluster.make_channel("orders", "billing")
    with watch() as one:
        channel = one.start("orders")
        for _ in range(5):
            cluster.publish("orders", 2_000)
        seen = 0
        deadline = time.monotonic() + DEADLINE_S
        while seen + one.skipped < 20_000 and time.monotonic() < deadline:
            seen += len(one.next("messages")["messages"])

        def depth() -> int:
            return sum(
                each["depth"]
                for broker in cluster.brokers
                for each in broker.topics()["orders"]["channels"]
                if each["channel_name"] == channel
            )

        wait_until(lambda: depth() == 0, "the tail's channel is empty")
        assert 0 < seen < 5_000
        assert one.skipped > 10_000
    assert sum(broker.topics()["orders"]["channels"][0]["depth"] for broker in cluster.brokers) == 20_000


def test_a_topic_without_channels_is_asked_about_first(cluster, watch):
    """The first channel of a topic receives its backlog: the viewer is asked first, with the number of messages of each
    node."""
    cluster.publish("orders", 4)
    with watch() as one:
        one.send(type="start", topic="orders")
        asked = one.next("ask")
        assert {each["node"]: each["depth"] for each in asked["nodes"]} == {
            broker.http_address: 4 for broker in cluster.brokers
        }
        assert channels(cluster) == set()
        one.start("orders", take_backlog=True)
        assert len(one.bodies(1)) >= 1


def test_a_redis_that_does_not_answer_is_reported_to_the_viewer(cluster, watch, redis):
    """The socket stays open, and the tail starts once Redis answers again."""
    cluster.make_channel("orders", "billing")
    with watch() as one:
        redis.client_pause(6_000)
        one.send(type="start", topic="orders")
        assert one.next("error")["message"].startswith("Redis does not answer: ")
        redis.client_unpause()
        one.start("orders")


def test_reading_messages_without_permission_is_refused(cluster, watch):
    """A viewer with a message, a stranger with the close code."""
    cluster.make_channel("orders", "billing")
    with watch("viewer") as viewer:
        viewer.send(type="start", topic="orders")
        assert "may not read messages" in viewer.next("error")["message"]
    with watch(None) as stranger, pytest.raises(ConnectionClosed) as closed:
        stranger.next("started")
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4401
    assert channels(cluster) == {"billing"}


@pytest.mark.parametrize("change", [{"role": "viewer"}, {"topic_patterns": ["invoices.*"]}])
def test_a_tail_ends_when_its_owner_may_no_longer_read_the_topic(cluster, watch, web, callers, change):
    """An admin changes the role or the topics of the account, and no further message is shown."""
    cluster.make_channel("orders", "billing")
    admin = callers("admin")
    with watch() as one:
        one.start("orders")
        changed = httpx.patch(
            f"{web.base}/api/v1/people/{User.objects.get(username='operator').pk}",
            json=change,
            headers=admin.as_sent,
            timeout=DEADLINE_S,
            trust_env=False,
        )
        assert changed.is_success, changed.text
        with pytest.raises(ConnectionClosed) as closed:
            one.next("error", within_s=DEADLINE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4403


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"type": "start"}, "name of a topic"),
        ({"type": "start", "topic": "a b"}, "name of a topic"),
        ({"type": "start", "topic": "nowhere"}, "topic nowhere"),
        ({"type": "jump"}, "unknown type 'jump'"),
        ([], "expected a JSON text"),
        ("[" * 5_000, "expected a JSON text"),
    ],
)
def test_an_invalid_message_is_answered_and_the_socket_stays_open(cluster, watch, message, complaint):
    """The next message is handled as usual."""
    cluster.make_channel("orders", "billing")
    with watch() as one:
        one.socket.send(message if isinstance(message, str) else json.dumps(message))
        assert complaint in one.next("error")["message"]
        one.start("orders")


def test_a_tail_masks_bodies_and_what_its_filter_compares(cluster, watch, account):
    """A masked value is neither shown nor found by the filter; a body that cannot be masked is withheld."""
    from nsqplatform.cluster.models import Mask

    cluster.make_channel("orders", "billing")
    Mask.objects.create(topic_pattern="orders", paths=["$.card"], visible_to="admin", created_by="ana")
    with watch("operator") as watcher:
        watcher.start("orders")
        cluster.brokers[0].post("/pub", b'{"card":"4111","n":1}', topic="orders")
        assert watcher.bodies(1) == [b'{"card": "***", "n": 1}']
        cluster.brokers[0].post("/pub", b"card=4111", topic="orders")
        assert watcher.bodies(1) == [b""]
    with watch("operator") as watcher:
        watcher.start("orders", filter="4111")
        for body in (b'{"card":"4111","n":2}', b"card=4111", b'{"n":4111}'):
            cluster.brokers[0].post("/pub", body, topic="orders")
        assert watcher.bodies(1) == [b'{"n": 4111}']


def test_a_tail_shows_headers_and_masks_them(cluster, watch, account):
    """A new mask hides them from an open tail."""
    from nsqplatform.cluster.models import Mask

    cluster.make_channel("orders", "billing")

    def published(watcher: Watcher) -> list[dict[str, str]]:
        """Publish a message, and return the headers of those that are shown next."""
        envelope = b'{"headers": {"tenant": "acme", "token": "4111"}, "body": "{}"}'
        cluster.brokers[0].post("/mpub", envelope, topic="orders", envelope="true")
        return [each["headers"] for each in watcher.next("messages")["messages"]]

    with watch("operator") as watcher:
        watcher.start("orders")
        wait_until(lambda: {"tenant": "acme", "token": "4111"} in published(watcher), "the tail shows headers")
        Mask.objects.create(
            topic_pattern="orders", paths=["$.card"], visible_headers=["tenant"], visible_to="admin", created_by="ana"
        )
        wait_until(lambda: {"tenant": "acme", "token": "***"} in published(watcher), "the mask applies to the tail")
        assert {each["token"] for each in published(watcher) + published(watcher)} <= {"***"}
