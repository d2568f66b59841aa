"""A topic's files are removed, or its directory renamed, under a running broker."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness.waiting import wait_until

Start = Callable[..., Any]
Connect = Callable[..., Any]


def publish(broker: Any, topic: str) -> int:
    return broker.request("POST", f"/pub?topic={topic}", b"x").status


def topic_directory(data_path: Path, topic: str) -> Path:
    [found] = (data_path / "topics").glob(f"{topic}.*")
    return found


def test_with_sync_every_1_nothing_is_acknowledged_once_a_topics_directory_is_removed(
    start_broker: Start, connect: Connect, tmp_path: Path
) -> None:
    """The publish is an error that names the file, later ones are refused, and other topics are served."""
    broker = start_broker("--sync-every=1", data_path=tmp_path)
    assert (publish(broker, "gone"), publish(broker, "kept")) == (200, 200)
    shutil.rmtree(directory := topic_directory(tmp_path, "gone"))
    kind, text = connect(broker).command(b"PUB gone\n" + struct.pack(">i", 1) + b"x")
    assert (kind, text[:24]) == (1, b"E_PUB_FAILED PUB failed ")
    assert str(directory).encode() in text
    assert publish(broker, "gone") == 503
    assert publish(broker, "kept") == 200
    assert any(f"{directory}" in line and "was removed while it was in use" in line for line in broker.log)
    assert broker.request("POST", "/topic/delete?topic=gone").status == 200
    assert publish(broker, "gone") == 200


def test_publishes_to_a_topic_are_refused_soon_after_its_directory_is_removed(
    start_broker: Start, tmp_path: Path
) -> None:
    """Without --sync-every=1: from the next sync on. What was published until then can be consumed from memory."""
    broker = start_broker("--sync-timeout=100ms", data_path=tmp_path)
    assert (publish(broker, "gone"), publish(broker, "kept")) == (200, 200)
    directory = topic_directory(tmp_path, "gone")
    shutil.rmtree(directory)
    accepted = 1

    def is_refused() -> bool:
        nonlocal accepted
        status = publish(broker, "gone")
        accepted += status == 200
        return status == 503

    wait_until(is_refused, "publishes are refused")
    assert publish(broker, "kept") == 200
    [gone] = [topic for topic in broker.stats()["topics"] if topic["topic_name"] == "gone"]
    assert gone["depth"] == accepted


def test_a_topic_is_published_to_again_once_its_directory_is_back(start_broker: Start, tmp_path: Path) -> None:
    """No acknowledged message is lost."""
    (tmp_path / "data").mkdir()
    broker = start_broker("--sync-timeout=100ms", data_path=tmp_path / "data")
    assert publish(broker, "t") == 200
    directory, moved = topic_directory(tmp_path / "data", "t"), tmp_path / "moved"
    directory.rename(moved)
    accepted = 1

    def is_refused() -> bool:
        nonlocal accepted
        status = publish(broker, "t")
        accepted += status == 200
        return status == 503

    wait_until(is_refused, "publishes are refused")
    moved.rename(directory)
    assert publish(broker, "t") == 200
    broker.kill()
    [topic] = start_broker(data_path=tmp_path / "data").stats()["topics"]
    assert topic["depth"] == accepted + 1


def test_a_removed_file_costs_its_messages_and_no_others(start_broker: Start, tmp_path: Path) -> None:
    """Publishes continue in a new file. The next start counts what was lost."""
    broker = start_broker("--sync-every=1", data_path=tmp_path)
    assert publish(broker, "t") == 200
    for file in topic_directory(tmp_path, "t").iterdir():
        file.unlink()
    assert publish(broker, "t") == 503
    assert [publish(broker, "t") for _ in range(3)] == [200] * 3
    broker.kill()
    again = start_broker(data_path=tmp_path)
    [topic] = again.stats()["topics"]
    assert topic["depth"] == 3
    assert any("lost" in line for line in again.log)
