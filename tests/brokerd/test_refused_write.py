"""After a refused write, the broker is healthy only once the disk accepts a write of that size."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd.refused_write import RefusedWrite
from nsqwire.errors import PublishFailed
from tests.brokerd.clockwork import Node

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
SEGMENT_BYTES = 256 * 1024


class Disk:
    """Limits the largest file that can be allocated."""

    def __init__(self, allocate: Callable[[int, int, int], None]) -> None:
        self.largest = 1 << 30
        self._allocate = allocate

    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        if offset + length > self.largest:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._allocate(fd, offset, length)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(os.posix_fallocate)
    monkeypatch.setattr(os, "posix_fallocate", disk.posix_fallocate)
    return disk


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def refused_write(node: Node) -> RefusedWrite:
    assert node.broker.storage.refused_write is not None
    return node.broker.storage.refused_write


def test_space_for_less_than_was_refused_is_not_enough(node: Node, disk: Disk) -> None:
    """The refused message had twice a segment's smallest size; a smaller refused write changes nothing."""
    topic = node.broker.topic("t")
    disk.largest = SEGMENT_BYTES
    with pytest.raises(PublishFailed, match="No space left"):
        topic.publish([bytes(2 * SEGMENT_BYTES - 1000)])
    node.broker.storage.write_failed(FULL)
    with pytest.raises(OSError, match="No space left"):
        refused_write(node).retry()
    disk.largest = 2 * SEGMENT_BYTES + 4096
    refused = refused_write(node)
    refused.retry()
    node.broker.storage.write_succeeds(refused)
    assert node.broker.storage.disk_error is None
    topic.publish([bytes(2 * SEGMENT_BYTES - 1000)])


def test_a_retry_leaves_no_files(node: Node, tmp_path: Path) -> None:
    """Neither those of the data path nor those of a topic that was not created."""
    node.broker.storage.write_failed(FULL, new_directory=tmp_path / "topics" / "t.0")
    refused_write(node).retry()
    assert list((tmp_path / "topics").iterdir()) == []


def test_a_write_that_is_refused_during_a_retry_remains_an_error(node: Node) -> None:
    """The retry runs in a thread; its success does not cover the later write."""
    node.broker.storage.write_failed(FULL)
    refused = refused_write(node)
    node.broker.storage.write_failed(FULL)
    node.broker.storage.write_succeeds(refused)
    assert node.broker.storage.disk_error == str(FULL)


def test_a_failed_sync_remains_an_error(node: Node) -> None:
    """Space on the disk does not restore what the failed fsync lost."""
    node.broker.storage.write_failed(FULL)
    node.broker.storage.sync_failed(OSError(errno.EIO, os.strerror(errno.EIO)))
    node.broker.storage.write_succeeds(refused_write(node))
    assert node.broker.storage.disk_error == "[Errno 5] Input/output error"
