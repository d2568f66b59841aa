"""The platform on brokers and a registry of this project: figures that Go nodes lack, and the effect of actions."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pyarrow.dataset
import pytest

from aionsq import Consumer
from tests.harness.daemon import Broker
from tests.harness.waiting import wait_until
from tests.platform.our_nsq import OurCluster

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def channel_row(snapshot) -> Callable[[], dict[str, Any]]:
    """The row of orders/billing, empty while there is none."""

    def read() -> dict[str, Any]:
        rows = (snapshot() or {"channels": []})["channels"]
        return next((row for row in rows if (row["topic"], row["name"]) == ("orders", "billing")), {})

    return read


@pytest.fixture
def operator(browser, account):
    account("operator")
    signed_in = browser()
    signed_in.sign_in("operator")
    return signed_in


def consume(cluster: OurCluster, count: int) -> None:
    async def until_all() -> None:
        async with Consumer("orders", "billing", lookupd_http_addresses=[cluster.registry.http_address]) as consumer:
            received = 0
            async for _ in consumer:
                received += 1
                if received == count:
                    return

    asyncio.run(asyncio.wait_for(until_all(), 60))


def test_waiting_messages_have_an_age_and_finished_ones_a_latency(cluster, collect, channel_row):
    """The age of an unread channel grows; once it is read, its percentiles show that age."""
    cluster.make_channel("orders", "billing")
    collect()
    wait_until(lambda: len(channel_row().get("nodes", [])) == 2, "the channel on both brokers")
    assert channel_row()["oldest_age_ms"] is None
    published_at = time.monotonic()
    cluster.publish("orders", 100)
    waiting = wait_until(lambda: (channel_row()["oldest_age_ms"] or 0) > 1500 and channel_row(), "an age of 1.5 s")
    assert (waiting["depth"], waiting["message_count"], waiting["p50_ms"]) == (200, 200, None)
    consume(cluster, 200)
    drained = wait_until(
        lambda: (
            channel_row()["depth"] == channel_row()["in_flight_count"] == 0
            and channel_row()["p99_ms"]
            and channel_row()
        ),
        "the channel drained",
    )
    elapsed_ms = (time.monotonic() - published_at) * 1000
    assert 1500 * 0.98 < drained["p50_ms"] <= drained["p99_ms"] < elapsed_ms * 1.02
    assert drained["oldest_age_ms"] is None


def test_actions_reach_our_brokers_and_registry(cluster, operator):
    """Pausing, emptying and deleting take effect on every node."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 10)

    def act(action: str, channel: str | None = None) -> list[str]:
        response = operator.request("POST", "actions", {"action": action, "topic": "orders", "channel": channel})
        assert response.status_code == 200, response.content
        assert response.json()["outcome"] == "done", response.json()
        return [result["target"] for result in response.json()["results"]]

    def channels(broker: Broker) -> dict[str, Any]:
        return {each["channel_name"]: each for each in broker.topics()["orders"]["channels"]}

    assert act("pause", "billing") == ["nsqd", "nsqd"]
    assert all(channels(broker)["billing"]["paused"] for broker in cluster.brokers)
    act("empty", "billing")
    assert [channels(broker)["billing"]["depth"] for broker in cluster.brokers] == [0, 0]
    assert act("create", "archive") == ["nsqlookupd", "nsqd", "nsqd"]
    assert all("archive" in channels(broker) for broker in cluster.brokers)
    act("pause")
    assert all(broker.topics()["orders"]["paused"] for broker in cluster.brokers)
    act("delete", "archive")
    assert all("archive" not in channels(broker) for broker in cluster.brokers)
    act("delete")
    assert all("orders" not in broker.topics() for broker in cluster.brokers)
    assert "orders" not in cluster.registry.get("/topics")["topics"]


def test_a_killed_broker_is_down_then_back_with_its_messages(cluster, collect, channel_row, snapshot, operator):
    """An action meanwhile reports the failure; after the restart it is up, and no acknowledged message is lost."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 10)
    collect()
    wait_until(lambda: channel_row().get("depth") == 20, "all messages")
    dead = cluster.brokers[1]
    dead.end(signal.SIGKILL)

    def node() -> dict[str, Any]:
        return next(row for row in snapshot()["nodes"] if row["id"] == dead.http_address)

    assert wait_until(lambda: node()["state"] == "down" and node(), "the broker down")["error"] == "connection refused"
    response = operator.request("POST", "actions", {"action": "pause", "topic": "orders", "channel": "billing"}).json()
    assert response["outcome"] == "partial"
    assert {result["node"]: result["outcome"] for result in response["results"]} == {
        cluster.brokers[0].http_address: "done",
        dead.http_address: "unreachable",
    }
    dead.launch()
    wait_until(lambda: node()["state"] == "up", "the broker up again")
    wait_until(lambda: channel_row()["depth"] == 20, "its messages")


def test_a_restarted_broker_loses_no_finished_message_from_the_archive(
    cluster, collect, channel_row, snapshot, tmp_path
):
    """The last figures before its end are archived, however quickly it restarts."""
    cluster.make_channel("orders", "billing")
    collecting = collect()
    wait_until(lambda: len(channel_row().get("nodes", [])) == 2, "the channel on both brokers")
    cluster.publish("orders", 300)
    consume(cluster, 600)
    restarted = cluster.brokers[0]
    started = snapshot()["nodes"]
    restarted.end(signal.SIGTERM)
    restarted.launch()

    def boot() -> object:
        return {row["id"]: (row["state"], row["start_time"]) for row in snapshot()["nodes"]}[restarted.http_address]

    before = {row["id"]: row["start_time"] for row in started}[restarted.http_address]
    wait_until(lambda: boot()[0] == "up" and boot()[1] != before, "the broker up again")
    collecting.stop()
    table = pyarrow.dataset.dataset(tmp_path / "archive" / "samples", format="parquet").to_table()
    finished: dict[str, dict[str, int]] = {}
    for row in table.to_pylist():
        if row["channel"] == "billing":
            counts = finished.setdefault(row["node"], {})
            counts[row["boot_id"]] = max(counts.get(row["boot_id"], 0), row["finish_count"])
    assert {node: sum(counts.values()) for node, counts in finished.items()} == {
        broker.http_address: 300 for broker in cluster.brokers
    }
    assert sorted(finished[restarted.http_address].values()) == [0, 300]


def test_a_rewind_redelivers_emptied_messages(cluster, operator):
    """On every node, since a given time; the answer and the audit trail say how many messages and since when."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 3)
    asked = {"topic": "orders", "channel": "billing"}
    operator.request("POST", "actions", {"action": "empty", **asked})
    since = datetime.now(UTC) - timedelta(minutes=10)
    answer = operator.request("POST", "rewinds", {**asked, "since": since.isoformat()}).json()
    assert answer["outcome"] == "done"
    assert [each["node"] for each in answer["results"]] == sorted(broker.http_address for broker in cluster.brokers)
    for each in answer["results"]:
        assert re.fullmatch(r"3 messages, the oldest of \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", each["detail"])
    for broker in cluster.brokers:
        (channel,) = broker.topics()["orders"]["channels"]
        assert channel["depth"] == 3
    entry = operator.request("GET", "audit").json()["entries"][0]
    assert (entry["action"], entry["outcome"], entry["results"]) == ("rewind", "done", answer["results"])
    again = operator.request("POST", "rewinds", {**asked, "channel": "none", "since": since.isoformat()})
    assert again.status_code == 404


def test_emptied_and_rewound_messages_are_neither_finished_nor_published(
    cluster, collect, channel_row, snapshot, operator
):
    """They have counters and series of their own, of the channel, its topic and the cluster."""
    cluster.make_channel("orders", "billing")
    collect()
    wait_until(lambda: channel_row().get("finish_rate") == 0.0, "rates")
    cluster.publish("orders", 50)
    wait_until(lambda: channel_row()["depth"] == 100 and channel_row()["publish_rate"] == 0.0, "both nodes' messages")
    seen: list[dict[str, Any]] = []

    def settled(counter: str, rate: str) -> bool:
        """Whether the change has been counted, and is over."""
        seen.append(channel_row())
        return seen[-1][counter] == 100 and seen[-1][rate] == 0.0

    asked = {"topic": "orders", "channel": "billing"}
    assert operator.request("POST", "actions", {"action": "empty", **asked}).json()["outcome"] == "done"
    wait_until(lambda: settled("emptied_count", "emptied_rate"), "the emptied messages")
    since = datetime.now(UTC) - timedelta(minutes=10)
    operator.request("POST", "rewinds", {**asked, "since": since.isoformat()})
    wait_until(lambda: settled("rewound_count", "rewound_rate"), "the rewound messages")
    assert channel_row()["depth"] == 100
    assert {(row["finish_rate"], row["publish_rate"]) for row in seen} == {(0.0, 0.0)}
    assert max(row["emptied_rate"] for row in seen) > 0
    assert max(row["rewound_rate"] for row in seen) > 0

    def highest(query: str) -> list[float]:
        metrics = operator.request("GET", f"history?{query}&series=emptied_rate,rewound_rate,finish_rate").json()
        return [max(filter(None, values), default=0.0) for values in metrics["metrics"].values()]

    for query in ("scope=channel&topic=orders&channel=billing", "scope=topic&topic=orders", "scope=cluster"):
        emptied, rewound, finished = wait_until(
            lambda query=query: all(highest(query)[:2]) and highest(query), "records of both"
        )
        assert min(emptied, rewound) > 0
        assert finished == 0


def test_what_a_rewind_redelivers_is_counted_before(cluster, operator, short_request_timeout):
    """By each node, without rewinding; a node that does not answer is named, with the reason and without a number."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 3)
    asked = {"topic": "orders", "channel": "billing"}
    operator.request("POST", "actions", {"action": "empty", **asked})
    since = (datetime.now(UTC) - timedelta(minutes=10)).isoformat()
    query = urlencode({**asked, "since": since})
    counted = operator.request("GET", f"rewinds?{query}").json()
    assert [each["node"] for each in counted["nodes"]] == sorted(broker.http_address for broker in cluster.brokers)
    for each in counted["nodes"]:
        assert (each["messages"], each["complete"], each["error"]) == (3, True, "")
        assert counted["counted_at"] - 600_000 < each["oldest"] <= counted["counted_at"]
    for broker in cluster.brokers:
        (channel,) = broker.topics()["orders"]["channels"]
        assert channel["depth"] == 0
    cluster.brokers[0].signal(signal.SIGSTOP)
    try:
        counted = operator.request("GET", f"rewinds?{query}").json()["nodes"]
    finally:
        cluster.brokers[0].signal(signal.SIGCONT)
    parts = {each["node"]: each for each in counted}
    assert parts[cluster.brokers[1].http_address]["messages"] == 3
    assert parts[cluster.brokers[0].http_address]["messages"] is None
    assert parts[cluster.brokers[0].http_address]["error"]
    nowhere = urlencode({**asked, "channel": "none", "since": since})
    assert operator.request("GET", f"rewinds?{nowhere}").status_code == 404


def test_a_registry_that_does_not_answer_is_listed_with_the_reason(cluster, collect, operator):
    """It answered, it is stopped, it answers again."""
    address = cluster.registry.http_address

    def error() -> str | None:
        listed = {each["address"]: each["error"] for each in operator.request("GET", "registries").json()}
        return listed.get(address, "not listed")

    assert operator.request("GET", "registries").json() == []
    collect()
    wait_until(lambda: error() is None, "the registry answered")
    cluster.registry.end(signal.SIGKILL)
    wait_until(lambda: error() == "connection refused", "the registry is down")
    cluster.registry.launch()
    wait_until(lambda: error() is None, "the registry answers again")
