"""The path of a channel's depth through the source files, as ``docs/architecture.md`` draws it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection
from redis import Redis

from nsqplatform.cluster import store
from tests.database import url_of
from tests.harness.daemon import Broker
from tests.harness.process import ROOT
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

EMPTIED, DEPTH = 100, 7919
BRANCHES = {
    "analytics/": "the archive",
    "brokerd/ranges.py": "the age of the oldest message",
    "platform/nsqplatform/alerts/": "alerts",
    "platform/nsqplatform/cluster/collector/archiver.py": "the archive",
    "platform/nsqplatform/cluster/collector/listeners.py": "alerts",
    "platform/nsqplatform/cluster/collector/node_events.py": "events",
    "platform/nsqplatform/cluster/collector/lives.py": "the lives of messages",
    "platform/nsqplatform/cluster/collector/samples.py": "the archive",
    "platform/nsqplatform/cluster/history/records.py": "the history",
    "platform/nsqplatform/cluster/readings/pairs.py": "which node stands for a mirrored pair",
    "platform/nsqplatform/cluster/snapshots/latency.py": "percentiles of latency",
    "platform/nsqplatform/cluster/store.py": "the snapshot for browsers that join later",
    "platform/nsqplatform/objectives/": "counts of objectives",
}
"""Files and folders that have the figure and do not lead to the delta, and what they lead to. On a busy machine, what
is done every ten seconds is done before the delta has the depth."""


@pytest.fixture
def walked(start_collector: Callable[..., None], redis: Redis, tmp_path: Path) -> list[tuple[str, str]]:
    """The files and functions that had the depth, from the broker to the delta that the collector publishes."""
    folder, data = tmp_path / "walked", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    paths = [ROOT / "tests" / "harness" / "figure_walk", ROOT, ROOT / "platform"]
    environment = {
        "WALK_FIGURE": str(DEPTH),
        "WALK_FOLDER": str(folder),
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths),
    }
    published = redis.pubsub(ignore_subscribe_messages=True)
    published.subscribe(store.LIVE())

    def has_depth() -> bool:
        message = published.get_message(timeout=0.1)
        return message is not None and re.search(rb'"depth":\[%d\]' % DEPTH, message["data"]) is not None

    with Broker(data, env=os.environ | environment) as broker:
        broker.wait_until_ready()
        broker.post("/topic/create", topic="t")
        broker.post("/channel/create", topic="t", channel="c")
        broker.post("/mpub", b"\n".join([b"m"] * EMPTIED), topic="t")
        broker.post("/channel/empty", topic="t", channel="c")  # so that no other figure is equal to the depth
        for count in (4000, DEPTH - 4000):
            broker.post("/mpub", b"\n".join([b"m"] * count), topic="t")
        start_collector(
            DATABASE_URL=url_of(connection.settings_dict), NSQD_HTTP_ADDRESSES=broker.http_address, **environment
        )
        wait_until(has_depth, "a delta with the depth")
    lines = [line for file in folder.iterdir() for line in file.read_text().splitlines()]
    steps = [(file, function.partition(".<locals>")[0]) for file, function in (line.split(" ") for line in lines)]
    return [(file, function) for file, function in steps if not file.startswith(tuple(BRANCHES))]


def test_a_depth_crosses_at_most_20_files_as_the_architecture_draws(walked: list[tuple[str, str]]) -> None:
    """The table of the section has each file that has the depth as a value, with a function that has it."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("### The path of a depth figure")[2].partition("\n### ")[0]
    drawn = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", section, re.MULTILINE)
    assert {file for file, _ in drawn} == {file for file, _ in walked}
    assert {*drawn} <= {*walked}
    assert len(drawn) <= 20
