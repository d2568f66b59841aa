"""Topics as Spark tables and streams: exactly the messages of the brokers' logs."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from nsqanalytics.failures import explained
from nsqanalytics.topics import register
from nsqanalytics.topics.address import Address
from nsqanalytics.topics.discovery import node, positions
from nsqanalytics.topics.errors import BadOption, MessagesRemoved, NodeUnreadable, TopicNotFound
from nsqanalytics.topics.offsets import NodeOffset, Offsets, Part, limited, parts
from nsqanalytics.topics.options import NAMES, Options
from tests.harness.daemon import Broker, Registry
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

StartBroker = Callable[..., Broker]
Message = tuple[str, int, str, bytes, "frozenset[tuple[str, str]] | None", datetime]

pytestmark = pytest.mark.timeout(600)

KEPT = "--retention=1h"
BATCH_S = 300
"""Longest time for the first batch of a stream."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers: ``start_broker(*flags)``. They are stopped at the end."""
    with ExitStack() as stack:
        started: list[Broker] = []

        def start(*flags: str, keep_ports: bool = False) -> Broker:
            data = tmp_path / f"data-{len(started)}"
            data.mkdir()
            broker = Broker(data, *flags, keep_ports=keep_ports)
            stack.callback(broker.close)
            started.append(broker.launch())
            return broker

        yield start


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """The tests' session, which knows the format."""
    register(spark)
    return spark


def publish(broker: Broker, *bodies: bytes, topic: str = "orders") -> None:
    broker.post("/mpub", b"\n".join(bodies), topic=topic)


def log_of(*brokers: Broker, topic: str = "orders") -> set[Message]:
    """What ``GET /topic/scan`` returns of the topic on these brokers."""
    found: set[Message] = set()
    for broker in brokers:
        query: dict[str, Any] = {"topic": topic}
        while query.get("from", 0) is not None:
            page = broker.get(f"/topic/scan?{urlencode(query)}")
            for each in page["messages"]:
                headers = frozenset(each["headers"].items()) if "headers" in each else None
                published = EPOCH + timedelta(microseconds=each["timestamp"] // 1000)
                body = b64decode(each["body"])
                found.add((broker.http_address, each["position"], each["id"], body, headers, published))
            query["from"] = page["next"]
    return found


def rows_of(frame: DataFrame) -> list[Message]:
    return [
        (
            row["node"],
            row["position"],
            row["id"],
            bytes(row["body"]),
            None if row["headers"] is None else frozenset(row["headers"].items()),
            row["published"].astimezone(UTC),
        )
        for row in frame.collect()
    ]


def options_of(*brokers: Broker, topic: str = "orders", **more: str) -> dict[str, str]:
    return {"topic": topic, "nsqd_http_addresses": ",".join(each.http_address for each in brokers), **more}


def consume(broker: Broker, count: int, *, topic: bytes = b"orders") -> None:
    """Receive and finish ``count`` messages on the channel ``c``."""
    with V2Client(broker.tcp) as consumer:
        consumer.ok(b"SUB " + topic + b" c\n")
        consumer.send(b"RDY %d\n" % count)
        ids = [consumer.message()[0] for _ in range(count)]
        consumer.send(b"RDY 0\n" + b"".join(b"FIN " + each + b"\n" for each in ids))
        wait_until(lambda: broker.topics()[topic.decode()]["channels"][0]["in_flight_count"] == 0, "all are finished")


# -- batch ------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_table_has_exactly_the_messages_of_all_nodes(session: SparkSession, start_broker: StartBroker) -> None:
    """Ids, bodies, times, headers, nodes and numbers; finished ones too. Reading consumes nothing."""
    first, second = start_broker(KEPT), start_broker(KEPT)
    for broker in (first, second):
        broker.post("/topic/create", topic="orders")
        broker.post("/channel/create", topic="orders", channel="c")
        for number in range(5):
            publish(broker, *(b"%d %d" % (number, each) for each in range(300)))
    headers = {"X-NSQ-Header-Tenant": "acme", "X-NSQ-Header-City": "Zürich".encode().decode("latin-1")}
    assert first.request("POST", "/pub?topic=orders", bytes(range(256)), headers).status == 200
    consume(first, 700)
    before = [each.topics()["orders"]["channels"][0]["depth"] for each in (first, second)]
    frame = session.read.format("nsq").options(**options_of(first, second, partition_messages="400")).load()
    rows = rows_of(frame)
    counts = {name: sum(row[0] == name for row in rows) for name in (first.http_address, second.http_address)}
    assert counts == {each.http_address: each.topics()["orders"]["message_count"] for each in (first, second)}
    assert len(rows) == len(set(rows)) == 3001
    assert set(rows) == log_of(first, second)
    assert frame.rdd.getNumPartitions() == 4 + 4
    assert [each.topics()["orders"]["channels"][0]["depth"] for each in (first, second)] == before


@pytest.mark.spark
def test_a_table_has_the_messages_of_a_time(session: SparkSession, start_broker: StartBroker) -> None:
    """``start`` is included, ``end`` is not; SQL reads the same; a topic without messages is an empty table."""
    broker = start_broker()
    broker.post("/topic/create", topic="orders")
    broker.post("/topic/create", topic="empty")
    for number in range(6):
        broker.post("/pub", b"%d" % number, topic="orders")
    times = sorted(message[-1] for message in log_of(broker))
    chosen = {"start": times[1].isoformat(), "end": times[4].isoformat()}
    frame = session.read.format("nsq").options(**options_of(broker, **chosen)).load()
    assert sorted(row[3] for row in rows_of(frame)) == [b"1", b"2", b"3"]
    given = ", ".join(f"{name} '{value}'" for name, value in options_of(broker, start="1h").items())
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING nsq OPTIONS ({given})")
    (row,) = session.sql("SELECT count(*) AS n, max(CAST(body AS STRING)) AS body FROM orders").collect()
    assert (row["n"], row["body"]) == (6, "5")
    assert session.read.format("nsq").options(**options_of(broker, topic="empty")).load().count() == 0


@pytest.mark.spark
def test_a_query_that_cannot_be_answered_says_why(session: SparkSession, start_broker: StartBroker) -> None:
    """One sentence of Spark's error is for the analyst; ``python -m nsqanalytics sql`` prints that alone."""
    broker = start_broker()

    def reason(**given: str) -> str:
        with pytest.raises(Exception) as raised:
            session.read.format("nsq").options(**options_of(broker) | given).load().count()
        return explained(raised.value)[1]

    assert reason() == f"there is no topic orders on {broker.http_address}"
    assert reason(topics="orders") == f"option topics: is unknown; the options are {', '.join(NAMES)}"
    assert reason(max_messages="5") == "option max_messages: is for streams only: it limits each of their batches"


# -- streams ----------------------------------------------------------------------------------------------------------


class Stream:
    """A stream of a topic into Parquet files, whose checkpoint survives its restarts."""

    def __init__(self, session: SparkSession, folder: Path, options: Mapping[str, str]) -> None:
        self._session = session
        self._folder = folder
        self.options = dict(options)

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self._session.readStream.format("nsq").options(**self.options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self._folder / "checkpoint"))
        return writer.trigger(**trigger).start(str(self._folder / "rows"))

    def read_all(self) -> list[int]:
        """Read what is there now. Returns the number of rows of each batch."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self) -> list[Message]:
        return rows_of(self._session.read.parquet(str(self._folder / "rows")))


def has_failed(query: StreamingQuery) -> bool:
    return query.exception() is not None


def has_rows(query: StreamingQuery) -> bool:
    return any(progress["numInputRows"] for progress in query.recentProgress)


@pytest.mark.spark
def test_a_stream_reads_each_message_once_over_restarts(
    session: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    """Of the stream while messages are published, and of a node by kill -9; a node that came later is read too."""
    first, second = start_broker(keep_ports=True), start_broker()
    first.post("/topic/create", topic="orders")
    stream = Stream(session, tmp_path / "stream", options_of(first, max_messages="500"))

    def publish_all() -> None:
        for number in range(200):
            publish(first, *(b"%d %d" % (number, each) for each in range(5)))

    publisher = threading.Thread(target=publish_all)
    publisher.start()
    query = stream.start(processingTime="0 seconds")
    wait_until(lambda: has_failed(query) or has_rows(query), "a batch is written", within_s=BATCH_S)
    assert not has_failed(query), query.exception()
    query.stop()
    publisher.join()
    first.kill()
    first.launch()
    publish(first, *(b"after %d" % number for number in range(700)))
    publish(second, *(b"other %d" % number for number in range(600)))
    stream.options = options_of(first, second, max_messages="500")
    batches = stream.read_all()
    assert max(batches) <= 500
    assert len(batches) >= 3
    rows = stream.rows()
    assert len(rows) == len(set(rows)) == 1000 + 700 + 600
    assert set(rows) == log_of(first, second)
    assert stream.read_all() == []
    publish(second, b"last")
    assert stream.read_all() == [1]
    assert set(stream.rows()) == log_of(first, second)


@pytest.mark.spark
def test_a_stream_whose_topic_was_deleted_ends_with_the_reason(
    session: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    """Nobody knows what it has missed. With ``fail_on_data_loss`` false it reads the new topic from its beginning."""
    broker = start_broker()
    publish(broker, b"1", b"2", b"3")
    stream = Stream(session, tmp_path / "stream", options_of(broker))
    stream.read_all()
    broker.post("/topic/delete", topic="orders")
    publish(broker, b"new")
    with pytest.raises(Exception, match="was deleted and created again"):
        stream.read_all()
    stream.options["fail_on_data_loss"] = "false"
    assert stream.read_all() == [1]
    assert sorted(row[3] for row in stream.rows()) == [b"1", b"2", b"3", b"new"]


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_nodes_are_found_by_registries(start_broker: StartBroker) -> None:
    """One registry that answers is enough; a topic that none lists is an error."""
    with Registry() as registry:
        registry.wait_until_ready()
        where = (f"--lookupd-tcp-address={registry.tcp_address}", "--broadcast-address=127.0.0.1")
        brokers = [start_broker(*where) for _ in range(2)]
        for broker in brokers:
            publish(broker, b"x")
        dead = "127.0.0.1:1"

        def options(**more: str) -> Options:
            given = {"topic": "orders", "lookupd_http_addresses": f"{dead}, http://{registry.http_address}"}
            return Options.parse(given | more)

        def names() -> set[str]:
            try:
                return set(positions(options()))
            except TopicNotFound:
                return set()

        wait_until(lambda: names() == {each.http_address for each in brokers}, "both nodes are registered")
        with pytest.raises(TopicNotFound, match=f"no node has registered the topic other with {dead}, "):
            positions(options(topic="other"))
        with pytest.raises(NodeUnreadable, match=f"{dead} cannot be reached: .*refused"):
            positions(options(lookupd_http_addresses=dead))
        with pytest.raises(NodeUnreadable, match="does not answer /lookup as nsqlookupd does"):
            positions(options(lookupd_http_addresses=f"{dead},{brokers[0].http_address}"))


def test_a_node_that_cannot_be_read_is_named(start_broker: StartBroker) -> None:
    """One that does not answer, and one without the endpoint, as Go's nsqd; the topic may be missing on some nodes."""
    broker, without = start_broker(), start_broker()
    publish(broker, b"x")
    found = positions(Options.parse(options_of(broker, without)))
    assert list(found) == [broker.http_address]
    with pytest.raises(TopicNotFound, match=f"no topic none on {broker.http_address}, {without.http_address}"):
        positions(Options.parse(options_of(broker, without, topic="none")))
    with pytest.raises(NodeUnreadable, match=r"127\.0\.0\.1:1 cannot be reached: .*refused"):
        positions(Options.parse(options_of(broker) | {"nsqd_http_addresses": f"{broker.http_address},127.0.0.1:1"}))
    with pytest.raises(NodeUnreadable, match=f"{broker.tcp_address} does not speak HTTP; is it the port for TCP"):
        positions(Options.parse(options_of(broker) | {"nsqd_http_addresses": broker.tcp_address}))
    with Registry() as other:  # as Go's nsqd, it answers 404 NOT_FOUND
        other.wait_until_ready()
        with pytest.raises(NodeUnreadable, match=f"{other.http_address} has no /topic/scan: it is Go's nsqd"):
            positions(Options.parse({"topic": "orders", "nsqd_http_addresses": other.http_address}))


def test_messages_that_are_removed_while_they_are_read_are_an_error(start_broker: StartBroker) -> None:
    """It names them. With ``fail_on_data_loss`` false, the rest is read."""
    broker = start_broker()
    broker.post("/topic/create", topic="orders")
    broker.post("/channel/create", topic="orders", channel="c")
    for number in range(100):
        broker.post("/pub", b"%d " % number + bytes(20_000), topic="orders")
    options = Options.parse(options_of(broker))
    (name,) = found = positions(options)
    page = found[name]
    assert (page["start"], page["stop"]) == (0, 100)
    consume(broker, 100)
    earliest = wait_until(lambda: broker.get("/topic/scan?topic=orders&limit=0")["earliest"], "a segment is removed")
    with pytest.raises(MessagesRemoved, match=rf"messages 0 to {earliest - 1} of {name} were removed from the log"):
        list(node(name, options).pages(0, 100, page["topic_number"], has_begun=True))
    for lenient, has_begun in ((options_of(broker, fail_on_data_loss="false"), True), (options_of(broker), False)):
        reader = node(name, Options.parse(lenient))
        pages = list(reader.pages(0, 100, page["topic_number"], has_begun=has_begun))
        numbers = [each["position"] for found in pages for each in found["messages"]]
        assert numbers == list(range(earliest, 100))
    with pytest.raises(MessagesRemoved, match="was deleted on"):
        list(node(name, options).pages(0, 100, page["topic_number"] + 1, has_begun=True))


def test_a_node_that_requires_tls_is_read_over_tls(start_broker: StartBroker, tmp_path: Path) -> None:
    """By the address that its refusal names, or that the options give; with a certificate of the client."""
    authority = trustme.CA()
    files = {name: tmp_path / f"{name}.pem" for name in ("authority", "server", "client")}
    authority.cert_pem.write_to_path(files["authority"])
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(files["server"])
    authority.issue_cert("analyst@example.org").private_key_and_cert_chain_pem.write_to_path(files["client"])
    broker = start_broker(
        *(f"--tls-cert={files['server']}", f"--tls-key={files['server']}", f"--tls-root-ca-file={files['authority']}"),
        *("--tls-required=true", "--tls-client-auth-policy=require-verify", "--https-address=127.0.0.1:0"),
    )
    https = broker.wait_for_log(r"HTTPS: listening on (\S+)")[1]
    tls = {"tls_ca_file": str(files["authority"]), "tls_cert_file": str(files["client"])}
    for address in (broker.http_address, f"https://{https}"):
        options = Options.parse({"topic": "orders", "nsqd_http_addresses": address, **tls})
        with pytest.raises(TopicNotFound, match="there is no topic orders"):
            positions(options)
    with pytest.raises(NodeUnreadable, match=r"cannot be reached: .*(?i:certificate)"):
        positions(Options.parse({"topic": "orders", "nsqd_http_addresses": f"https://{https}"}))
    with pytest.raises(BadOption, match="option tls_ca_file: /none cannot be read"):
        positions(Options.parse({"topic": "t", "nsqd_http_addresses": f"https://{https}", "tls_ca_file": "/none"}))


# -- options and offsets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topic": ""}, "option topic: is missing"),
        ({"topic": "a b"}, "option topic: 'a b' is not a valid name"),
        ({"nsqd_http_addresses": ""}, "option nsqd_http_addresses: give either these or lookupd_http_addresses"),
        ({"lookupd_http_addresses": "x:1"}, "option nsqd_http_addresses: give either these or"),
        ({"nsqd_http_addresses": "x"}, "option nsqd_http_addresses: 'x' is not an address such as"),
        ({"nsqd_http_addresses": "ftp://x:1"}, "'ftp://x:1' is not an address"),
        ({"nsqd_http_addresses": "x:99999"}, "'x:99999' is not an address"),
        ({"start": "yesterday"}, "option start: 'yesterday' is neither a duration such as 90m"),
        ({"start": "2026-03-14T10:00:00"}, "option start: .* needs its zone"),
        ({"start": "1h", "end": "2h"}, "option end: '2h' is not after the start, '1h'"),
        ({"max_messages": "0"}, "option max_messages: '0' is not a whole number above 0"),
        ({"fail_on_data_loss": "no"}, "option fail_on_data_loss: 'no' is neither true nor false"),
        ({"tls_key_file": "x.pem"}, "option tls_key_file: needs tls_cert_file"),
        ({"Path": "orders"}, "option path: is unknown; the options are topic, nsqd_http_addresses"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        Options.parse({"topic": "orders", "nsqd_http_addresses": "127.0.0.1:4151"} | given)


def test_addresses_may_have_a_scheme_and_ipv6() -> None:
    assert Address.parse("[::1]:4151").name == "[::1]:4151"
    assert Address.parse("https://nsq.example.org:4152/") == Address("nsq.example.org", 4152, is_https=True)


numbers = st.integers(0, 60)
node_offsets = st.dictionaries(
    st.sampled_from(["a:1", "b:1", "c:1"]),
    st.builds(NodeOffset, topic_number=st.integers(0, 1), position=numbers),
)


@given(node_offsets, node_offsets, st.integers(3, 40), st.integers(1, 20))
def test_limited_batches_together_are_the_whole(start: Offsets, end: Offsets, most: int, piece: int) -> None:
    """Each message between two offsets is in one batch and one piece of it, and no batch has more than its limit."""

    def messages(found: list[Part]) -> list[tuple[str, int, int]]:
        pieces = [each for part in found for each in part.pieces(piece)]
        assert all(each.stop - each.start <= piece for each in pieces)
        return [(each.node, each.topic_number, number) for each in pieces for number in range(each.start, each.stop)]

    wanted = messages(parts(start, end))
    seen: list[tuple[str, int, int]] = []
    target: Offsets = {**start, **end}
    at = start
    while True:
        following = limited(at, target, most, {})
        assert json.loads(json.dumps(following)) == following
        batch = messages(parts(at, following))
        assert len(batch) <= most
        if following == at:
            break
        seen += batch
        at = following
    assert sorted(seen) == sorted(wanted)
    assert len(seen) == len(set(seen))


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 20))
def test_limited_batches_of_a_node_that_came_later_begin_with_its_first_message(
    earliest: int, end: int, most: int
) -> None:
    """A later batch does not ask for messages that were removed before the stream came to the node."""
    target: Offsets = {"a:1": NodeOffset(topic_number=0, position=end)}
    at: Offsets = {}
    while (following := limited(at, target, most, {"a:1": earliest})) != at:
        assert all(part.start >= earliest for part in parts(at, following) if part.has_begun)
        at = following
    assert at == (target if end > 0 else {})
