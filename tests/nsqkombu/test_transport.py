"""kombu's interface over NSQ, against a real broker: what kombu's integration tests ask of transports, and more."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trustme
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.asynchronous import Hub
from kombu.pidbox import Mailbox

from aionsq import ConnectFailed, Refused
from bench.ports import free_port
from nsqkombu import Transport
from tests.harness.daemon import Broker, Registry
from tests.harness.waiting import DEADLINE_S, wait_until
from tests.nsqkombu.conftest import drain, nothing_within

Connect = Callable[..., Connection]


@pytest.fixture
def name() -> str:
    """A name of a queue or exchange that no other test has."""
    return f"t{uuid4().hex[:12]}"


class Received:
    """A consumer's messages; with ``acks`` it acknowledges them."""

    def __init__(self, connection: Any, *queues: Queue, acks: bool = True, **options: Any) -> None:
        self.bodies: list[Any] = []
        self.messages: list[Any] = []
        self._acks = acks
        accept = ["json", "pickle", "text/plain", "application/octet-stream"]
        self._consumer = Consumer(connection, queues, callbacks=[self._add], accept=accept, **options)

    def _add(self, body: Any, message: Any) -> None:
        self.bodies.append(body)
        self.messages.append(message)
        if self._acks:
            message.ack()

    def has(self, count: int) -> bool:
        return len(self.messages) >= count

    def __enter__(self) -> Received:
        self._consumer.consume()
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.cancel()


def received(connection: Connection, queue: Queue, count: int = 1) -> list[Any]:
    """Receive and acknowledge ``count`` messages of a queue."""
    with Received(connection, queue) as got:
        drain(connection, lambda: len(got.bodies) >= count)
    return got.bodies


def depth(broker: Broker, topic: str, channel: str) -> int | None:
    """Messages that wait in a channel or are in flight; None if there is no channel."""
    for each in broker.topics().get(topic, {}).get("channels", ()):
        if each["channel_name"] == channel:
            return int(each["depth"] + each["in_flight_count"] + each["deferred_count"])
    return None


# --- connections


def test_a_connection_connects_closes_and_connects_again(connection: Connection) -> None:
    """As kombu's own tests of a transport ask."""
    assert connection.connect()
    assert connection.connected
    connection.close()
    assert not connection.connected
    assert connection.default_channel
    assert connection.connected


def test_a_broker_that_is_not_there_is_a_connection_error() -> None:
    """kombu and Celery then try again, as often as they are configured to."""
    connection = Connection(f"nsq://127.0.0.1:{free_port()}")
    with pytest.raises(ConnectFailed):
        connection.connect()
    assert ConnectFailed in connection.connection_errors


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("nsq://localhost", {"visibility_timeout": 3600}, "unknown transport option 'visibility_timeout'"),
        ("nsq://localhost", {"max_in_flight": 0}, "max_in_flight: 0 is not a whole number above 0"),
        ("nsq://localhost", {"max_defer": "1h"}, "max_defer: '1h' is not a number of seconds"),
        ("nsq://localhost", {"lookupd_http_addresses": 4161}, "lookupd_http_addresses: 4161 is not a list"),
        ("nsq://localhost", {"heartbeat_interval": "soon"}, "heartbeat_interval"),
    ],
)
def test_a_wrong_option_is_named(url: str, options: dict[str, Any], message: str) -> None:
    """Misspelt options have no effect elsewhere in kombu; here they end the program's start."""
    with pytest.raises(ValueError, match=message):
        _ = Connection(url, transport_options=options).transport


def test_a_url_has_hosts_a_secret_and_a_prefix() -> None:
    """All hosts are used at once: the rest of them is no reserve."""
    url = "nsq://:s3cret@one:1111/staging;nsq://two;[::1]:3333"
    settings = Connection(url, transport_options={"msg_timeout": 90, "snappy": True}).transport.settings
    assert settings.nsqd_tcp_addresses == ("one:1111", "two:4150", "[::1]:3333")
    assert settings.prefix == "staging."
    assert settings.producer_options.auth_secret == settings.consumer_options.auth_secret == "s3cret"
    assert settings.consumer_options.msg_timeout == timedelta(seconds=90)
    assert settings.consumer_options.snappy
    assert not settings.consumer_options.tls_v1
    tls = Connection("nsqs://one", ssl={"ca_certs": "/ca.pem", "certfile": "/cert.pem", "keyfile": "/key.pem"})
    options = tls.transport.settings.consumer_options
    assert (options.tls_v1, options.tls_root_ca_file, options.tls_cert) == (True, "/ca.pem", "/cert.pem")


# --- messages


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_a_message_is_received_as_it_was_published(connection: Connection, name: str, serializer: str) -> None:
    """Text and binary bodies, headers, content type."""
    queue = Queue(name, Exchange(name), routing_key=name)
    producer = Producer(connection.channel())
    producer.publish(
        {"hello": "wörld"},
        exchange=queue.exchange,
        routing_key=name,
        declare=[queue],
        serializer=serializer,
        headers={"k": "v"},
    )
    with Received(connection, queue) as got:
        drain(connection, lambda: got.bodies)
    (message,) = got.messages
    assert got.bodies == [{"hello": "wörld"}]
    assert message.headers["k"] == "v"
    assert message.delivery_info["routing_key"] == name
    assert message.content_type == {"json": "application/json", "pickle": "application/x-python-serialize"}[serializer]


def test_a_text_body_is_readable_in_the_broker(connection: Connection, brokerd: Broker, name: str) -> None:
    """So that an operator sees what a task was called with."""
    queue = Queue(name)
    Producer(connection.channel()).publish({"order": 7}, routing_key=name, declare=[queue])
    with Received(connection, queue, acks=False):
        wait_until(lambda: depth(brokerd, name, name) == 1, "the channel exists")
        page = brokerd.get(f"/channel/peek?topic={name}&channel={name}&state=in_flight")
    body = json.loads(base64.b64decode(page["messages"][0]["body"]))
    assert body["body"] == '{"order": 7}'
    assert body["content-type"] == "application/json"


def test_simple_queues_and_buffers_work(connection: Connection, name: str) -> None:
    """kombu's simple interface, as its own tests use it."""
    for make in (connection.SimpleQueue, connection.SimpleBuffer):
        with closing(make(f"{name}{make.__name__}")) as queue:
            queue.put({"Hello": "World"}, headers={"k1": "v1"})
            message = queue.get(timeout=DEADLINE_S)
            assert message.payload == {"Hello": "World"}
            assert message.content_encoding == "utf-8"
            assert message.headers == {"k1": "v1"}
            message.ack()


def test_a_message_that_kombu_did_not_publish_is_delivered_as_bytes(
    connection: Connection, broker: Broker, name: str
) -> None:
    """Any client of NSQ may publish to the topic; Celery rejects such a message and continues."""
    broker.post("/pub", b"not \xff kombu's", topic=name)
    with Received(connection, Queue(name)) as got:
        drain(connection, lambda: got.messages)
    assert got.messages[0].body == b"not \xff kombu's"
    assert got.messages[0].content_type == "application/octet-stream"


def test_names_that_nsq_does_not_permit_stay_apart(connection: Connection, broker: Broker) -> None:
    """Queues of any name, however long."""
    names = [f"tâsk@host/{'x' * 90}{end}" for end in ("a", "b")]
    producer = Producer(connection.channel())
    for each in names:
        producer.publish(each, routing_key=each, declare=[Queue(each)])
    for each in names:
        assert received(connection, Queue(each)) == [each]


# --- exchanges


def test_a_direct_exchange_delivers_by_routing_key(connection: Connection, name: str) -> None:
    """To every queue with the key, wherever it was declared."""
    exchange = Exchange(f"{name}-exchange", type="direct")
    first, second = (Queue(f"{name}{number}", exchange, routing_key=f"key{number}") for number in (1, 2))
    channel = connection.channel()
    for queue in (first, second):
        queue(channel).declare()
    producer = Producer(channel, exchange=exchange)
    for number in (1, 2):
        producer.publish(number, routing_key=f"key{number}")
    assert received(connection, first) == [1]
    assert received(connection, second) == [2]


def test_a_fanout_exchange_delivers_to_every_queue_that_was_bound(connect: Connect, name: str) -> None:
    """From the declaration on, by the consumers of other connections."""
    exchange = Exchange(name, type="fanout")
    queues = [Queue(f"{name}{number}", exchange, auto_delete=number > 1) for number in (1, 2, 3)]
    listening = connect()
    for queue in queues:
        queue(listening.default_channel).declare()
    publishing = connect()
    Producer(publishing.channel(), exchange=exchange).publish("all", declare=[exchange])
    for queue in queues:
        assert received(listening, queue) == ["all"]


def test_a_topic_exchange_delivers_by_pattern(connect: Connect, name: str) -> None:
    """Also to the process that publishes no declaration of queues: NSQ stores no bindings."""
    exchange = Exchange(name, type="topic")
    every = Queue(f"{name}-every", exchange, routing_key="t.#")
    some = Queue(f"{name}-some", exchange, routing_key="t.*.b")
    both = Queue(f"{name}-both", exchange, routing_key="t.x.*")
    listening = connect()
    for queue in (every, some, both):
        queue(listening.default_channel).declare()
    publishing = Producer(connect().channel(), exchange=exchange)
    for key in ("t.1", "t.1.b", "t.x.c", "u.1"):
        publishing.publish(key, routing_key=key, declare=[exchange])
    publishing.publish("t.x.end", routing_key="t.x.end.b")  # for `every` alone
    publishing.publish("end", routing_key="t.x.b")
    assert sorted(received(listening, every, 5)) == ["end", "t.1", "t.1.b", "t.x.c", "t.x.end"]
    assert sorted(received(listening, some, 2)) == ["end", "t.1.b"]
    assert sorted(received(listening, both, 2)) == ["end", "t.x.c"]


def test_a_queue_with_the_name_of_its_topic_exchange_has_both_kinds_of_messages(
    connection: Connection, name: str
) -> None:
    """Exchange and queue are then one topic of NSQ."""
    exchange = Exchange(name, type="topic")
    queue = Queue(name, exchange, routing_key="a.*")
    other = Queue(f"{name}-other", exchange, routing_key="a.b")
    producer = Producer(connection.channel())
    for each in (queue, other):
        each(connection.default_channel).declare()
    producer.publish("direct", routing_key=name)
    producer.publish("routed", exchange=exchange, routing_key="a.b")
    assert sorted(received(connection, queue, 2)) == ["direct", "routed"]
    assert received(connection, other) == ["routed"]


def test_a_broadcast_from_before_the_subscription_is_not_received(connect: Connect, name: str, broker: Broker) -> None:
    """A command to all workers, sent while none ran, must not stop the next one that starts."""
    exchange = Exchange(name, type="fanout", durable=False)
    producer = Producer(connect().channel(), exchange=exchange)
    producer.publish("stale", declare=[exchange])
    assert broker.topics()[f"{name}#ephemeral"]["depth"] == 1
    listening = connect()
    with Received(listening, Queue(f"{name}-queue", exchange, auto_delete=True), no_ack=True) as got:
        producer.publish("fresh")
        drain(listening, lambda: got.bodies)
    assert got.bodies == ["fresh"]


def test_a_mailbox_has_its_replies(connect: Connect, name: str) -> None:
    """kombu's remote control: a command to every node, and a reply of each."""
    serving = connect()
    mailbox = Mailbox(name, type="fanout")
    node = mailbox(serving).Node("node@host", state={"answer": 42})
    node.handler(_answer)
    node.channel = serving.channel()
    node.listen()
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                serving.drain_events(timeout=0.1)
            except TimeoutError:
                continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        replies = mailbox(connect()).multi_call("_answer", timeout=DEADLINE_S, limit=1)
    finally:
        stop.set()
        thread.join()
    assert replies == [{"node@host": 42}]


def _answer(state: dict[str, int]) -> int:
    return state["answer"]


# --- acknowledgement


def test_an_acknowledged_message_is_finished_and_a_rejected_one_too(
    connection: Connection, broker: Broker, name: str
) -> None:
    """A message that is requeued comes back, marked as redelivered."""
    queue = Queue(name)
    producer = Producer(connection.channel())
    for body in ("ack", "reject", "requeue"):
        producer.publish(body, routing_key=name, declare=[queue])
    with Received(connection, queue, acks=False) as got:
        drain(connection, lambda: len(got.bodies) == 3)
        for body, message in zip(got.bodies, got.messages, strict=True):
            getattr(message, body)()
        drain(connection, lambda: len(got.bodies) == 4)
        assert got.bodies[3] == "requeue"
        assert got.messages[3].delivery_info["redelivered"]
        assert depth(broker, name, name) == 1
        got.messages[3].ack()
        wait_until(lambda: depth(broker, name, name) == 0, "all are finished")


def test_unacknowledged_messages_return_when_their_channel_closes(connect: Connect, broker: Broker, name: str) -> None:
    """At once, not after the message timeout; acknowledged ones do not."""
    queue = Queue(name)
    first = connect()
    producer = Producer(first.channel())
    for body in ("a", "b", "c"):
        producer.publish(body, routing_key=name, declare=[queue])
    channel = first.channel()
    with Received(channel, queue, acks=False) as got:
        drain(first, lambda: len(got.bodies) == 3)
        got.messages[got.bodies.index("b")].ack()
        channel.close()
    assert sorted(received(connect(), queue, 2)) == ["a", "c"]


def test_the_prefetch_count_is_that_of_the_channel(connection: Connection, broker: Broker, name: str) -> None:
    """Whatever the number of its queues; the rest stays with the broker, for other workers."""
    queues = [Queue(f"{name}{number}") for number in (1, 2, 3)]
    producer = Producer(connection.channel())
    for queue in queues:
        for number in range(4):
            producer.publish(number, routing_key=queue.name, declare=[queue])
    channel = connection.channel()
    channel.basic_qos(0, 2, False)

    def in_flight() -> int:
        topics = broker.topics()
        return sum(topics[each.name]["channels"][0]["in_flight_count"] for each in queues)

    with Received(channel, *queues, acks=False) as got:
        drain(connection, lambda: len(got.bodies) == 2)
        nothing_within(connection)
        wait_until(lambda: in_flight() == 2, "the broker has the others")
        for answered in range(12):
            assert len(got.messages) <= answered + 2
            got.messages[answered].ack()
            drain(connection, partial(got.has, min(answered + 2, 12)))
        wait_until(lambda: in_flight() == 0, "all are finished")
    assert sorted(got.bodies) == sorted([*range(4)] * 3)


def test_a_message_can_be_fetched_without_a_consumer(connection: Connection, broker: Broker, name: str) -> None:
    """An empty queue gives None; messages are fetched one by one."""
    queue = Queue(name)(connection.channel())
    queue.declare()
    assert queue.get() is None
    producer = Producer(connection.channel())
    for body in ("a", "b"):
        producer.publish(body, routing_key=name)
    first = wait_until(queue.get, "the first message")
    second = wait_until(queue.get, "the second message")
    assert sorted([first.payload, second.payload]) == ["a", "b"]
    first.ack()
    second.ack()
    wait_until(lambda: depth(broker, name, name) == 0, "both are finished")


def test_a_fetch_leaves_the_other_messages_to_other_connections(connect: Connect, name: str) -> None:
    """Of the five, its subscription has the one that was returned and at most one more."""
    fetching = Queue(name)(connect().channel())
    producer = Producer(connect().channel())
    for number in range(5):
        producer.publish(number, routing_key=name)
    fetched = wait_until(fetching.get, "a message")
    others = received(connect(), Queue(name), 3)
    assert len({fetched.payload, *others}) == 4


# --- deferral


def test_a_message_with_an_eta_is_deferred_by_the_broker(connection: Connection, broker: Broker, name: str) -> None:
    """It occupies no worker until it is due."""
    due = datetime.now(UTC) + timedelta(hours=1)
    queue = Queue(name)
    with Received(connection, queue) as got:
        producer = Producer(connection.channel())
        producer.publish("later", routing_key=name, headers={"eta": due.isoformat()})
        producer.publish("now", routing_key=name, headers={"eta": None})
        drain(connection, lambda: got.bodies)
        assert got.bodies == ["now"]
        assert broker.topics()[name]["channels"][0]["deferred_count"] == 1


def test_a_message_that_arrives_early_is_deferred_again(connect: Connect, broker: Broker, name: str) -> None:
    """nsqd defers by an hour at most; the consumer gives back what is due later."""
    due = datetime.now(UTC) + timedelta(hours=30)
    connection = connect(max_defer=0.05)
    queue = Queue(name)
    with Received(connection, queue) as got:
        Producer(connection.channel()).publish("later", routing_key=name, headers={"eta": due.isoformat()})
        wait_until(lambda: broker.topics()[name]["channels"][0]["requeue_count"] >= 3, "it was deferred several times")
        Producer(connection.channel()).publish("now", routing_key=name)
        drain(connection, lambda: got.bodies)
        assert got.bodies == ["now"]


# --- failures


def test_a_consumer_and_a_producer_survive_a_kill_of_the_broker(
    connection: Connection, broker: Broker, name: str
) -> None:
    """What was acknowledged by the broker is delivered, and what kombu had not acknowledged, once more or still."""
    queue = Queue(name)
    channel = connection.channel()
    producer = Producer(connection.channel())
    with Received(channel, queue, acks=False) as got:
        producer.publish("before", routing_key=name, declare=[queue])
        drain(connection, lambda: got.bodies)
        broker.kill()
        broker.launch()
        producer.publish("after", routing_key=name, retry=True, retry_policy={"max_retries": None})
        drain(connection, lambda: "after" in got.bodies)
        for message in got.messages:
            message.ack()  # the first one's connection is lost
        wait_until(lambda: depth(broker, name, name) == 0, "both are finished")
    assert got.bodies.count("after") == 1
    assert got.bodies.count("before") == 1  # its second copy was finished by the answer to the first


def test_a_forked_child_has_its_own_connection(connect: Connect, broker: Broker, name: str) -> None:
    """And its end closes nothing of the parent, as with Celery's prefork pool."""
    connection = connect()
    queue = Queue(name)
    with Received(connection, queue) as got:
        producer = Producer(connection.channel())
        producer.publish("parent", routing_key=name, declare=[queue])
        drain(connection, lambda: got.bodies)
        clients = {client["remote_address"] for client in broker.topics()[name]["channels"][0]["clients"]}
        child = os.fork()
        if child == 0:
            status = 1
            try:
                connection.close()  # the parent's: closes nothing
                with Connection(f"nsq://{broker.tcp_address}") as own:
                    Producer(own.channel()).publish("child", routing_key=name)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        producer.publish("parent again", routing_key=name)
        drain(connection, lambda: len(got.bodies) == 3)
        assert sorted(got.bodies) == ["child", "parent", "parent again"]
        assert {client["remote_address"] for client in broker.topics()[name]["channels"][0]["clients"]} == clients


def test_a_child_keeps_no_connection_of_its_parent_open(connect: Connect, broker: Broker, name: str) -> None:
    """Otherwise nsqd would not notice that the parent closed it, and send messages that nobody reads."""
    connection = connect()
    reading, writing = os.pipe()
    with Received(connection, Queue(name)):
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent closes its end
            os._exit(0)
    try:
        connection.close()
        wait_until(lambda: not broker.topics()[name]["channels"][0]["clients"], "the broker noticed the close")
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_messages_are_delivered_from_celerys_event_loop(connection: Connection, name: str) -> None:
    """Celery polls the descriptor of the connection, and does other work meanwhile."""
    hub = Hub()
    with Received(connection, Queue(name)) as got:
        transport = connection.transport
        assert isinstance(transport, Transport)
        assert transport.supports_ev
        transport.register_with_event_loop(connection.connection, hub)
        producer = Producer(connection.channel())
        for number in range(120):
            producer.publish(number, routing_key=name)
        loop = hub.create_loop()
        wait_until(lambda: (next(loop), len(got.bodies) == 120)[1], "all are delivered")
        transport.unregister_from_event_loop(connection.connection, hub)
    hub.close()


# --- queues


def test_a_purge_over_http_empties_the_channel(connect: Connect, broker: Broker, name: str) -> None:
    """And says how many messages waited, deferred ones left out."""
    connection = connect(nsqd_http_addresses=[broker.http_address])
    queue = Queue(name)(connection.channel())
    queue.declare()
    producer = Producer(connection.channel())
    for number in range(5):
        producer.publish(number, routing_key=name)
    assert queue.queue_declare().message_count == 5
    assert queue.purge() == 5
    assert queue.queue_declare().message_count == 0
    queue.delete()
    wait_until(lambda: depth(broker, name, name) is None, "the queue is gone")


def test_a_purge_over_tcp_receives_what_waits(connect: Connect, broker: Broker, name: str) -> None:
    """Without any HTTP address, as with an nsqd whose HTTP port is not reached."""
    connection = connect(purge_idle=5)
    queue = Queue(name)(connection.channel())
    producer = Producer(connection.channel())
    for number in range(5):
        producer.publish(number, routing_key=name)
    assert queue.purge() == 5
    assert depth(broker, name, name) == 0


@pytest.mark.parametrize("over_http", [True, False])
@pytest.mark.parametrize("is_consuming", [True, False])
def test_a_simple_queue_is_cleared_after_a_message_was_taken(
    connect: Connect, broker: Broker, name: str, *, over_http: bool, is_consuming: bool
) -> None:
    """Its subscription has received further messages by then, which kombu has not seen."""
    connection = connect(nsqd_http_addresses=[broker.http_address] if over_http else [], purge_idle=1)
    with closing(connection.SimpleQueue(name)) as queue:
        for number in range(5):
            queue.put(number)
        message = queue.get(timeout=DEADLINE_S) if is_consuming else queue.get_nowait()
        message.ack()
        assert queue.clear() == 4
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.3)
    wait_until(lambda: depth(broker, name, name) == 0, "nothing is left")


# --- several nsqds, TLS


def test_queues_are_consumed_over_tls(tmp_path: Path, name: str) -> None:
    """With ``nsqs://`` and Celery's ``broker_use_ssl``; the broker refuses plain connections."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    flags = [f"--tls-cert={tmp_path / 'cert.pem'}", f"--tls-key={tmp_path / 'key.pem'}", "--tls-required=tcp-https"]
    data_path = tmp_path / "data"
    data_path.mkdir()
    with Broker(data_path, *flags) as broker:
        broker.wait_until_ready()
        with Connection(f"nsq://{broker.tcp_address}") as plain, pytest.raises(Refused, match="TLS required"):
            Producer(plain.channel()).publish("open", routing_key=name)
        with Connection(f"nsqs://{broker.tcp_address}", ssl={"ca_certs": str(tmp_path / "ca.pem")}) as connection:
            Producer(connection.channel()).publish("secret", routing_key=name, declare=[Queue(name)])
            assert received(connection, Queue(name)) == ["secret"]


def test_queues_are_consumed_from_nsqds_that_a_registry_lists(tmp_path: Path, broker: Broker, name: str) -> None:
    """A worker needs the address of one nsqd, to publish, and of a registry, to find the others."""
    data_path = tmp_path / "data"
    data_path.mkdir()
    with Registry() as registry:
        registry.wait_until_ready()
        flags = ["--broadcast-address=127.0.0.1", f"--lookupd-tcp-address={registry.tcp_address}"]
        with Broker(data_path, *flags) as listed:
            listed.wait_until_ready()
            with Connection(f"nsq://{listed.tcp_address}") as publishing:
                Producer(publishing.channel()).publish("listed", routing_key=name, declare=[Queue(name)])
            wait_until(lambda: registry.request("GET", f"/lookup?topic={name}").status == 200, "the topic is listed")
            options = {"lookupd_http_addresses": [registry.http_address]}
            with Connection(f"nsq://{broker.tcp_address}", transport_options=options) as connection:
                assert received(connection, Queue(name)) == ["listed"]


def test_queues_are_consumed_from_every_host(broker: Broker, tmp_path: Path, name: str) -> None:
    """Publishes go to each in turn, and to the others when one is gone."""
    with Broker(tmp_path) as second:
        second.wait_until_ready()
        with Connection(f"nsq://{broker.tcp_address};nsq://{second.tcp_address}") as connection:
            producer = Producer(connection.channel())
            for number in range(10):
                producer.publish(number, routing_key=name, declare=[Queue(name)])
            assert 0 < second.topics()[name]["message_count"] < 10
            assert sorted(received(connection, Queue(name), 10)) == list(range(10))
            second.stop()
            for number in range(4):
                producer.publish(number, routing_key=name, retry=True)
            assert sorted(received(connection, Queue(name), 4)) == list(range(4))
