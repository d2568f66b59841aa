"""The collector: snapshots of a cluster of Go nodes, one per second."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from tests.harness.waiting import wait_until
from tests.platform.go_nsq import GoRegistry

pytestmark = pytest.mark.django_db(transaction=True)  # the collector writes from a thread of its own


def row(snapshot: dict[str, Any] | None, kind: str, **fields: Any) -> dict[str, Any] | None:
    """The first row of ``kind`` with these fields, if a snapshot has one."""
    rows = snapshot[kind] if snapshot else []
    return next((each for each in rows if all(each[name] == value for name, value in fields.items())), None)


def test_the_snapshot_sums_figures_over_nodes(go_cluster, collect, snapshot):
    """A topic on two nodes is one row with each node's share."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders", depth=3, backend_depth=1, message_count=10, message_bytes=1000)
    beta.topic("orders", depth=4, message_count=20, message_bytes=2000, paused=True)
    alpha.channel("orders", "billing", depth=5, in_flight_count=2, deferred_count=1, message_count=10, client_count=2)
    beta.channel("orders", "billing", depth=6, requeue_count=7, timeout_count=8, message_count=20, client_count=1)
    collect()
    topic = wait_until(lambda: row(snapshot(), "topics", name="orders"), "orders in the snapshot")
    assert (topic["depth"], topic["backend_depth"], topic["message_count"], topic["message_bytes"]) == (7, 1, 30, 3000)
    assert (topic["paused"], topic["channel_count"], topic["client_count"], topic["in_flight_count"]) == (True, 1, 3, 2)
    assert {each["node"]: (each["depth"], each["paused"]) for each in topic["nodes"]} == {
        alpha.address: (3, False),
        beta.address: (4, True),
    }
    channel = row(snapshot(), "channels", topic="orders", name="billing")
    assert channel is not None
    assert (channel["depth"], channel["in_flight_count"], channel["deferred_count"]) == (11, 2, 1)
    assert (channel["requeue_count"], channel["timeout_count"], channel["message_count"]) == (7, 8, 30)
    assert channel["p50_ms"] is None
    assert channel["oldest_age_ms"] is None
    node = row(snapshot(), "nodes", id=alpha.address)
    assert node is not None
    assert (node["state"], node["hostname"], node["version"], node["depth"]) == ("up", "alpha", "1.3.0", 8)


def test_rates_come_from_two_readings(go_cluster, collect, snapshot):
    """A counter that rises gives a rate; there is none before the second reading."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing", message_count=100, client_count=1)
    seen: list[dict[str, Any]] = []

    def rate() -> float | None:
        alpha.topic("orders")["message_count"] += 10
        alpha.channel("orders", "billing")["message_count"] += 10
        found = row(snapshot(), "topics", name="orders")
        if found is not None and (not seen or found != seen[-1]):
            seen.append(found)
        channel = row(snapshot(), "channels", name="billing")
        return found and found["publish_rate"] and channel and channel["publish_rate"] and channel["finish_rate"]

    collect()
    assert wait_until(rate, "a publish rate") > 0
    assert seen[0]["publish_rate"] is None


def test_messages_emptied_on_gos_nodes_do_not_count_as_finished(go_cluster, collect, snapshot, browser, account):
    """The finish rate is unknown while a channel is emptied, and known again afterwards."""
    alpha = go_cluster.nodes[0]
    figures = alpha.channel("orders", "billing", message_count=1_000_000, depth=1_000_000, client_count=1)
    account("operator")
    operator = browser()
    operator.sign_in("operator")
    collect()

    def channel() -> dict[str, Any]:
        return row(snapshot(), "channels", name="billing") or {"finish_rate": None, "depth": None}

    wait_until(lambda: channel()["finish_rate"] == 0.0, "a rate of zero")
    operator.request("POST", "actions", {"action": "empty", "topic": "orders", "channel": "billing"})
    emptied = wait_until(lambda: channel()["depth"] == 0 and channel(), "the emptied channel")
    assert emptied["finish_rate"] is None

    def rate() -> float | None:
        figures["message_count"] += 10
        found = channel()["finish_rate"]
        assert found is None or found < 100_000
        return found

    assert wait_until(rate, "a finish rate") > 0


def test_the_channel_of_a_tail_is_in_no_figure(go_cluster, collect, snapshot, browser, account):
    """Neither in the snapshot, and so in no list, alert or report, nor in the history, of its topic either."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing", depth=3)
    alpha.channel("orders", "tail-0a1b2c3d#ephemeral", depth=5, in_flight_count=2, client_count=1)
    account("viewer")
    viewer = browser()
    viewer.sign_in("viewer")
    collect()
    topic = wait_until(lambda: row(snapshot(), "topics", name="orders"), "the topic")
    assert (topic["channel_count"], topic["in_flight_count"], topic["client_count"]) == (1, 0, 0)
    assert [each["name"] for each in snapshot()["channels"]] == ["billing"]
    assert row(snapshot(), "nodes", id=alpha.address)["depth"] == 3

    def history(query: str) -> dict[str, list[float]]:
        found: dict[str, list[float]] = viewer.request("GET", f"history?{query}&series=depth,clients").json()["metrics"]
        return found

    of_topic = wait_until(
        lambda: history("scope=topic&topic=orders") if history("scope=topic&topic=orders")["depth"] else None, "records"
    )
    assert (set(of_topic["depth"]), set(of_topic["clients"])) == ({3.0}, {0.0})
    wait_until(lambda: history("scope=channel&topic=orders&channel=billing")["depth"], "records of the other channel")
    assert history("scope=channel&topic=orders&channel=tail-0a1b2c3d%23ephemeral")["depth"] == []


def test_a_node_that_crashes_is_down_with_its_last_numbers_and_comes_back(go_cluster, collect, snapshot):
    """Its row has the reason, its messages stay in the sums, and the other node's figures are updated."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders", depth=3, message_count=10)
    beta.topic("orders", depth=4, message_count=20)
    collect()
    wait_until(lambda: (row(snapshot(), "topics", name="orders") or {}).get("depth") == 7, "both nodes")
    answered_ms = snapshot()["taken_at"]
    assert row(snapshot(), "nodes", id=alpha.address)["down_since"] is None
    alpha.stop()
    down = wait_until(lambda: row(snapshot(), "nodes", id=alpha.address, state="down"), "alpha down")
    assert down["error"] == "connection refused"
    # The time of its last reading, which does not change while it is down.
    assert answered_ms - 1000 <= down["down_since"] <= snapshot()["taken_at"]
    version = snapshot()["version"]
    later = wait_until(lambda: snapshot()["version"] > version and snapshot(), "a later poll")
    assert row(later, "nodes", id=alpha.address)["down_since"] == down["down_since"]
    assert down["publish_rate"] is None
    beta.topic("orders", depth=40)
    wait_until(
        lambda: (row(snapshot(), "topics", name="orders") or {}).get("depth") == 43, "alpha's last with beta's new"
    )
    alpha.start()
    up = wait_until(lambda: row(snapshot(), "nodes", id=alpha.address, state="up"), "alpha up again")
    assert (up["error"], up["down_since"]) == (None, None)


def test_a_restart_of_the_collector_does_not_change_since_when_a_node_is_down(go_cluster, collect, snapshot):
    """Whether the node went down before the restart, or meanwhile."""
    alpha, beta = go_cluster.nodes
    collecting = collect()
    wait_until(lambda: len((snapshot() or {}).get("nodes", ())) == 2, "both nodes")
    alpha.stop()
    since = wait_until(lambda: row(snapshot(), "nodes", id=alpha.address, state="down"), "alpha down")["down_since"]
    collecting.stop()
    last_ms = snapshot()["taken_at"]
    beta.stop()
    for _ in range(2):
        collecting = collect()
        wait_until(lambda: row(snapshot(), "nodes", id=beta.address, state="down"), "beta down")
        assert row(snapshot(), "nodes", id=beta.address)["down_since"] == last_ms
        down = wait_until(lambda: row(snapshot(), "nodes", id=alpha.address), "alpha's row")
        assert (down["state"], down["down_since"]) == ("down", since)
        collecting.stop()
    alpha.start()
    collect()
    up = wait_until(lambda: row(snapshot(), "nodes", id=alpha.address, state="up"), "alpha up again")
    assert up["down_since"] is None


def test_a_second_restart_does_not_change_since_when_a_hanging_node_is_down(go_cluster, collect, snapshot):
    """The first new collector ends before it knows that the node does not answer."""
    alpha = go_cluster.nodes[0]
    collecting = collect()
    wait_until(lambda: len((snapshot() or {}).get("nodes", ())) == 2, "both nodes")
    alpha.hold = threading.Event()
    collecting.stop()
    last_ms = snapshot()["taken_at"]
    collecting = collect()
    wait_until(lambda: snapshot()["taken_at"] > last_ms, "a snapshot of the next collector")
    collecting.stop()
    collect()
    down = wait_until(lambda: row(snapshot(), "nodes", id=alpha.address, state="down"), "alpha down")
    alpha.hold.set()
    assert down["down_since"] == last_ms


def test_nodes_are_polled_while_a_restarted_registry_does_not_list_them_yet(go_cluster, collect, snapshot):
    """Registry and collector restart together; nsqds register again up to 15 s later. No topic is missing meanwhile."""
    alpha, beta = go_cluster.nodes
    alpha.topic("orders", depth=1)
    beta.topic("billing", depth=1)
    collecting = collect()
    wait_until(lambda: row(snapshot(), "topics", name="orders", depth=1), "orders")
    wait_until(lambda: row(snapshot(), "topics", name="billing", depth=1), "billing")
    collecting.stop()
    go_cluster.registry.nodes = []
    for each, topic in ((alpha, "orders"), (beta, "billing")):
        each.topic(topic, depth=2)
    for _ in range(2):  # also if the collector restarts a second time
        collecting = collect()
        wait_until(lambda: row(snapshot(), "topics", name="orders", depth=2), "orders' new depth")
        wait_until(lambda: row(snapshot(), "topics", name="billing", depth=2), "billing's new depth")
        collecting.stop()
    go_cluster.registry.nodes = [alpha, beta]


def test_a_snapshot_that_another_release_stored_does_not_stop_the_collector(go_cluster, collect, snapshot, redis):
    """After an upgrade with new fields, polls go on, and browsers request a whole snapshot."""
    go_cluster.nodes[0].topic("orders", depth=3)
    collecting = collect()
    wait_until(lambda: row(snapshot(), "topics", name="orders"), "the topic")
    before = snapshot()
    collecting.stop()
    stored = json.loads(redis.get("nsq:snapshot"))
    del (
        stored["nodes"]["down_since"],
        stored["nodes"]["drain"],
        stored["nodes"]["mirror"],
        stored["topics"]["byte_rate"],
    )
    redis.set("nsq:snapshot", json.dumps(stored))
    go_cluster.nodes[0].topic("orders", depth=4)
    collect()
    after = wait_until(lambda: row(snapshot(), "topics", name="orders", depth=4) and snapshot(), "polls that go on")
    assert after["version"] > before["version"] + 1


def test_a_restarted_node_shows_no_negative_rates(go_cluster, collect, snapshot):
    """Counters that start again at zero with a new start_time give no rate for one poll."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders", message_count=1_000_000)
    collect()
    wait_until(lambda: (row(snapshot(), "topics", name="orders") or {}).get("publish_rate") == 0.0, "a rate of zero")
    alpha.start_time += 60
    alpha.topic("orders", message_count=5)
    after = wait_until(lambda: row(snapshot(), "topics", name="orders", message_count=5), "the restarted node's count")
    assert after["publish_rate"] is None or after["publish_rate"] >= 0


def test_a_hanging_node_delays_no_other(go_cluster, collect, snapshot):
    """The other node's figures keep arriving; after three seconds the silent node is down."""
    alpha, beta = go_cluster.nodes
    beta.topic("orders", depth=1)
    alpha.hold = threading.Event()
    collect()
    wait_until(lambda: (row(snapshot(), "topics", name="orders") or {}).get("depth") == 1, "beta's topic")
    beta.topic("orders", depth=2)
    wait_until(lambda: (row(snapshot(), "topics", name="orders") or {}).get("depth") == 2, "beta's new depth")
    down = wait_until(lambda: row(snapshot(), "nodes", id=alpha.address, state="down"), "alpha down")
    assert "no answer within 3 s" in down["error"]
    alpha.hold.set()
    wait_until(lambda: row(snapshot(), "nodes", id=alpha.address, state="up"), "alpha up")


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"not json", "cannot read its /stats: Invalid JSON"),
        ({"version": "1.3.0", "topics": [{"topic_name": "t", "depth": "many", "message_count": 1}]}, "topics.0.depth"),
        ({"topics": []}, "missing required field `version`"),
    ],
)
def test_a_node_with_an_invalid_answer_is_down_with_the_reason(
    go_cluster, collect, snapshot, monkeypatch, answer, complaint
):
    """The other nodes are not affected."""
    alpha, beta = go_cluster.nodes
    beta.topic("orders", depth=1)
    original = alpha.get
    monkeypatch.setattr(alpha, "get", lambda path, query: answer if path == "/stats" else original(path, query))
    collect()
    down = wait_until(lambda: row(snapshot(), "nodes", id=alpha.address, state="down"), "alpha down")
    assert complaint in down["error"]
    assert row(snapshot(), "topics", name="orders", depth=1)


def test_configured_nodes_need_no_registry(go_cluster, collect, snapshot, settings):
    """A node that is configured by address appears under the name that it reports; while down, under its address."""
    alpha, beta = go_cluster.nodes
    beta.stop()
    settings.NSQLOOKUPD_HTTP_ADDRESSES = ()
    settings.NSQD_HTTP_ADDRESSES = (f"localhost:{alpha.port}", beta.address)
    collect()
    up = wait_until(lambda: row(snapshot(), "nodes", id=alpha.address), "alpha under the name it gives itself")
    assert up["state"] == "up"
    assert row(snapshot(), "nodes", state="down")["id"] == beta.address
    beta.start()


def test_topics_that_only_registries_know_are_shown(go_cluster, collect, snapshot):
    """A topic that was created before its first producer is in the snapshot, without a node."""
    go_cluster.registry.idle["planned"] = ["archive"]
    collect()
    topic = wait_until(lambda: row(snapshot(), "topics", name="planned"), "the planned topic")
    assert (topic["nodes"], topic["channel_count"], topic["publish_rate"]) == ([], 1, None)
    assert row(snapshot(), "channels", topic="planned", name="archive")


def test_the_nodes_of_a_dead_registry_stay_in_the_snapshot(go_cluster, collect, snapshot):
    """The registry's last answer stays valid; the nodes themselves are still polled."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders", depth=1)
    collect()
    wait_until(lambda: row(snapshot(), "topics", name="orders", depth=1), "orders")
    go_cluster.registry.stop()
    alpha.topic("orders", depth=2)
    wait_until(lambda: row(snapshot(), "topics", name="orders", depth=2), "orders' new depth")
    assert row(snapshot(), "nodes", id=alpha.address, state="up")
    go_cluster.registry.start()


def test_a_registry_that_answers_describes_a_node_in_place_of_a_dead_one(go_cluster, collect, snapshot, settings):
    """The last answer of a dead registry does not replace the current answer of another."""
    alpha = go_cluster.nodes[0]
    second = GoRegistry(go_cluster.nodes)
    try:
        settings.NSQLOOKUPD_HTTP_ADDRESSES = (second.address, go_cluster.registry.address)
        collect()
        wait_until(lambda: row(snapshot(), "nodes", id=alpha.address), "alpha")
        go_cluster.registry.stop()
        alpha.hostname = "renamed"
        wait_until(lambda: row(snapshot(), "nodes", id=alpha.address, hostname="renamed"), "the new host name")
    finally:
        second.stop()
        go_cluster.registry.start()


def test_versions_continue_after_a_restart(go_cluster, collect, snapshot):
    """Browsers with an older snapshot are not confused by a new collector."""
    collecting = collect()
    wait_until(lambda: (snapshot() or {}).get("version", 0) >= 2, "two polls")
    collecting.stop()
    last = snapshot()["version"]
    collect()
    wait_until(lambda: snapshot()["version"] == last + 1, "the next version")


def test_a_second_collector_stands_by(go_cluster, collect, snapshot, redis):
    """Two active collectors would send different snapshots; the second becomes active when the first is gone."""
    first = collect()
    wait_until(lambda: snapshot(), "a snapshot")
    holder = redis.get("nsq:collector")
    second = collect()
    version = snapshot()["version"]
    wait_until(lambda: snapshot()["version"] >= version + 2, "two more polls")
    assert redis.get("nsq:collector") == holder
    first.stop()
    version = snapshot()["version"]
    wait_until(lambda: redis.get("nsq:collector") not in (None, holder), "the second takes over")
    wait_until(lambda: snapshot()["version"] > version, "it polls")
    second.stop()


def archived(archive: Path) -> list[dict[str, Any]]:
    if not (archive / "samples").is_dir():
        return []
    return pyarrow.dataset.dataset(archive / "samples", format="parquet").to_table().to_pylist()


def test_readings_reach_the_archive(go_cluster, collect, tmp_path):
    """One row for each topic and each channel, with a Go node's own percentiles; the rest follows at the end."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders", depth=3, message_count=10, message_bytes=1000)
    latency = {"count": 1, "percentiles": [{"quantile": 0.99, "value": 748512795}]}
    alpha.channel("orders", "billing", depth=5, in_flight_count=2, message_count=10, e2e_processing_latency=latency)
    collecting = collect()
    rows = wait_until(lambda: archived(tmp_path / "archive"), "archived samples")
    topic = next(each for each in rows if each["channel"] is None)
    channel = next(each for each in rows if each["channel"] == "billing")
    assert (topic["node"], topic["topic"], topic["depth"], topic["message_bytes"]) == (alpha.address, "orders", 3, 1000)
    assert (topic["boot_id"], topic["hist_counts"]) == (str(alpha.start_time), None)
    assert (channel["depth"], channel["in_flight_count"], channel["message_count"]) == (5, 2, 10)
    assert channel["percentiles"] == [{"quantile": 0.99, "value_ns": 748512795}]
    alpha.topic("orders", depth=99)
    collecting.stop()
    assert len(archived(tmp_path / "archive")) >= len(rows)


def test_an_archive_that_cannot_be_written_stops_nothing(go_cluster, collect, snapshot, tmp_path, caplog):
    """Polls go on; the failure is logged once; waiting readings are written when the archive is back."""
    go_cluster.nodes[0].topic("orders", depth=3)
    (tmp_path / "archive").write_text("a file where a folder should be")
    collecting = collect()
    wait_until(lambda: "cannot write to the archive" in caplog.text, "the log says so")
    version = snapshot()["version"]
    wait_until(lambda: snapshot()["version"] > version, "another poll")
    (tmp_path / "archive").unlink()
    collecting.stop()
    assert archived(tmp_path / "archive")
    assert caplog.text.count("cannot write to the archive") == 1


def test_damaged_files_of_the_archive_are_counted(go_cluster, collect, redis, tmp_path):
    """A metric counts the files that maintenance has set aside."""
    from nsqplatform.cluster import store

    aside = tmp_path / "archive/samples/_damaged/date=2026-03-14/hour=01"
    aside.mkdir(parents=True)
    (aside / "5959-0123456789abcdef.parquet").touch()
    collect()

    def is_counted() -> bool:
        return b"\nnsq_archive_damaged_files 1.0\n" in (redis.get(store.COLLECTOR_METRICS()) or b"")

    wait_until(is_counted, "the metric")


def test_an_archive_that_cannot_be_listed_has_an_unknown_number_of_damaged_files(tmp_path, monkeypatch):
    """An alert on the number then neither fires nor resolves."""
    from nsqanalytics import damage
    from nsqplatform.cluster.collector import damaged_files
    from nsqplatform.cluster.store import DamagedFiles

    monkeypatch.setattr(damaged_files, "EVERY_S", 0.01)
    watch = damaged_files.DamagedFilesWatch(str(tmp_path))

    def refuse(root: str) -> list[str]:
        raise OSError("Input/output error")

    async def follow() -> None:
        running = asyncio.create_task(watch.run())
        await asyncio.to_thread(wait_until, lambda: watch.latest == DamagedFiles(0, ""), "the files are counted")
        monkeypatch.setattr(damage, "names", refuse)
        await asyncio.to_thread(wait_until, lambda: watch.latest is None, "the number is unknown")
        running.cancel()

    asyncio.run(follow())


def test_collecting_survives_losing_redis(go_cluster, collect, snapshot, redis):
    """A broken connection to Redis costs one poll, not the collector."""
    collect()
    wait_until(lambda: snapshot(), "a snapshot")
    version = snapshot()["version"]
    redis.client_kill_filter(_type="normal", skipme=True)
    wait_until(lambda: snapshot()["version"] > version + 1, "later versions")


def test_clients_are_asked_for_only_while_someone_watches(go_cluster, collect, snapshot, redis):
    """The lists can be long, so nodes are not asked otherwise."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing")
    collect()
    wait_until(lambda: row(snapshot(), "channels", name="billing"), "billing")
    assert not alpha.clients_asked_for
    watched: Callable[[], int] = lambda: redis.zadd("nsq:watched", {json.dumps(["orders", "billing"]): 4e9})  # noqa: E731
    watched()
    wait_until(lambda: alpha.clients_asked_for, "clients asked for")
    redis.delete("nsq:watched")
    wait_until(lambda: not alpha.clients_asked_for, "clients no longer asked for")
