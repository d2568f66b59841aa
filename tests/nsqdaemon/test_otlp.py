"""Metrics that daemons push by OTLP, with a receiver on a real socket."""

from __future__ import annotations

import importlib.util
import math
import re
import signal
from collections.abc import Iterator

import psutil
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.sdk.resources import Resource
from prometheus_client.parser import text_string_to_metric_families

from nsqdaemon.otlp import OTLPUnusable, check_endpoint
from nsqdaemon.otlp.conversion import metrics_of
from tests.harness import web
from tests.harness.daemon import BROKER, REGISTRY, Daemon
from tests.harness.otlp import FLOOD_BYTES, Pushed, Receiver
from tests.harness.processes import descendants
from tests.harness.v2 import V2Client
from tests.harness.waiting import DEADLINE_S, wait_until


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def broker(receiver, tmp_path) -> Iterator[Daemon]:
    """A broker that pushes to the receiver once a second."""
    flags = f"--data-path={tmp_path}", "--broadcast-address=127.0.0.1", f"--otlp-endpoint={receiver.url}/"
    with Daemon(BROKER, *flags, "--otlp-interval=1s") as broker:
        broker.wait_until_ready()
        yield broker


def families_of(daemon: Daemon) -> dict:
    text = web.get(f"http://{daemon.http_address}/metrics").text
    return {family.name: family for family in text_string_to_metric_families(text)}


def children_of(daemon: Daemon) -> list[psutil.Process]:
    return descendants(daemon.process.pid)


def values(points) -> dict:
    """The values of data points by the values of their labels."""
    return {tuple(sorted(each.value.string_value for each in point.attributes)): point.as_double for point in points}


def test_a_broker_pushes_what_metrics_has(broker, receiver):
    """Every family, with labels, values, units, kinds and the time of the start, under nsqd's name."""
    http = f"http://{broker.http_address}"
    web.post(f"{http}/topic/create?topic=orders")
    web.post(f"{http}/channel/create?topic=orders&channel=mail")
    for _ in range(3):
        web.post(f"{http}/pub?topic=orders", content=b"hello")
    host, port = broker.tcp_address.split(":")
    with V2Client((host, int(port))) as client:
        client.sub("orders", "mail", 1)
        client.send(b"FIN %b\n" % client.message()[0])
        latency = "nsq_channel_latency_seconds"

        def pushed() -> Pushed | None:
            found = receiver.of("nsqd")
            counted = found and found[-1].metrics.get(latency)
            return found[-1] if counted and counted.histogram.data_points else None

        last = wait_until(pushed, "the latency of the finished message was pushed")
        scraped = families_of(broker)
    assert receiver.paths == {"/v1/metrics"}
    assert last.resource["service.instance.id"] == broker.http_address
    assert last.metrics.keys() == {name for name, family in scraped.items() if family.samples}

    messages = last.metrics["nsq_topic_messages"]
    assert (messages.sum.is_monotonic, messages.sum.aggregation_temporality) == (
        True, AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )  # fmt: skip
    assert values(messages.sum.data_points) == {("orders",): 3}
    assert messages.description == "Messages published."
    assert last.metrics["nsq_topic_message_bytes"].unit == "By"
    assert values(last.metrics["nsq_channel_clients"].gauge.data_points) == {("mail", "orders"): 1}
    started = scraped["process_start_time_seconds"].samples[0].value
    assert messages.sum.data_points[0].start_time_unix_nano == pytest.approx(started * 1e9, rel=1e-12)

    (point,) = last.metrics[latency].histogram.data_points
    bounds = [float(each.labels["le"]) for each in scraped[latency].samples if each.name.endswith("_bucket")]
    assert [*point.explicit_bounds, math.inf] == bounds
    assert (point.count, sum(point.bucket_counts), len(point.bucket_counts)) == (1, 1, len(bounds))
    assert point.sum > 0
    assert last.metrics[latency].unit == "s"


def test_a_registry_pushes_what_metrics_has(receiver):
    """Under nsqlookupd's name."""
    flags = "--broadcast-address=127.0.0.1", f"--otlp-endpoint={receiver.url}", "--otlp-interval=1s"
    with Daemon(REGISTRY, *flags) as registry:
        registry.wait_until_ready()
        web.post(f"http://{registry.http_address}/topic/create?topic=orders")

        def pushed() -> Pushed | None:
            found = receiver.of("nsqlookupd")
            return found[-1] if found and values(found[-1].metrics["nsq_lookup_topics"].gauge.data_points)[()] else None

        last = wait_until(pushed, "the topic was pushed")
        assert last.metrics.keys() == families_of(registry).keys()
        assert last.resource["service.instance.id"] == registry.http_address
        assert registry.terminate() == 0


def test_a_receiver_that_refuses_is_reported_once(broker, receiver):
    """The log has the first of many failures, and when it is over."""
    receiver.status = 400
    broker.wait_for_log(f"OTLP: cannot push metrics to {re.escape(receiver.url)}/: .*400")
    receiver.paths.clear()
    wait_until(lambda: receiver.paths, "another push was refused")
    receiver.status = 200
    broker.wait_for_log("OTLP: metrics are pushed to .* again")
    assert sum("cannot push" in line for line in broker.log) == 1


@pytest.mark.parametrize(
    ("status", "location", "reason"),
    [(302, "/signin", "302 redirects to /signin"), (308, None, "308 redirects to nowhere"), (304, None, "304")],
)
def test_a_redirect_is_a_failure(broker, receiver, status, location, reason):
    """OpenTelemetry's exporter counts it as success: the metrics would be lost without an error."""
    receiver.location = location
    receiver.status = status
    broker.wait_for_log(f"OTLP: cannot push metrics to .*{reason}")
    receiver.status, receiver.location = 200, None
    broker.wait_for_log("OTLP: metrics are pushed to .* again")


def test_a_reason_longer_than_any_line_is_cut_and_pushing_goes_on(broker, receiver):
    """As long as HTTP allows, of characters that take two bytes in UTF-8."""
    receiver.status, receiver.reason = 400, "é" * 65_000
    line = broker.wait_for_log("OTLP: cannot push metrics to .*400").string
    assert len(line) < 1000
    receiver.status, receiver.reason = 200, None
    broker.wait_for_log("OTLP: metrics are pushed to .* again")


def test_a_response_that_does_not_end_takes_no_memory(broker, receiver):
    """A part of it is read, the connection is closed, and the metrics count as sent."""
    receiver.floods = True
    wait_until(lambda: receiver.flooded_bytes, "a response was cut short")
    assert receiver.flooded_bytes < FLOOD_BYTES // 8
    receiver.floods = False
    count = len(receiver.pushed)
    wait_until(lambda: len(receiver.pushed) > count + 1, "pushing goes on")
    assert not any("cannot push" in line for line in broker.log)


def test_the_process_that_pushes_is_replaced_and_ends_with_the_broker(broker, receiver):
    """It is killed, then the broker is."""
    wait_until(lambda: receiver.pushed, "a push")
    (first,) = children_of(broker)
    first.kill()
    broker.wait_for_log("OTLP: metrics are pushed to .* again")
    (second,) = children_of(broker)
    assert second.pid != first.pid
    broker.kill()
    second.wait(DEADLINE_S)


def test_a_stopped_broker_leaves_no_process(broker, receiver):
    """And its status is 0."""
    wait_until(lambda: receiver.pushed, "a push")
    (child,) = children_of(broker)
    broker.signal(signal.SIGTERM)
    assert broker.wait_for_exit() == 0
    child.wait(DEADLINE_S)


@pytest.mark.parametrize("module", [BROKER, REGISTRY])
@pytest.mark.parametrize("endpoint", ["http://a b:1", "127.0.0.1:4318", "grpc://h:4317", "http://"])
def test_an_endpoint_that_is_no_url_is_refused_at_the_start(module, endpoint):
    """One line names the flag, with status 1."""
    with Daemon(module, f"--otlp-endpoint={endpoint}") as daemon:
        assert daemon.wait_for_exit() == 1
    says = f"--otlp-endpoint: {endpoint!r} is not an http:// or https:// URL, such as http://127.0.0.1:4318"
    assert daemon.log[-1].endswith(says)


def test_a_missing_exporter_is_named(monkeypatch):
    """With the command that installs it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OTLPUnusable, match=re.escape("pip install 'nsq-common[otel]'")):
        check_endpoint("http://127.0.0.1:4318")


def test_a_histogram_is_converted_exactly():
    """Prometheus' counts include those of lower buckets, OpenTelemetry's do not; labels have a point each."""
    text = """# HELP h A histogram.
# TYPE h histogram
h_bucket{a="x",le="0.1"} 1
h_bucket{a="x",le="1"} 3
h_bucket{a="x",le="+Inf"} 7
h_count{a="x"} 7
h_sum{a="x"} 9.5
h_bucket{a="y",le="0.1"} 0
h_bucket{a="y",le="1"} 0
h_bucket{a="y",le="+Inf"} 0
h_count{a="y"} 0
h_sum{a="y"} 0
"""
    (resource,) = metrics_of(text, Resource({}), 5, 8).resource_metrics
    (metric,) = resource.scope_metrics[0].metrics
    first, second = metric.data.data_points
    assert (first.attributes, first.explicit_bounds, first.bucket_counts) == ({"a": "x"}, [0.1, 1.0], [1, 2, 4])
    assert (first.count, first.sum, first.start_time_unix_nano, first.time_unix_nano) == (7, 9.5, 5, 8)
    assert (second.attributes, second.bucket_counts, second.count) == ({"a": "y"}, [0, 0, 0], 0)
