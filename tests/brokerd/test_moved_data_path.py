"""The data path of a running broker is renamed: the broker refuses publishes until the directory is back."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.waiting import wait_until

Start = Callable[..., Any]
Connect = Callable[..., Any]


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def publish(broker: Any, topic: str) -> int:
    return broker.request("POST", f"/pub?topic={topic}", b"x").status


def nothing(path: Path, moved: Path) -> None:
    """The path does not exist."""


def an_empty_directory(path: Path, moved: Path) -> None:
    path.mkdir()


def a_copy(path: Path, moved: Path) -> None:
    shutil.copytree(moved, path)


@pytest.mark.parametrize("in_its_place", [nothing, an_empty_directory, a_copy])
def test_nothing_is_accepted_until_the_directory_is_back(
    in_its_place: Callable[[Path, Path], None],
    start_broker: Start,
    connect: Connect,
    tmp_path: Path,
) -> None:
    """The broker answers 503, error frames and an unhealthy /ping meanwhile; no acknowledged message is lost."""
    path, moved = tmp_path / "data", tmp_path / "moved"
    path.mkdir()
    broker = start_broker(data_path=path)
    assert publish(broker, "t") == 200
    path.rename(moved)
    in_its_place(path, moved)

    kind, text = connect(broker).command(b"PUB new\n" + sized(b"x"))
    assert (kind, text[:24]) == (1, b"E_PUB_FAILED PUB failed ")
    kind, text = connect(broker).command(b"SUB new c\n")
    assert (kind, text[:24]) == (1, b"E_SUB_FAILED SUB failed ")
    assert broker.request("POST", "/topic/create?topic=new").status == 503
    ping = broker.request("GET", "/ping")
    assert ping.status == 500
    assert "is not the directory that was opened" in ping.text
    accepted = 1
    while publish(broker, "t") == 200:  # messages in open files are safe
        accepted += 1
    assert broker.request("GET", "/ping").status == 500
    if in_its_place is nothing:
        assert not path.exists()
    else:
        shutil.rmtree(path)

    moved.rename(path)
    wait_until(lambda: broker.request("GET", "/ping").status == 200)
    assert (publish(broker, "t"), publish(broker, "new")) == (200, 200)
    broker.kill()
    depths = {topic["topic_name"]: topic["depth"] for topic in start_broker(data_path=path).stats()["topics"]}
    assert depths == {"t": accepted + 1, "new": 1}


def test_with_sync_every_1_nothing_is_acknowledged_from_the_rename_on(
    start_broker: Start, connect: Connect, tmp_path: Path
) -> None:
    """The files cannot be found to be synced. Consumers can subscribe, and publishing works once the path is back."""
    path, moved = tmp_path / "data", tmp_path / "moved"
    path.mkdir()
    broker = start_broker("--sync-every=1", data_path=path)
    assert publish(broker, "t") == 200
    producer, other = connect(broker), connect(broker)
    path.rename(moved)
    kind, text = producer.command(b"PUB t\n" + sized(b"x"))
    assert (kind, text[:24]) == (1, b"E_PUB_FAILED PUB failed ")
    assert publish(broker, "t") == 503
    assert broker.request("GET", "/ping").status == 500
    assert other.command(b"SUB t c\n") == (0, b"OK")
    moved.rename(path)
    wait_until(lambda: broker.request("GET", "/ping").status == 200)
    assert publish(broker, "t") == 200
    assert broker.terminate() == 0


def test_a_broker_that_ends_meanwhile_writes_nothing_into_another_directory(
    start_broker: Start, tmp_path: Path
) -> None:
    """It logs that its last checkpoint could not be written; the moved directory has all messages."""
    path, moved = tmp_path / "data", tmp_path / "moved"
    path.mkdir()
    broker = start_broker(data_path=path)
    assert publish(broker, "t") == 200
    assert broker.request("POST", "/channel/create?topic=t&channel=c").status == 200
    path.rename(moved)
    path.mkdir()
    assert broker.terminate() == 1
    assert list(path.iterdir()) == []
    [topic] = start_broker(data_path=moved).stats()["topics"]
    assert [(channel["channel_name"], channel["depth"]) for channel in topic["channels"]] == [("c", 1)]
