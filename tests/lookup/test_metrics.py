"""The registry's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


def test_the_registry_has_metrics_of_its_contents(
    start: Callable[..., Any],
    identify_command: Callable[..., bytes],
    receive_reply: Callable[..., bytes],
    metrics_problems: Callable[[str], list[str]],
) -> None:
    """Topics, channels, nodes, producers per topic and the process's figures, in Prometheus' format."""
    registry = start()
    nsqd = registry.connect()
    nsqd.sendall(b"  V1" + identify_command() + b"REGISTER t c\nREGISTER t d\nREGISTER u\n")
    assert [receive_reply(nsqd) for _ in range(4)][1:] == [b"OK"] * 3
    status, body = registry.answer("/metrics")
    nsqd.close()
    text = body.decode()
    assert status == 200
    assert metrics_problems(text) == []
    figures = {
        (sample.name, sample.labels.get("topic")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert figures["nsq_lookup_topics", None] == 2
    assert figures["nsq_lookup_channels", None] == 2
    assert figures["nsq_lookup_nodes", None] == 1
    assert figures["nsq_lookup_tombstones", None] == 0
    assert (figures["nsq_lookup_producers", "t"], figures["nsq_lookup_producers", "u"]) == (1, 1)
    assert figures["process_resident_memory_bytes", None] > 1_000_000
