"""Prints, as JSON, how the platform handles the figure ``poison_count``. test_figures.py runs it as a process."""

from __future__ import annotations

import json
import os
import sys

os.environ["DJANGO_SETTINGS_MODULE"] = "nsqplatform.console.settings_test"

import django

django.setup()

from nsqanalytics.schema import ARROW_SCHEMA, SCHEMA_VERSION  # noqa: E402
from nsqcluster import Node as ClusterNode  # noqa: E402
from nsqcluster import NodeInfo  # noqa: E402
from nsqcluster.rows import channel_rows  # noqa: E402
from nsqplatform.alerts.catalogue import METRICS  # noqa: E402
from nsqplatform.alerts.readings import MetricReader  # noqa: E402
from nsqplatform.cluster.collector.samples import samples_of  # noqa: E402
from nsqplatform.cluster.history import records  # noqa: E402
from nsqplatform.cluster.readings.node import Node  # noqa: E402
from nsqplatform.cluster.readings.reading import NodeView, Reading  # noqa: E402
from nsqplatform.cluster.readings.stats import parse_stats  # noqa: E402
from nsqplatform.cluster.snapshots.builder import SnapshotBuilder  # noqa: E402
from nsqplatform.cluster.snapshots.delta import Deltas  # noqa: E402
from nsqplatform.cluster.snapshots.figure_files import DOCS, TYPESCRIPT, array, files  # noqa: E402
from nsqplatform.cluster.snapshots.latency import LatencyWindow  # noqa: E402
from nsqplatform.cluster.snapshots.snapshot import Snapshot, View  # noqa: E402
from nsqplatform.cluster.snapshots.table import SHARES  # noqa: E402
from nsqplatform.console.api import api  # noqa: E402
from nsqplatform.nsqadmin.shapes import channel_aggregate  # noqa: E402


def view(node: str, poison: int, second: int) -> NodeView:
    channel = {"channel_name": "c", "depth": 1, "message_count": 2, "poison_count": poison}
    topic = {"topic_name": "t", "depth": 3, "message_count": 4, "channels": [channel]}
    stats = parse_stats(json.dumps({"version": "1", "boot_id": node, "topics": [topic]}).encode())
    reading = Reading(stats, read_at=float(second), taken_at_s=1_700_000_000.0 + second)
    return NodeView(node=Node(id=node, address=node), error=None, latest=reading)


def snapshot(version: int, poison: int) -> Snapshot:
    views = [view("a:1", poison, version), view("b:1", 10 * poison, version)]
    return BUILDER.build(views, {}, version=version, taken_at_ms=1_700_000_000_000 + 1000 * version)


BUILDER = SnapshotBuilder(LatencyWindow())
before, after = snapshot(1, 3), snapshot(2, 7)
row = after.channels["t/c"]
stats = {name: view(name, 7, 2).latest.stats for name in ("a:1", "b:1")}  # type: ignore[union-attr]
shares = [
    (ClusterNode(producer=NodeInfo().producer(name), address=name), each.topics[0].channels[0])
    for name, each in stats.items()
]
schema = api.get_openapi_schema()["components"]["schemas"]["ChannelRow"]
latest = view("a:1", 7, 2).latest
assert latest is not None
column = ARROW_SCHEMA.field("poison_count")
metric = METRICS["channel", "poison_count"]
gauges = records.series(after)["channel"].gauges
line = next(line for line in files()[TYPESCRIPT].splitlines() if "CHANNEL_SHARE" in line)
json.dump(
    {
        "row": row["poison_count"],
        "received": {
            "snapshot": row["message_count"],
            "listing": channel_rows(stats, {})[0]["message_count"],
            "nsqadmin": channel_aggregate("t", "c", shares, with_clients=False)["message_count"],
        },
        "shares": [{name: share[name] for name in ("node", "poison_count")} for share in row["nodes"]],
        "delta": Deltas(before, after).of(View(topic="t"))["channels"]["set"],
        "wire_shares": after.channels.columns["nodes"],
        "share_fields": array(SHARES["channels"]),
        "typescript_share": line.partition("= ")[2].removesuffix(" as const;"),
        "openapi": schema["properties"]["poison_count"],
        "openapi_required": schema["required"],
        "rings": {scope: records.key_of(scope, "t/c") for scope in records.SCOPES},
        "history": gauges[0, records.METRICS["channel"].index("poison")],
        "archived": samples_of("a:1", latest)["poison_count"].to_pylist(),
        "version": SCHEMA_VERSION,
        "column": {
            "unit": column.metadata[b"unit"].decode(),
            "meaning": column.metadata[b"meaning"].decode(),
            "nullable": column.nullable,
        },
        "alert": {"title": metric.title, "unit": metric.unit, "value": float(MetricReader(after).column(metric)[0])},
        "docs": files()[DOCS],
    },
    sys.stdout,
)
