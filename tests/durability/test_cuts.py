"""Files cut at any position: the broker starts, loses only the cut messages, and goes on.

A kill cannot do this (mapped pages outlive the process), but a power cut or a full disk under a copy can. Each case
copies a small data path that a killed broker left behind, cuts one file at one byte, and starts a broker over it.
Some positions are tried by default; DURABILITY_EVERY_BYTE=1 tries them all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokerd.file_header import HEADER_BYTES
from brokerd.kernel.commit import RECORD_BYTES

BATCHES = [[b"one"], [b"two" * 9, b"three" * 5, b"four"], [b"five"], [b"six" * 20, b"seven"], [b"eight" * 3]]
FINISHED = {b"one", b"five"}
Start = Callable[..., Any]


@pytest.fixture
def left(start: Start, tmp_path: Path) -> Path:
    """The data path of a killed broker: topic ``t`` with BATCHES, FINISHED of which are finished on channel ``c``."""
    node = start()
    peer = node.connect()
    peer.sub("t", "c", 100)
    publisher = node.connect()
    for batch in BATCHES:
        publisher.mpub("t", batch)
    came = {body: message_id for message_id, _, body in (peer.message() for _ in range(sum(map(len, BATCHES))))}
    peer.finish(*(came[body] for body in sorted(FINISHED)))
    node.end("SIGKILL")
    return Path(node.data_path)


def the_only(directory: Path, pattern: str) -> Path:
    [file] = (path for path in directory.glob(pattern) if path.read_bytes().strip(b"\0"))  # a spare one is all zeros
    return file.relative_to(directory)


def positions(used: int) -> list[int]:
    """Positions at which to cut a file with ``used`` bytes of contents: both ends, and some between."""
    if os.environ.get("DURABILITY_EVERY_BYTE"):
        return list(range(used + 1))
    return sorted({0, 1, used // 3, used * 2 // 3, used - 1, used})


def cut(left: Path, file: Path, at: int, *, zeros: bool) -> Path:
    """A copy of ``left`` whose ``file`` ends at byte ``at``, or contains only zeros from there on."""
    copy = left.parent / f"cut-{file.name}-{at}-{zeros}"
    shutil.copytree(left, copy)
    size = (copy / file).stat().st_size
    os.truncate(copy / file, at)
    if zeros:
        os.truncate(copy / file, size)
    return copy


def read_all(node: Any) -> list[bytes]:
    """All messages of channel ``c``, as a new consumer receives them."""
    if "t" not in node.topics() or "c" not in node.topics()["t"]["channels"]:
        return []
    peer = node.connect()
    peer.sub("t", "c")
    channel = node.channel("t", "c")
    expected = channel["depth"]
    assert (channel["deferred_count"], channel["in_flight_count"]) == (0, 0)
    peer.send(b"RDY 100\n")
    return [peer.message()[2] for _ in range(expected)]


def goes_on(node: Any, before: list[bytes]) -> None:
    """A publish is accepted; after another kill, it and all earlier messages are delivered."""
    node.connect().pub("t", b"new")
    node.restart("SIGKILL")
    assert sorted(read_all(node)) == sorted([*before, b"new"])


@pytest.mark.parametrize("zeros", [False, True], ids=["cut off", "zeroed"])
@pytest.mark.parametrize("pattern", ["topics/*/*.log", "topics/*/*.idx"], ids=["log", "idx"])
def test_a_cut_log_keeps_every_batch_before_the_cut(pattern: str, zeros: bool, left: Path, start: Start) -> None:
    """All whole batches before the cut survive; finished messages are not redelivered."""
    everything = {body for batch in BATCHES for body in batch}
    file = the_only(left, pattern)
    data = (left / file).read_bytes()
    used = len(data.rstrip(b"\0"))
    if pattern.endswith("log"):
        ends = [max(data.index(body) + len(body) for body in batch) for batch in BATCHES]
    else:
        ends = [HEADER_BYTES + RECORD_BYTES * (i + 1) for i in range(len(BATCHES))]
    for at in positions(used):
        whole = sum(end <= at for end in ends)
        node = start(data_path=cut(left, file, at, zeros=zeros))
        kept = {body for batch in BATCHES[:whole] for body in batch if body not in FINISHED}
        got = read_all(node)
        assert len(got) == len(set(got))
        assert kept <= set(got) <= everything - FINISHED, f"{file} cut at {at} of {used}"
        goes_on(node, got)
        node.end("SIGKILL")


@pytest.mark.parametrize("zeros", [False, True], ids=["cut off", "zeroed"])
def test_a_cut_journal_loses_no_message(zeros: bool, left: Path, start: Start) -> None:
    """It may lose a finish, a channel, even the state of the topic; messages in the log are delivered."""
    file = the_only(left, "journal.*")
    everything = {body for batch in BATCHES for body in batch}
    used = len((left / file).read_bytes().rstrip(b"\0"))
    for at in positions(used):
        node = start(data_path=cut(left, file, at, zeros=zeros))
        topics = node.topics()
        assert "t" in topics, f"{file} cut at {at} of {used}: the topic is gone"
        if "c" not in topics["t"]["channels"]:
            node.post("/channel/create", topic="t", channel="c")
        got = read_all(node)
        assert len(got) == len(set(got))
        assert everything - FINISHED <= set(got) <= everything, f"{file} cut at {at} of {used}"
        goes_on(node, got)
        node.end("SIGKILL")
    assert set(got) == everything - FINISHED  # the last cut removed nothing
