"""The platform's own metrics for Prometheus. Each process counts its own; the collector, which listens on no port,
stores its text in Redis with every poll, and the web process serves both."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from django.conf import settings
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import generate_latest

from nsqdaemon.otlp.thread import push_in_thread
from nsqwire.version import product_version

disable_created_metrics()  # they would add a series to each counter, which Prometheus does not need

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0)
LATE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

web = CollectorRegistry()
ProcessCollector(namespace="nsq_web", registry=web)
websocket_clients = Gauge("nsq_web_websocket_clients", "Open websockets.", registry=web)
websocket_messages = Counter("nsq_web_websocket_messages", "Messages sent to websockets.", registry=web)
websocket_bytes = Counter("nsq_web_websocket_sent_bytes", "Bytes of messages sent to websockets.", registry=web)
websocket_resyncs = Counter(
    "nsq_web_websocket_resyncs", "Whole snapshots sent because a browser had missed a change.", registry=web
)
requests = Counter("nsq_web_requests", "HTTP requests answered.", ["method", "status"], registry=web)
request_seconds = Histogram(
    "nsq_web_request_seconds", "Time from a request to the end of its response.", buckets=SECONDS, registry=web
)

collector = CollectorRegistry()
ProcessCollector(namespace="nsq_collector", registry=collector)
poll_seconds = Histogram(
    "nsq_collector_poll_seconds", "Duration of a poll, waiting for nodes included.", buckets=SECONDS, registry=collector
)
poll_lateness_seconds = Histogram(
    "nsq_collector_poll_lateness_seconds", "How late a poll began.", buckets=LATE_SECONDS, registry=collector
)
failed_polls = Counter("nsq_collector_failed_polls", "Polls that failed.", registry=collector)
nodes = Gauge("nsq_collector_nodes", "Nodes known.", ["state"], registry=collector)
node_requests = Counter(
    "nsq_collector_node_requests", "Requests for the figures of a node.", ["outcome"], registry=collector
)
topics = Gauge("nsq_collector_topics", "Topics in the snapshot.", registry=collector)
channels = Gauge("nsq_collector_channels", "Channels in the snapshot.", registry=collector)
damaged_files = Gauge(
    "nsq_archive_damaged_files", "Files of the archive that were set aside as damaged.", registry=collector
)
for _state in ("up", "down"):
    nodes.labels(_state)
for _outcome in ("answered", "failed"):
    node_requests.labels(_outcome)


def websocket_sent(text: str) -> None:
    websocket_messages.inc()
    websocket_bytes.inc(len(text))


def collector_text() -> bytes:
    return generate_latest(collector)


def web_text() -> bytes:
    return generate_latest(web)


def push_by_otlp(service: str, read: Callable[[], bytes]) -> None:
    """Push what ``read`` returns in a thread, under the name ``service``, if ``NSQ_OTLP_ENDPOINT`` is set."""
    if settings.NSQ_OTLP_ENDPOINT:
        resource = {
            "service.name": service,
            "service.version": product_version(),
            "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        }
        push_in_thread(settings.NSQ_OTLP_ENDPOINT, settings.NSQ_OTLP_INTERVAL_S, read, resource)
