"""Data paths of each format start, and those of a newer one are refused with nothing changed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import brokerd.journal.journal as journal_module
from brokerd.file_header import CHECKPOINT, HEADER_BYTES, KNOWN, WRITTEN, Header, UnsupportedFormat, read_header
from brokerd.last_stats import previous_stats, take_over
from brokerd.repair import NOT_DONE, SOUND
from brokerd.repair import main as repair
from tests.brokerd.clockwork import Delivery, Node
from tests.durability.formats import story

ARCHIVES = sorted(story.FOLDER.glob("format-*.tar.xz"))
NEWER = Header("", 7, "9.8.0")
PATTERNS = {
    "checkpoint": "nsqd checkpoint",
    "checkpoint.previous": "nsqd checkpoint",
    "journal.1": "nsqd journal",
    "topics/orders.*/*00.log": "nsqd segment",
    "topics/orders.*/*08.log": "nsqd segment",
    "topics/orders.*/*00.idx": "nsqd index",
    "topics/mail.*/*00.hdr": "nsqd headers",
    "last-stats.json": "nsqd stats",
}


def unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(folder)
    return folder / "data"


@pytest.fixture
def data_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data path of the present format, of a broker that ended by SIGTERM."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 262_144)
    path = tmp_path / "data"
    path.mkdir()
    story.write(path, closed=True)
    return path


def header_at(path: Path) -> int:
    return 0 if path.suffix != ".json" else len(b'{"header":"')


def put_header(path: Path, header: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(header_at(path))
        file.write(header.rstrip(b"\n") if path.suffix == ".json" else header)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def drain(node: Node, topic: str, channel: str) -> list[Delivery]:
    """Consume and finish everything that a channel has, deferred messages included."""
    got: list[Delivery] = []
    client = node.subscribe(topic, channel, 10_000, got.append)
    target, finished = node.broker.topic(topic).channel(channel), 0
    for wait_s in (0, 40, 1):
        node.pass_until(node.now + wait_s)
        if fresh := got[finished:]:
            lines = b"".join(b"FIN %b\n" % each.message_id for each in fresh)
            assert target.finish(client, memoryview(lines), len(fresh), node.wall_ns()) == []
            finished = len(got)
    target.unsubscribe(client)
    return got


def has_broken(archive: Path) -> bool:
    """Whether a data path has the topic ``broken``: formats 0 and 1 do not."""
    return not archive.name.startswith(("format-0-", "format-1-"))


def check_story(node: Node, *, broken: bool = True) -> None:
    """Every channel delivers the messages of the story with their attempts, and more can be published.

    ``broken``: whether there is the topic of that name.
    """
    assert sorted(node.broker.topics) == sorted([*story.OWED, *(["broken"] if broken else [])])
    if broken:
        check_broken(node)
    assert node.broker.storage.lost_message_count == 0
    assert node.broker.topic("orders").channel("b").paused
    node.broker.topic("orders").channel("b").unpause()
    assert sorted(node.broker.topic("mail").channels) == []
    for topic, channels in story.OWED.items():
        owed = channels or {"new": story.MAIL}
        for channel, bodies in owed.items():
            got = drain(node, topic, channel)
            assert sorted(each.body for each in got) == sorted(bodies)
            for each in got:
                has_waited = channel == "a" and each.body in story.REQUEUED + story.IN_FLIGHT
                assert each.attempts == 1 + has_waited
        node.broker.topic(topic).publish([b"more"])
        for channel in owed:
            assert [each.body for each in drain(node, topic, channel)] == [b"more"]


def check_broken(node: Node) -> None:
    """The dead message is dead, and the one that failed once dies at its next failure."""
    channel = node.broker.topic("broken").channel("a")
    assert [bytes(channel.frame_of(each.seq) or b"")[34:] for each in channel.dead] == [story.DEAD]
    got: list[Delivery] = []
    client = node.subscribe("broken", "a", 1, got.append)
    node.pass_until(node.now + 40)
    assert [(each.body, each.attempts) for each in got] == [(story.FAILED, 2)]
    channel.requeue(client, memoryview(b"REQ %b 9\n" % got[0].message_id), 1, 0.0, node.now)
    assert [each.failures for each in channel.dead] == [0, 2]
    channel.unsubscribe(client)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_data_paths_of_each_format_start_with_every_message(archive: Path, tmp_path: Path) -> None:
    """A second start, after a kill, finds files of both formats."""
    path = unpack(archive, tmp_path)
    node = Node(path, max_attempts=2)
    check_story(node, broken=has_broken(archive))
    node.kill()
    node.open()
    assert node.broker.storage.lost_message_count == 0
    for topic in node.broker.topics.values():
        assert (topic.depth, [channel.depth for channel in topic.channels.values()]) == (0, [0] * len(topic.channels))
    node.broker.close()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_repair_reads_each_format(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It reports no damage, and which files have no version."""
    path = unpack(archive, tmp_path)
    before = contents(path)
    assert repair([str(path)]) == SOUND
    assert contents(path) == before
    out = capsys.readouterr().out
    assert f"{411 if has_broken(archive) else 409} messages on disk" in out
    assert ("without a format version" in out) == archive.name.startswith("format-0")


def test_there_is_an_archive_of_each_format() -> None:
    """A new format comes with archives: ``python -m tests.durability.formats.story FORMAT``."""
    names = {f"format-{number}-{ended}.tar.xz" for number in (0, 1, 2) for ended in ("killed", "closed")}
    assert {path.name for path in ARCHIVES} == names
    assert {known.format for known in KNOWN} == {1, 2}


def test_the_files_that_a_broker_writes_have_headers(data_path: Path) -> None:
    """Each kind of file has its own."""
    found = {}
    for pattern in PATTERNS:
        for path in data_path.glob(pattern):
            data = path.read_bytes()[header_at(path) :][:HEADER_BYTES]
            header = read_header(data[: HEADER_BYTES - 1] + b"\n")
            assert header is not None, path
            found[pattern] = header.kind
    assert found == PATTERNS


@pytest.mark.parametrize("wrong_bit", [None, 8, 230])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_file_of_a_newer_format_is_refused_and_nothing_changes(
    pattern: str, wrong_bit: int | None, data_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message gives the file, its format and the first release that reads it, also where the header is damaged."""
    (path,) = data_path.glob(pattern)
    header = int.from_bytes(NEWER._replace(kind=PATTERNS[pattern]).to_bytes())
    put_header(path, (header ^ (0 if wrong_bit is None else 1 << wrong_bit)).to_bytes(HEADER_BYTES))
    before = contents(data_path)
    assert repair([str(data_path), "--rebuild", "--set-aside"]) == NOT_DONE
    assert f"nsq repair: {path} has format 7 " in capsys.readouterr().err
    with pytest.raises(UnsupportedFormat) as refused:
        Node(data_path, max_attempts=2)
    assert str(refused.value).startswith(f"{path} has format 7 ")
    assert "release 9.8.0 and later can" in str(refused.value)
    assert contents(data_path) == before


@pytest.mark.parametrize(("flags", "status"), [((), 1), (("--permanent-error-status=78",), 78)])
def test_the_process_exits_with_the_status_of_a_permanent_error_and_one_line(
    flags: tuple[str, ...], status: int, data_path: Path
) -> None:
    """As for any state that cannot be loaded: nsqd's 1, unless a supervisor has asked for another."""
    put_header(data_path / "checkpoint", NEWER._replace(kind=CHECKPOINT.kind).to_bytes())
    argv = [sys.executable, "-m", "brokerd", f"--data-path={data_path}", "--tcp-address=127.0.0.1:0", "--http-address="]
    ended = subprocess.run([*argv, *flags], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == status
    lines = [line for line in ended.stderr.splitlines() if "format 7" in line]
    assert len(lines) == 1
    assert f"failed to load metadata - {data_path}/checkpoint has format 7" in lines[0]


def flip(header: bytes, path: Path) -> bytes:
    return (int.from_bytes(header) ^ 1 << (len(path.name) * 37 % 380)).to_bytes(HEADER_BYTES)


def zero(header: bytes, path: Path) -> bytes:
    return bytes(HEADER_BYTES)


def overwrite(header: bytes, path: Path) -> bytes:
    return b"\xff\0garbage" * 5 + header[45:]


@pytest.mark.parametrize("damage", [flip, zero, overwrite])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_damaged_header_loses_nothing(
    pattern: str, damage: Callable[[bytes, Path], bytes], data_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counts as damage, never as another format: the start reads the file without it, or the other copy."""
    for path in data_path.glob(pattern):
        put_header(path, damage(WRITTEN[PATTERNS[pattern]], path))
    node = Node(data_path, max_attempts=2)
    take_over(data_path)
    check_story(node)
    node.kill()
    node.open()
    assert node.broker.storage.lost_message_count == 0
    node.broker.close()
    assert previous_stats(data_path)


@pytest.mark.parametrize("damage", [flip, zero])
def test_a_damaged_header_without_an_index_loses_nothing(
    damage: Callable[[bytes, Path], bytes], data_path: Path
) -> None:
    """The frames are found without either."""
    for path in data_path.glob("topics/*/*.log"):
        put_header(path, damage(WRITTEN["nsqd segment"], path))
        path.with_suffix(".idx").unlink()
    node = Node(data_path, max_attempts=2)
    for channel, bodies in story.OWED["orders"].items():
        node.broker.topic("orders").channel(channel).unpause()
        assert sorted(each.body for each in drain(node, "orders", channel)) == sorted(bodies)
    assert node.broker.storage.lost_message_count == 0
    node.broker.close()


def test_every_bit_of_a_header_may_be_wrong() -> None:
    """One wrong bit is corrected; two are damage."""
    for known in KNOWN:
        written = int.from_bytes(known.to_bytes())
        assert len(known.to_bytes()) == HEADER_BYTES
        for bit in range(8 * HEADER_BYTES):
            assert read_header((written ^ 1 << bit).to_bytes(HEADER_BYTES)) == known
        assert read_header((written ^ 0b11 << 90).to_bytes(HEADER_BYTES)) is None
