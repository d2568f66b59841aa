"""The lives of sampled messages: the collector archives the events of the nodes, and the API answers with those of one
message."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsqanalytics.archive import HourlyWriter
from nsqanalytics.compaction import compact, retain
from nsqanalytics.life_events import EVENT_SCHEMA, life_of, lives_path
from tests.harness.daemon import Broker
from tests.harness.v2 import V2Client, sized
from tests.harness.waiting import wait_until
from tests.platform.our_nsq import OurCluster

pytestmark = pytest.mark.django_db(transaction=True)


def archived(root: Path) -> list[dict[str, Any]]:
    """The rows of all files, as they are."""
    files = sorted((root / "lives").glob("date=*/hour=*/*.parquet"))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def sample(broker: Broker, every: int) -> None:
    broker.post("/policy", json.dumps({"sample_lives": every}).encode(), pattern="orders", channel="*")


def consumer_of(broker: Broker, name: str) -> V2Client:
    client = V2Client(broker.tcp)
    client.command(b"IDENTIFY\n" + sized(json.dumps({"client_id": name}).encode()))
    client.sub("orders", "billing", 10)
    return client


@pytest.fixture
def caller(sign_in) -> Callable[..., Any]:
    """Requests a life as a viewer."""
    viewer = sign_in("viewer").browser

    def get(message_id: str, **params: object) -> Any:
        query = urlencode({"topic": "orders", **params})
        return viewer.request("GET", f"messages/{message_id}/life?{query}")

    return get


def test_a_message_is_followed_from_its_publish_to_its_finish(cluster: OurCluster, collect, caller, tmp_path):
    """Its events are in the archive once read, each once also after another collector has read them again. A node
    without any is never asked."""
    first, second = cluster.brokers
    cluster.make_channel("orders", "billing")
    sample(first, 1)
    with V2Client(first.tcp) as publisher, consumer_of(first, "worker-1") as worker:
        publisher.pub("orders", b"hello")
        message_id, _, _ = worker.message()
        worker.send(b"REQ %b 100\n" % message_id)
        assert worker.message()[1] == 2
        worker.finish(message_id)
        address = "{}:{}".format(*worker.socket.getsockname()[:2])
    collecting = collect()
    root = tmp_path / "archive"
    wait_until(lambda: len(archived(root)) == 5, "the events in the archive")
    collecting.stop()
    collect()
    wait_until(lambda: len(archived(root)) == 10, "another collector has read them again")

    answer = caller(message_id.decode())
    assert answer.status_code == 200
    events = answer.json()["events"]
    assert [(each["channel"], each["event"], each["attempts"], each["delay_ms"]) for each in events] == [
        (None, "published", 0, None),
        ("billing", "delivered", 1, None),
        ("billing", "requeued", 1, 100),
        ("billing", "delivered", 2, None),
        ("billing", "finished", 2, None),
    ]
    assert {each["node"] for each in events} == {f"127.0.0.1:{first.http[1]}"}
    assert {(each["client_id"], each["client_address"]) for each in events[1:]} == {("worker-1", address)}
    assert events == sorted(events, key=lambda each: each["at_us"])
    assert caller("0" * 16).json()["events"] == []
    assert "GET /lives" in first.output
    assert "GET /lives" not in second.output


def test_events_after_a_restart_of_the_node_are_read_too(cluster: OurCluster, collect, tmp_path):
    """Their numbers begin again with another boot id."""
    broker = cluster.brokers[0]
    cluster.make_channel("orders", "billing")
    sample(broker, 1)
    collect()
    broker.post("/pub", b"before", topic="orders")
    root = tmp_path / "archive"
    wait_until(lambda: len(archived(root)) == 1, "the publish")
    broker.stop()
    broker.start().wait_until_ready()
    broker.post("/pub", b"after", topic="orders")
    wait_until(lambda: len(archived(root)) == 2, "the publish after the restart")
    assert [each["number"] for each in archived(root)] == [0, 0]
    assert len({each["boot_id"] for each in archived(root)}) == 2


@pytest.mark.parametrize(
    ("message_id", "params", "text"),
    [
        ("0" * 17, {}, "16 hex digits"),
        ("0" * 15, {}, "16 hex digits"),
        ("zz", {}, "16 hex digits"),
        ("0" * 16, {"topic": "?"}, "topic"),
        ("0" * 16, {"from": "yesterday"}, "from"),
        ("0" * 16, {"from": "2026-11-20T10:00:00Z", "to": "2026-11-20T09:00:00Z"}, "from"),
        ("0" * 16, {"from": "2020-11-20T10:00:00Z", "to": "2026-11-20T09:00:00Z"}, "at most 400 days"),
        ("0" * 16, {"to": "0001-01-01T00:00:00Z"}, "to: "),
        ("0" * 16, {"from": "9999-12-30T00:00:00Z", "to": "9999-12-31T23:59:59Z"}, "from: "),
    ],
)
def test_a_wrong_request_is_refused_with_what_is_wrong(caller, message_id: str, params: dict[str, str], text: str):
    answer = caller(message_id, **params)
    assert answer.status_code == 422
    assert text in answer.json()["message"]


def test_files_that_cannot_be_read_are_named_and_the_others_are_read(caller, settings, tmp_path):
    """One is empty, one is torn, and one is no Parquet file."""
    settings.NSQ_ARCHIVE = str(tmp_path)
    HourlyWriter(lives_path(str(tmp_path)), "at").write_table(table(range(3)))
    place = f"lives/date={HOUR_OF_EVENTS:%Y-%m-%d}/hour={HOUR_OF_EVENTS:%H}"
    [sound] = (tmp_path / place).glob("*.parquet")
    bad = {"0000-empty": b"", "0000-other": b"this is no Parquet file", "0000-torn": sound.read_bytes()[:-20] + b"PAR1"}
    for name, content in bad.items():
        (tmp_path / place / f"{name}.parquet").write_bytes(content)
    answer = caller("0" * 16, to=(HOUR_OF_EVENTS + timedelta(hours=1)).isoformat())
    assert answer.status_code == 200
    assert len(answer.json()["events"]) == 3
    assert [each.partition(": ")[0] for each in answer.json()["unreadable"]] == [
        f"{place}/{name}.parquet" for name in bad
    ]
    assert all(each.partition(": ")[2] for each in answer.json()["unreadable"])
    for name in bad:
        (tmp_path / place / f"{name}.parquet").unlink()
    assert caller("0" * 16, to=(HOUR_OF_EVENTS + timedelta(hours=1)).isoformat()).json()["unreadable"] == []


def test_an_archive_that_cannot_be_listed_is_an_error(caller, settings, tmp_path):
    """Its path is that of a file."""
    settings.NSQ_ARCHIVE = str(tmp_path / "file")
    (tmp_path / "file").write_text("")
    answer = caller("0" * 16)
    assert answer.status_code == 503
    assert f"the archive cannot be read: {tmp_path}/file is not a folder" in answer.json()["message"]


# -- compaction and retention ------------------------------------------------------------------------------------------

HOUR_OF_EVENTS = datetime(2026, 11, 20, 10, tzinfo=UTC)


def table(numbers: range, message_id: str = "0" * 16) -> pa.Table:
    rows = [
        {
            "at": HOUR_OF_EVENTS + timedelta(seconds=number),
            "node": "n:4151",
            "boot_id": "b",
            "number": number,
            "topic": "orders",
            "channel": None,
            "message_id": message_id,
            "event": "delivered",
            "attempts": number,
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows, schema=EVENT_SCHEMA)


def test_compaction_changes_no_life_and_retention_removes_it(tmp_path):
    """A message has the same events before and after, each once; they are removed together with the hour's samples."""
    writer = HourlyWriter(lives_path(str(tmp_path)), "at")
    for numbers in (range(5), range(3, 9), range(9, 12)):
        writer.write_table(table(numbers))
    writer.write_table(table(range(20, 25), "1" * 16))
    day = (HOUR_OF_EVENTS, HOUR_OF_EVENTS + timedelta(hours=1))
    before = life_of(str(tmp_path), "orders", "0" * 16, *day).events
    assert before["number"].to_pylist() == [*range(12)]
    now = HOUR_OF_EVENTS + timedelta(hours=2)
    done = list(compact(str(tmp_path), timedelta(minutes=1), now))
    assert [(row[1], row[2], row[4]) for row in done] == [("lives compacted", 4, 19)]
    assert life_of(str(tmp_path), "orders", "0" * 16, *day).events.equals(before)
    assert list(compact(str(tmp_path), timedelta(minutes=1), now)) == []

    kept = list(retain(str(tmp_path), timedelta(days=1), timedelta(days=1), now))
    assert kept == []
    removed = list(retain(str(tmp_path), timedelta(days=1), timedelta(days=1), now + timedelta(days=1)))
    assert Counter(row[1] for row in removed) == {"lives removed": 1}
    assert life_of(str(tmp_path), "orders", "0" * 16, *day).events.num_rows == 0
