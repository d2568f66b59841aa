"""The metrics that Prometheus reads from /metrics."""

from __future__ import annotations

import json
import time

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from brokerd.file_header import HEADER_BYTES
from tests.harness.waiting import wait_until


class Scrape:
    """An answer of /metrics: ``scrape["name", topic, channel]`` is the sample's value."""

    def __init__(self, broker) -> None:
        answer = broker.request("GET", "/metrics")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        self.text = answer.text
        self.samples = [s for family in text_string_to_metric_families(answer.text) for s in family.samples]

    def __getitem__(self, key):
        name, *labels = (key,) if isinstance(key, str) else key
        wanted = dict(zip(("topic", "channel", "le"), labels, strict=False))
        (value,) = [s.value for s in self.samples if s.name == name and s.labels == wanted]
        return value

    def named(self, name):
        return [sample for sample in self.samples if sample.name == name]


@pytest.fixture
def busy(broker, connect):
    """Topic t: one message finished, one in flight, one deferred, two waiting; topic t:c paused. Topic idle."""
    broker.request("POST", "/topic/create?topic=idle")
    producer = connect(broker)
    for body in (b"one", b"two", b"three", b"four"):
        producer.ok(b"PUB t\n" + len(body).to_bytes(4, "big") + body)
    producer.ok(b"DPUB t 60000\n\x00\x00\x00\x04five")
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    message_id, _, _ = consumer.message()
    taken_at = time.monotonic()
    wait_until(lambda: time.monotonic() > taken_at + 0.01)  # a latency that the histogram does not round to zero
    consumer.send(b"FIN " + message_id + b"\n")
    consumer.message()
    broker.request("POST", "/channel/pause?topic=t&channel=c")
    return broker


def test_the_answer_passes_prometheus_own_rules(busy, metrics_problems):
    """Names, units, help texts and types follow the conventions; no series is repeated."""
    scrape = Scrape(busy)
    assert metrics_problems(scrape.text) == []
    assert metrics_problems("# TYPE x_ms counter\nx_ms 1\n"), "the rules can fail"


def test_topics_and_channels_have_their_figures(busy):
    """Depths, counts, clients, ages and sizes, with labels for topic and channel."""
    scrape = Scrape(busy)
    assert scrape["nsq_topic_messages_total", "t"] == 5
    assert scrape["nsq_topic_message_bytes_total", "t"] == 19
    assert scrape["nsq_topic_depth", "t"] == 0
    assert scrape["nsq_topic_log_bytes", "t"] > 19
    assert scrape["nsq_topic_log_allocated_bytes", "t"] >= scrape["nsq_topic_log_bytes", "t"]
    assert scrape["nsq_topic_messages_total", "idle"] == 0
    assert scrape["nsq_channel_messages_total", "t", "c"] == 5
    assert scrape["nsq_channel_depth", "t", "c"] == 2
    assert scrape["nsq_channel_in_flight", "t", "c"] == 1
    assert scrape["nsq_channel_deferred", "t", "c"] == 1
    assert scrape["nsq_channel_clients", "t", "c"] == 1
    assert scrape["nsq_channel_paused", "t", "c"] == 1
    uptime_s = time.time() - psutil.Process(busy.process.pid).create_time()
    assert 0 < scrape["nsq_channel_oldest_unfinished_age_seconds", "t", "c"] < uptime_s
    assert (scrape["nsq_topics"], scrape["nsq_channels"], scrape["nsq_clients"]) == (2, 1, 2)
    assert scrape["nsq_healthy"] == 1
    assert scrape["nsq_journal_bytes"] > 0


def test_latencies_are_a_histogram_in_seconds(busy):
    """Cumulative counts up to +Inf, which equals the count; the sum is the sum of latencies, within the histogram's
    error."""
    scrape = Scrape(busy)
    assert scrape["nsq_channel_latency_seconds_count", "t", "c"] == 1
    assert scrape["nsq_channel_latency_seconds_bucket", "t", "c", "+Inf"] == 1
    total = scrape["nsq_channel_latency_seconds_sum", "t", "c"]
    assert 0.009 < total < 60
    bounds = [(float(s.labels["le"]), s.value) for s in scrape.named("nsq_channel_latency_seconds_bucket")]
    assert all(count == (bound > total) for bound, count in bounds if not 0.98 < bound / total < 1.02)
    assert not [s for s in scrape.samples if s.name.endswith("_count") and s.labels.get("topic") == "idle"]


def test_lost_messages_are_counted_by_topic_and_node(start_broker, tmp_path):
    """In /metrics, and in /stats with histograms; nsqd's keys are unchanged."""
    broker = start_broker(data_path=tmp_path)
    broker.request("POST", "/mpub?topic=t", b"one\ntwo\nthree")
    broker.request("POST", "/pub?topic=whole", b"one")
    broker.kill()
    [segment] = tmp_path.glob("topics/t.*/*.log")
    with segment.open("r+b") as file:
        file.seek(HEADER_BYTES + 35)
        file.write(b"?")
    again = start_broker(data_path=tmp_path)
    scrape = Scrape(again)
    assert scrape["nsq_lost_messages_total"] == 3
    assert (scrape["nsq_topic_lost_messages_total", "t"], scrape["nsq_topic_lost_messages_total", "whole"]) == (3, 0)
    stats = again.stats(include_histograms="true")
    assert stats["lost_message_count"] == 3
    assert [topic["lost_message_count"] for topic in stats["topics"]] == [3, 0]
    assert "lost_message_count" not in json.dumps(again.stats())
    assert stats["topics"][0]["depth"] == 0


def test_metrics_of_the_process_are_included(broker):
    """Processor time, memory, descriptors, start time and build."""
    scrape = Scrape(broker)
    assert scrape["process_cpu_seconds_total"] > 0
    assert scrape["process_resident_memory_bytes"] > 1_000_000
    assert scrape["process_open_fds"] > 3
    started_at = psutil.Process(broker.process.pid).create_time()
    assert scrape["process_start_time_seconds"] == pytest.approx(started_at, abs=2)
    (build,) = scrape.named("nsq_build_info")
    assert (build.labels["program"], build.labels["nsq_version"], build.value) == ("nsqd", "1.3.0", 1)


def test_a_scrape_of_many_topics_is_whole_and_others_are_served_meanwhile(broker, metrics_problems):
    """The answer is written in portions, with each family's head and each series once."""
    for number in range(300):
        broker.request("POST", f"/topic/create?topic=t{number}")
        broker.request("POST", f"/channel/create?topic=t{number}&channel=c")
    scrape = Scrape(broker)
    assert metrics_problems(scrape.text) == []
    assert {s.labels["topic"] for s in scrape.named("nsq_channel_depth")} == {f"t{n}" for n in range(300)}


def test_scrapes_are_kept_out_of_the_log(broker):
    """A line every few seconds would hide the others."""
    Scrape(broker)
    broker.request("GET", "/info")
    broker.wait_for_log("200 GET /info")
    assert not [line for line in broker.log if "/metrics" in line]
