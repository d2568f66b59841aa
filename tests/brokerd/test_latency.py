"""Latency percentiles: the fields that --e2e-processing-latency-percentile adds to /stats."""

from __future__ import annotations

import time

import pytest

from tests.harness.waiting import wait_until

PERCENTILES = "--e2e-processing-latency-percentile"
WINDOW = "--e2e-processing-latency-window-time"


def channel_latency(broker, topic="t"):
    (row,) = broker.stats(topic=topic)["topics"]
    return [channel["e2e_processing_latency"] for channel in row["channels"]]


def topic_latency(broker, topic="t"):
    (row,) = broker.stats(topic=topic)["topics"]
    return row["e2e_processing_latency"]


@pytest.fixture
def finish(connect):
    """Receive ``count`` messages from a channel, let each become ``age`` seconds old, and finish it."""

    def run(broker, topic, channel, count=1, age=0.0):
        consumer = connect(broker)
        consumer.ok(f"SUB {topic} {channel}\n".encode())
        consumer.send(b"RDY 1\n")
        for left in reversed(range(count)):
            message_id, _, _ = consumer.message()
            taken_at = time.monotonic()
            wait_until(lambda: time.monotonic() >= taken_at + age)  # noqa: B023 (called at once)
            consumer.send(b"RDY %d\nFIN " % bool(left) + message_id + b"\n")
        consumer.ok(b"PUB other\n\x00\x00\x00\x01x")  # once it is answered, the earlier FINs are counted
        consumer.socket.close()

    return run


def publish(broker, topic, count=1):
    for _ in range(count):
        assert broker.request("POST", f"/pub?topic={topic}", b"x").status == 200


def test_each_channel_has_percentiles_and_the_topic_those_of_all(start_broker, finish):
    """Quantiles are in the order of the flags; a topic's counts are the sums of its channels'."""
    broker = start_broker(f"{PERCENTILES}=0.5", f"{PERCENTILES}=0.99,1")
    broker.request("POST", "/topic/create?topic=t")
    for channel in ("fast", "slow"):
        broker.request("POST", f"/channel/create?topic=t&channel={channel}")
    publish(broker, "t", 3)
    finish(broker, "t", "fast", 3)
    finish(broker, "t", "slow", 1, age=0.3)
    fast, slow = channel_latency(broker)
    assert [each["quantile"] for each in fast["percentiles"]] == [1, 0.99, 0.5]
    assert (fast["count"], slow["count"], topic_latency(broker)["count"]) == (3, 1, 4)
    assert all(isinstance(each["value"], int) and each["value"] > 0 for each in fast["percentiles"])
    assert {each["value"] for each in slow["percentiles"]} == {slow["percentiles"][0]["value"]}
    assert slow["percentiles"][0]["value"] > 290_000_000
    assert slow["percentiles"][0]["value"] == topic_latency(broker)["percentiles"][0]["value"]
    assert topic_latency(broker)["percentiles"][2]["value"] == fast["percentiles"][2]["value"]


def test_latencies_older_than_the_window_are_forgotten(start_broker, finish):
    """After a window without a FIN, count and values are 0 again; the cumulative histogram keeps its count."""
    broker = start_broker(f"{PERCENTILES}=0.99", f"{WINDOW}=5s")
    publish(broker, "t")
    finish(broker, "t", "c")
    assert channel_latency(broker)[0]["count"] == 1
    started = time.monotonic()
    wait_until(lambda: channel_latency(broker) == [{"count": 0, "percentiles": [{"quantile": 0.99, "value": 0}]}])
    assert time.monotonic() - started > 0.3
    assert topic_latency(broker) == {"count": 0, "percentiles": [{"quantile": 0.99, "value": 0}]}
    (row,) = broker.stats(topic="t", include_histograms="true")["topics"]
    histogram = row["channels"][0]["latency_histogram"]
    assert histogram["zero_count"] + sum(histogram["counts"]) == 1
    publish(broker, "t")
    finish(broker, "t", "c")
    assert channel_latency(broker)[0]["count"] == 1


def test_requeues_are_no_samples(start_broker, connect):
    """Only finished messages have a latency."""
    broker = start_broker(f"{PERCENTILES}=0.99")
    publish(broker, "t")
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    message_id, _, _ = consumer.message()
    consumer.send(b"REQ " + message_id + b" 0\n")
    again, attempts, _ = consumer.message()
    assert (again, attempts) == (message_id, 2)
    assert channel_latency(broker)[0]["count"] == 0
    consumer.send(b"FIN " + again + b"\n")
    wait_until(lambda: channel_latency(broker)[0]["count"] == 1)


def test_a_topic_without_channels_has_no_percentiles(start_broker):
    """They are null, as in nsqd."""
    broker = start_broker(f"{PERCENTILES}=0.99")
    broker.request("POST", "/topic/create?topic=t")
    assert topic_latency(broker) == {"count": 0, "percentiles": None}


def test_text_shows_them_in_the_order_of_the_flags(start_broker, finish):
    """The last column of a line has one value for each percentile, with its unit."""
    broker = start_broker(f"{PERCENTILES}=0.5", f"{PERCENTILES}=1")
    publish(broker, "t")
    finish(broker, "t", "c", age=0.2)
    lines = broker.request("GET", "/stats?topic=t").text.splitlines()
    for name in ("t", "c"):
        (line,) = [line for line in lines if f"[{name} " in line]
        first, second = line.partition("e2e%: ")[2].split(", ")
        assert first == second
        assert first.endswith("ms")
        assert 195 < float(first.removesuffix("ms")) < 10_000


def test_a_files_percentiles_keep_their_order(start_broker, tmp_path):
    """Percentiles from flags are sorted in descending order; those of a file keep their order."""
    file = tmp_path / "nsqd.cfg"
    file.write_text("e2e_processing_latency_percentiles = [0.5, 1.0, 0.9]\n")
    broker = start_broker(f"--config={file}")
    assert broker.request("GET", "/config/e2e_processing_latency_percentiles").text == "[0.5,1,0.9]"
    assert start_broker(f"{PERCENTILES}=0.5,1", f"{PERCENTILES}=0.9").request(
        "GET", "/config/e2e_processing_latency_percentiles"
    ).text == ("[1,0.9,0.5]")
