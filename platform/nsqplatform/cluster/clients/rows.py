"""The rows of the clients of one channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsqcluster.stats import ClientStats
from nsqplatform.cluster.readings.reading import NodeView
from nsqplatform.cluster.snapshots.rows import ClientRow
from nsqwire.units import Seconds


def client_rows(views: Sequence[NodeView], topic: str, channel: str, *, now: Seconds) -> list[ClientRow]:
    """The consumers of one channel, node by node. ``now`` is in Unix seconds."""
    rows: list[ClientRow] = []
    for view in views:
        if view.latest is not None and view.error is None:
            rows += rows_of(view.node.id, view.latest.clients_of(topic, channel), now=now)
    return sorted(rows, key=lambda row: (row["node"], row["hostname"], row["client_id"], row["remote_address"]))


def rows_of(node: str, clients: Iterable[ClientStats], *, now: Seconds) -> list[ClientRow]:
    """A row for each of the clients that a node reported."""
    return [
        {
            "node": node,
            "client_id": client.client_id,
            "hostname": client.hostname,
            "remote_address": client.remote_address,
            "user_agent": client.user_agent,
            "state": client.state,
            "ready_count": client.ready_count,
            "in_flight_count": client.in_flight_count,
            "message_count": client.message_count,
            "finish_count": client.finish_count,
            "requeue_count": client.requeue_count,
            "timeout_count": client.timeout_count,
            "oldest_in_flight_ms": None
            if client.oldest_in_flight_age_ns is None
            else client.oldest_in_flight_age_ns / 1e6,
            "connected_s": max(0, int(now - client.connect_ts)) if client.connect_ts else 0,
            "tls": client.tls,
            "deflate": client.deflate,
            "snappy": client.snappy,
            "sample_rate": client.sample_rate,
        }
        for client in clients
    ]
