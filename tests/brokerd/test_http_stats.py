"""/ping, /info, /stats and the debug endpoints of a running broker."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from socket import gethostname

import pytest

from nsqwire.version import product_version
from tests.harness.waiting import wait_until

CLIENT_KEYS = [
    "client_id",
    "hostname",
    "version",
    "remote_address",
    "state",
    "ready_count",
    "in_flight_count",
    "message_count",
    "finish_count",
    "requeue_count",
    "connect_ts",
    "sample_rate",
    "deflate",
    "snappy",
    "user_agent",
    "topology_zone",
    "topology_region",
    "tls",
    "tls_cipher_suite",
    "tls_version",
    "tls_negotiated_protocol",
    "tls_negotiated_protocol_is_mutual",
]
CHANNEL_KEYS = [
    "channel_name",
    "depth",
    "backend_depth",
    "in_flight_count",
    "deferred_count",
    "message_count",
    "requeue_count",
    "timeout_count",
    "client_count",
    "clients",
    "paused",
    "e2e_processing_latency",
]
TOPIC_KEYS = [
    "topic_name",
    "channels",
    "depth",
    "backend_depth",
    "message_count",
    "message_bytes",
    "paused",
    "e2e_processing_latency",
]
IDENTIFY = b'{"client_id":"me","hostname":"my.host","user_agent":"<ua>/1 & \xc3\xbc","feature_negotiation":false}'


@pytest.fixture
def consumed(broker, connect):
    """A broker with topic t, whose channel c has a consumer with one message in flight, one finished and one
    requeued."""
    producer = connect(broker)
    producer.ok(b"PUB t\n\x00\x00\x00\x02p1")
    consumer = connect(broker)
    consumer.ok(b"IDENTIFY\n" + len(IDENTIFY).to_bytes(4, "big") + IDENTIFY)
    consumer.ok(b"SUB t c\n")
    producer.ok(b"PUB t\n\x00\x00\x00\x02p2")
    producer.ok(b"PUB t\n\x00\x00\x00\x02p3")
    producer.ok(b"DPUB t 60000\n\x00\x00\x00\x02p4")
    consumer.send(b"RDY 1\n")
    first, _, _ = consumer.message()
    consumer.send(b"FIN " + first + b"\n")
    second, _, _ = consumer.message()
    consumer.send(b"REQ " + second + b" 0\n")
    consumer.message()
    wait_until(lambda: broker.stats()["topics"][0]["channels"][0]["requeue_count"] == 1)
    return broker


def test_ping_is_plain_ok(broker):
    """The answer is text without an NSQ header, for a supervisor's health check."""
    answer = broker.request("GET", "/ping")
    assert (answer.status, answer.text) == (200, "OK")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "x-nsq-content-type" not in answer.headers


def test_info_has_version_names_and_ports(start_broker):
    """Keys in nsqd's order, ports resolved, intervals in nanoseconds."""
    before = int(time.time())
    broker = start_broker("--broadcast-address=there", "--topology-zone=z", "--topology-region=r")
    info = json.loads(broker.request("GET", "/info").text)
    assert before <= info.pop("start_time") <= time.time()
    assert list(info.items()) == [
        ("version", "1.3.0"),
        ("broadcast_address", "there"),
        ("hostname", gethostname()),
        ("http_port", broker.http[1]),
        ("tcp_port", broker.tcp[1]),
        ("max_heartbeat_interval", 60_000_000_000),
        ("max_output_buffer_size", 65536),
        ("max_output_buffer_timeout", 30_000_000_000),
        ("max_deflate_level", 6),
        ("topology_zone", "z"),
        ("topology_region", "r"),
    ]


def test_stats_of_a_fresh_broker_has_an_empty_list_and_no_producers(broker):
    """Without topics and producers, topics is [] and producers is null."""
    stats = json.loads(broker.request("GET", "/stats?format=json&include_mem=false").text)
    assert list(stats) == ["version", "health", "start_time", "topics", "producers"]
    assert (stats["version"], stats["health"], stats["topics"], stats["producers"]) == ("1.3.0", "OK", [], None)


def test_stats_has_the_counts_of_the_traffic(consumed):
    """Keys are in nsqd's order, and the numbers are those of the traffic."""
    stats = consumed.stats()
    assert list(stats) == ["version", "health", "start_time", "topics", "memory", "producers"]
    (topic,) = stats["topics"]
    assert list(topic) == TOPIC_KEYS
    assert (topic["topic_name"], topic["depth"], topic["message_count"], topic["message_bytes"]) == ("t", 0, 4, 8)
    assert topic["e2e_processing_latency"] == {"count": 0, "percentiles": None}
    (channel,) = topic["channels"]
    assert [key for key in channel if not key.endswith("_msg_count")] == CHANNEL_KEYS
    counts = {key: channel[key] for key in channel if key.endswith(("count", "depth"))}
    assert (counts["depth"], counts["in_flight_count"], counts["deferred_count"]) == (1, 1, 1)
    assert (counts["message_count"], counts["requeue_count"], counts["timeout_count"]) == (4, 1, 0)
    (client,) = channel["clients"]
    assert channel["client_count"] == 1
    assert list(client) == CLIENT_KEYS
    assert (client["client_id"], client["hostname"], client["user_agent"]) == ("me", "my.host", "<ua>/1 & ü")
    assert (client["version"], client["state"], client["ready_count"], client["in_flight_count"]) == ("V2", 3, 1, 1)
    assert (client["message_count"], client["finish_count"], client["requeue_count"]) == (3, 1, 1)
    assert client["remote_address"].startswith("127.0.0.1:")
    assert abs(client["connect_ts"] - time.time()) < 60
    (producer,) = stats["producers"]
    assert producer["pub_counts"] == [{"topic": "t", "count": 4}]
    assert (producer["state"], producer["client_id"]) == (0, "127.0.0.1")


def test_strings_are_escaped_as_go_escapes_them(consumed):
    """Characters with a meaning in HTML are escaped, other text is raw UTF-8."""
    text = consumed.request("GET", "/stats?format=json").text
    assert '"user_agent":"\\u003cua\\u003e/1 \\u0026 ü"' in text


def test_stats_can_be_narrowed(consumed):
    """By topic and by channel, without clients, without memory."""
    consumed.request("POST", "/topic/create?topic=a")
    consumed.request("POST", "/channel/create?topic=a&channel=z")
    consumed.request("POST", "/channel/create?topic=a&channel=b")
    assert [t["topic_name"] for t in consumed.stats()["topics"]] == ["a", "t"]
    assert [c["channel_name"] for c in consumed.stats()["topics"][0]["channels"]] == ["b", "z"]
    assert [t["topic_name"] for t in consumed.stats(topic="t")["topics"]] == ["t"]
    by_channel = consumed.stats(channel="b")["topics"]
    assert [(t["topic_name"], [c["channel_name"] for c in t["channels"]]) for t in by_channel] == [("a", ["b"])]
    assert consumed.stats(topic="t", channel="b")["topics"] == []
    assert consumed.stats(channel="none")["topics"] == []

    unknown = consumed.stats(topic="none")
    assert (unknown["topics"], unknown["producers"]) == (None, None)

    for word in ("false", "0"):
        bare = consumed.stats(include_clients=word, include_mem=word)
        assert "memory" not in bare
        assert bare["producers"] is None
        assert [c["clients"] for t in bare["topics"] for c in t["channels"]] == [None] * 3
        assert bare["topics"][1]["channels"][0]["client_count"] == 1
    for word in ("true", "1", "", "False", "no"):
        full = consumed.stats(include_clients=word, include_mem=word)
        assert "memory" in full
        assert len(full["producers"]) == 1


def test_producers_stay_listed_under_a_filter_that_does_not_match(consumed):
    """Only their counts are narrowed to the requested topic."""
    consumed.request("POST", "/topic/create?topic=other")
    (producer,) = consumed.stats(topic="other")["producers"]
    assert "pub_counts" not in producer
    (producer,) = consumed.stats(topic="t")["producers"]
    assert producer["pub_counts"] == [{"topic": "t", "count": 4}]


def test_topics_may_come_and_go_while_many_are_listed(broker):
    """A broker with many topics answers in order; a topic that is deleted meanwhile is left out."""
    names = sorted(f"topic-{number}" for number in range(150))
    for name in names:
        broker.request("POST", f"/topic/create?topic={name}")
        broker.request("POST", f"/channel/create?topic={name}&channel=c")
    assert [topic["topic_name"] for topic in broker.stats()["topics"]] == names
    with ThreadPoolExecutor(2) as pool:
        deletions = [pool.submit(broker.request, "POST", f"/topic/delete?topic={name}") for name in reversed(names)]
        while not all(deletion.done() for deletion in deletions):
            listed = [topic["topic_name"] for topic in broker.stats(channel="c")["topics"]]
            assert listed == sorted(listed)
    assert [deletion.result().status for deletion in deletions] == [200] * len(names)
    assert broker.stats()["topics"] == []


def test_text_is_the_answer_to_any_other_format(consumed):
    """Scripts that omit format= get nsqd's text."""
    for query in ("", "?format=text", "?format=JSON"):
        answer = consumed.request("GET", f"/stats{query}")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.text.startswith("nsqd v1.3.0 (built w/")
        assert "\nHealth: OK\n" in answer.text
        assert "\n   [t              ] depth: 0     be-depth: " in answer.text
        assert "inflt: 1    def: 1    re-q: 1     timeout: 0     msgs: 4        e2e%: \n" in answer.text
        assert "        [V2 my.host:" in answer.text
        assert " topics: t=4 connected: " in answer.text
    bare = consumed.request("GET", "/stats?include_clients=false&include_mem=0").text
    assert "Memory" not in bare
    assert "[V2 " not in bare
    assert bare.endswith("\nProducers: None\n")


def test_histograms_come_only_when_asked_for(consumed):
    """include_histograms adds cumulative latencies, ages and the identity of the process."""
    plain = consumed.stats()
    assert "boot_id" not in plain
    assert "latency_histogram" not in plain["topics"][0]["channels"][0]
    stats = consumed.stats(include_histograms="true")
    assert stats["node_id"] == json.loads(consumed.request("GET", "/config/id").text)
    assert len(stats["boot_id"]) == 16
    assert int(stats["boot_id"], 16) >= 0
    assert (stats["version"], stats["release"]) == ("1.3.0", product_version())
    (topic,) = stats["topics"]
    (channel,) = topic["channels"]
    histogram = channel["latency_histogram"]
    assert histogram["scale"] == 5
    assert histogram["zero_count"] + sum(histogram["counts"]) == 1
    assert channel["oldest_unfinished_age_ns"] > 0
    assert topic["oldest_unfinished_age_ns"] >= channel["oldest_unfinished_age_ns"]
    later = consumed.stats(include_histograms="1")["topics"][0]["channels"][0]["oldest_unfinished_age_ns"]
    assert later > channel["oldest_unfinished_age_ns"]


def test_a_channel_with_nothing_unfinished_has_no_age(broker):
    """The age is null, not zero."""
    broker.request("POST", "/topic/create?topic=t")
    broker.request("POST", "/channel/create?topic=t&channel=c")
    (topic,) = broker.stats(include_histograms="true")["topics"]
    assert topic["oldest_unfinished_age_ns"] is None
    assert topic["channels"][0]["oldest_unfinished_age_ns"] is None
    assert topic["channels"][0]["latency_histogram"] == {"scale": 5, "zero_count": 0, "offset": 0, "counts": []}


def test_what_is_emptied_or_rewound_is_counted_and_nothing_else_changes(start_broker, connect):
    """Finished, emptied and rewound messages account for the difference between what came and what is there. An empty
    topic or channel adds nothing."""
    broker = start_broker("--retention=1h")

    def counts() -> tuple[int, int, int]:
        channel = broker.stats(include_histograms="true")["topics"][0]["channels"][0]
        histogram = channel["latency_histogram"]
        finished = histogram["zero_count"] + sum(histogram["counts"])
        unfinished = channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]
        came = channel["message_count"] + channel["rewound_count"]
        assert came == finished + channel["emptied_count"] + unfinished
        return finished, channel["emptied_count"], channel["rewound_count"]

    def post(path: str) -> None:
        assert broker.request("POST", path).status == 200

    post("/topic/create?topic=t")
    post("/channel/create?topic=t&channel=c")
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    assert broker.request("POST", "/mpub?topic=t", b"a\nb\nc\nd\ne").status == 200
    consumer.send(b"RDY 3\n")
    ids = [consumer.message()[0] for _ in range(3)]
    consumer.send(b"RDY 0\n" + b"".join(b"FIN " + each + b"\n" for each in ids[:2]))
    assert wait_until(lambda: counts() == (2, 0, 0))
    connect(broker).ok(b"DPUB t 60000\n\x00\x00\x00\x01f")
    post("/channel/empty?topic=t&channel=c")  # one in flight, two ready, one deferred
    post("/channel/empty?topic=t&channel=c")
    assert counts() == (2, 4, 0)
    post("/channel/rewind?topic=t&channel=c&since=10m")  # all six, finished and emptied ones
    assert counts() == (2, 4, 6)
    post("/channel/rewind?topic=t&channel=c&since=10m")  # all of them wait already
    assert counts() == (2, 4, 6)
    post("/topic/pause?topic=t")
    assert broker.request("POST", "/mpub?topic=t", b"g\nh\ni").status == 200
    post("/topic/empty?topic=t")
    post("/topic/unpause?topic=t")
    post("/topic/empty?topic=t")
    assert counts() == (2, 4, 6)
    assert broker.stats(include_histograms="true")["topics"][0]["emptied_count"] == 3
    assert "emptied_count" not in broker.request("GET", "/stats?format=json").text
    metrics = broker.request("GET", "/metrics").text
    assert 'nsq_channel_emptied_messages_total{channel="c",topic="t"} 4' in metrics
    assert 'nsq_channel_rewound_messages_total{channel="c",topic="t"} 6' in metrics
    assert 'nsq_topic_emptied_messages_total{topic="t"} 3' in metrics


def test_the_boot_id_is_new_after_each_start(start_broker):
    """Readers of counters notice that these began again."""
    first = start_broker()
    boot_id = first.stats(include_histograms="true")["boot_id"]
    first.terminate()
    assert start_broker(data_path=first.data_path).stats(include_histograms="true")["boot_id"] != boot_id


def test_the_uptime_does_not_depend_on_the_wall_clock(broker):
    """A reader can put readings of one process in order."""
    first, second = (broker.stats(include_histograms="true")["uptime_ns"] for _ in range(2))
    assert 0 < first < second
    assert "uptime_ns" not in broker.stats()


def test_a_broker_returns_the_last_figures_of_its_previous_process(start_broker, connect):
    """With previous_boot=true the answer has everything that was finished until the end, even if nobody read it in
    time."""
    first = start_broker()
    assert first.request("POST", "/mpub?topic=t", b"a\nb\nc").status == 200
    boot = first.stats(include_histograms="true")["boot_id"]
    client = connect(first)
    client.ok(b"SUB t c\n")
    client.send(b"RDY 3\n")
    for _ in range(3):
        client.send(b"FIN " + client.message()[0] + b"\n")
    client.ok(b"PUB t\n\x00\x00\x00\x01d")  # once it is answered, all earlier commands have been handled
    assert first.terminate() == 0
    second = start_broker(data_path=first.data_path)
    assert "previous_boot" not in second.stats(include_histograms="true")
    stats = second.stats(include_histograms="true", previous_boot="true")
    assert stats["boot_id"] != boot
    previous = stats["previous_boot"]
    assert previous["boot_id"] == boot
    assert previous["uptime_ns"] > 0
    (topic,) = previous["topics"]
    assert topic["message_count"] == 4
    histogram = topic["channels"][0]["latency_histogram"]
    assert histogram["zero_count"] + sum(histogram["counts"]) == 3


def test_a_killed_broker_leaves_no_last_figures(start_broker):
    """Nor is an older process, whose figures readers have had long before."""
    broker = start_broker()
    broker.terminate()
    broker = start_broker(data_path=broker.data_path)
    broker.kill()
    broker = start_broker(data_path=broker.data_path)
    assert broker.stats(include_histograms="true", previous_boot="true")["previous_boot"] is None


def test_debug_endpoints_do_their_work_and_say_so(broker):
    """nsqd answers 500 by mistake, this broker 200; an invalid rate is refused with Go's text."""
    assert broker.request("POST", "/debug/freememory").status == 200
    assert broker.request("PUT", "/debug/setblockrate?rate=10").status == 200
    answer = broker.request("PUT", "/debug/setblockrate?rate=x")
    assert answer.status == 400
    assert answer.text == 'invalid block rate : strconv.Atoi: parsing "x": invalid syntax'
    assert broker.request("PUT", "/debug/setblockrate").text == (
        'invalid block rate : strconv.Atoi: parsing "": invalid syntax'
    )


def test_a_clients_name_may_be_invalid_unicode(broker, connect):
    """A lone surrogate becomes U+FFFD, as in Go, wherever it is shown; the rest of /stats is unaffected."""
    client = connect(broker)
    body = rb'{"client_id": "\ud800", "hostname": "\udfff.example", "user_agent": "\ud800/1"}'
    client.ok(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body)
    client.ok(b"SUB t c\n")
    for target in ("/stats", "/stats?format=json", "/metrics"):
        assert broker.request("GET", target).status == 200
    assert "\ufffd" in broker.request("GET", "/stats").text
    (topic,) = broker.stats()["topics"]
    assert topic["channels"][0]["clients"][0]["hostname"] == "\ufffd.example"


def test_clients_show_timeouts_and_their_oldest_message_in_flight(broker, connect):
    """With include_histograms; without it, and for a client that has no message, there is nothing of them."""
    busy, idle = connect(broker), connect(broker)
    settings = b'{"client_id":"busy","msg_timeout":1000}'
    busy.ok(b"IDENTIFY\n" + len(settings).to_bytes(4, "big") + settings)
    busy.ok(b"SUB t c\n")
    idle.ok(b"SUB t c\n")
    busy.send(b"RDY 1\n")
    connect(broker).ok(b"PUB t\n\x00\x00\x00\x01x")
    busy.message()

    def clients() -> dict[int, dict]:
        (topic,) = broker.stats(include_histograms="true")["topics"]
        return {client["ready_count"]: client for client in topic["channels"][0]["clients"]}

    before = time.monotonic()
    first = clients()[1]["oldest_in_flight_age_ns"]
    second = clients()[1]["oldest_in_flight_age_ns"]
    assert 0 < first < second
    assert second - first <= (time.monotonic() - before) * 1e9
    assert (clients()[0]["timeout_count"], clients()[0]["oldest_in_flight_age_ns"]) == (0, None)
    wait_until(lambda: clients()[1]["timeout_count"] == 1)
    wait_until(lambda: clients()[1]["oldest_in_flight_age_ns"] is not None)  # delivered again
    assert [*broker.stats()["topics"][0]["channels"][0]["clients"][0]] == CLIENT_KEYS


def test_clients_show_a_touched_message_as_their_oldest(broker, connect):
    """A client whose messages were all touched has an age of its own, beside one with a message that was not."""

    def ages() -> list[int]:
        (topic,) = broker.stats(include_histograms="true")["topics"]
        return [client["oldest_in_flight_age_ns"] for client in topic["channels"][0]["clients"]]

    clients = [connect(broker) for _ in range(2)]
    for number, client in enumerate(clients):
        client.ok(b"SUB t c\n")
        client.send(b"RDY 1\n")
        connect(broker).ok(b"PUB t\n\x00\x00\x00\x01x")
        message_id, _, _ = client.message()
        if number == 0:
            client.send(b"TOUCH " + message_id + b"\n")
            wait_until(lambda: ages()[0] > 10_000_000)  # times of deliveries are in milliseconds
    first, second = ages()
    assert first > second > 0
