"""The files with the headers of messages: what is found in them, after any end and with any damage."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerd.file_header import HEADER_BYTES, HEADERS, WRITTEN
from brokerd.log import headers as headers_module
from brokerd.log import log as log_module
from brokerd.log import segment as segment_module
from brokerd.log.batch import BodyBatch, HeaderBatch
from brokerd.log.commits import CommitIndex
from brokerd.log.headers import Entry, HeaderFile
from brokerd.log.log import Log
from brokerd.repair import main as repair
from brokerd.retention import Retention
from nsqwire.errors import PublishFailed
from nsqwire.headers import encode_headers
from tests.brokerd.clockwork import Delivery, Node

ID_HEAD = b"9a4001"
BLOCK = b'{"a":"1"}'


def block_of(seq: int, size: int) -> bytes:
    return b'{"n":"%d%s"}' % (seq, b"x" * size)


class Written:
    """A file, and what is in it."""

    def __init__(self, path: Path | None) -> None:
        self.file = HeaderFile.create(path)
        self.next_seq = 0
        self.blocks: dict[int, bytes] = {}
        self.timestamps: dict[int, int] = {}

    def append(self, sizes: Sequence[int | None]) -> None:
        """One message for each size; None: without headers."""
        blocks = [b"" if size is None else block_of(self.next_seq + at, size) for at, size in enumerate(sizes)]
        self.file.append(self.next_seq, blocks, self.next_seq + 7)
        self.blocks.update((self.next_seq + at, block) for at, block in enumerate(blocks))
        for seq in range(self.next_seq, self.next_seq + len(blocks)):
            self.timestamps[seq] = self.next_seq + 7
        self.next_seq += len(blocks)

    def check(self, seqs: Sequence[int]) -> None:
        for seq in seqs:
            assert self.file.find(seq, self.timestamps[seq]) == self.blocks[seq], seq
            assert self.file.find(seq, 1_000_000) == b""


steps = st.lists(
    st.one_of(
        st.lists(st.sampled_from([None, None, 0, 5, 90]), min_size=1, max_size=12),
        st.sampled_from(["reopen", "ascending", "unacknowledged"]),
        st.tuples(st.integers(0, 200), st.integers(0, 200)),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps, in_memory=st.booleans())
def test_every_message_has_its_own_headers_in_any_order_of_reads(
    tmp_path_factory: pytest.TempPathFactory, steps: list[object], in_memory: bool
) -> None:
    """With pieces of 64 bytes, which are read again and again; also after publishes that were not acknowledged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headers_module, "PIECE_BYTES", 64)
        written = Written(None if in_memory else tmp_path_factory.mktemp("h") / "0.hdr")
        for step in steps:
            if step == "reopen" and written.file.path is not None:
                written.file.close()
                found = HeaderFile.existing(written.file.path)
                assert found is not None
                written.file = found
            elif step == "unacknowledged" and written.file.path is not None:
                written.file.append(written.next_seq, [BLOCK, BLOCK], 1_000_000 - 1)
                written.file.close()
                found = HeaderFile.existing(written.file.path)
                assert found is not None
                written.file = found
            elif isinstance(step, tuple):
                written.check([each % written.next_seq for each in step if written.next_seq])
            elif isinstance(step, list):
                written.append(step)
            else:
                written.check(range(written.next_seq))
        written.check(range(written.next_seq))
        written.check(range(written.next_seq - 1, -1, -1))
        assert written.file.damaged is None
        written.file.close()


@pytest.mark.parametrize("piece", [32, 64 * 1024])
def test_a_damaged_byte_costs_only_the_headers_that_it_hit(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each position, also where the size of an entry or its marker is damaged."""
    monkeypatch.setattr(headers_module, "PIECE_BYTES", piece)
    path = tmp_path / "0.hdr"
    written = Written(path)
    written.append([0, None, 0, 30, 0])
    written.file.close()
    whole = path.read_bytes()
    ranges = [each for each in written.file.entries() if isinstance(each, Entry)]
    written.file.close()
    for at in range(HEADER_BYTES, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x81]) + whole[at + 1 :])
        file = HeaderFile.existing(path)
        assert file is not None
        for entry in ranges:
            is_hit = entry.start <= at < entry.end
            assert file.find(entry.seq, entry.timestamp) == (b"" if is_hit else entry.block), (at, entry)
        damaged = [each for each in file.entries() if not isinstance(each, Entry)]
        assert damaged == [(entry.start, entry.end) for entry in ranges if entry.start <= at < entry.end]
        file.close()


def test_a_cut_file_keeps_the_entries_before_the_cut(tmp_path: Path) -> None:
    """At each position, and the next entries are found after it."""
    path = tmp_path / "0.hdr"
    written = Written(path)
    written.append([0, 0, 0])
    written.file.close()
    whole = path.read_bytes()
    entries = [each for each in written.file.entries() if isinstance(each, Entry)]
    written.file.close()
    for at in range(len(whole) + 1):
        path.write_bytes(whole[:at])
        file = HeaderFile.existing(path)
        assert file is not None
        file.append(3, [BLOCK], 9)
        found = [file.find(entry.seq, entry.timestamp) for entry in entries]
        assert found == [entry.block if entry.end <= at else b"" for entry in entries]
        assert file.find(3, 9) == BLOCK
        file.close()
        assert path.read_bytes()[:HEADER_BYTES] == WRITTEN[HEADERS.kind]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log whose segments have 8 KiB."""
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 8192)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", 8192)
    return Log(tmp_path)


def append(log: Log, count: int, *, block: bytes = BLOCK) -> None:
    for _ in range(count):
        log.append_with_headers(HeaderBatch([bytes(1000)], [block], ID_HEAD, 5))


def found_in(log: Log, seqs: range, timestamps: Mapping[int, int] = MappingProxyType({})) -> list[bytes]:
    """The header blocks of messages that were accepted at their timestamps, or at 5."""
    files = [(seq, log.segment_of(seq).headers) for seq in seqs]
    return [b"" if file is None else file.find(seq, timestamps.get(seq, 5)) for seq, file in files]


def test_a_reused_segment_has_none_of_the_former_headers(log: Log, tmp_path: Path) -> None:
    """Its file of headers is removed with its index; the next one has its own, or none."""
    append(log, 8)
    log.drop_below(7)
    assert [path.name for path in sorted(tmp_path.glob("*.hdr"))] == [f"{7:020d}.hdr"]
    for _ in range(14):
        log.append(BodyBatch([bytes(1000)], ID_HEAD, 5))
    assert [path.name for path in sorted(tmp_path.glob("*.hdr"))] == [f"{7:020d}.hdr"]
    assert found_in(log, range(7, 22)) == [BLOCK] + [b""] * 14


def test_a_new_segment_removes_the_headers_of_a_former_one_of_its_name(log: Log, tmp_path: Path) -> None:
    stale = tmp_path / f"{0:020d}.hdr"
    stale.write_bytes(b"stale")
    log.append(BodyBatch([b"x"], ID_HEAD, 5))
    assert not stale.exists()


def test_a_segment_full_of_headers_is_followed_by_the_next(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers may be much longer than bodies."""
    monkeypatch.setattr(segment_module, "MAX_FILE_BYTES", 1000)
    for _ in range(6):
        log.append_with_headers(HeaderBatch([b"x"], [block_of(0, 400)], ID_HEAD, 5))
    assert [segment.first_seq for segment in log.segments] == [0, 2, 4]
    assert found_in(log, range(6)) == [block_of(0, 400)] * 6


@pytest.mark.parametrize("messages", [10, 30], ids=["many batches", "a batch larger than a file should be"])
def test_a_segment_full_of_short_headers_has_them_after_a_restart(
    messages: int, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heads of the entries, which take more space than the headers, count."""
    monkeypatch.setattr(segment_module, "MAX_FILE_BYTES", 1000)
    monkeypatch.setattr(headers_module, "MAX_FILE_BYTES", 1000)
    for _ in range(3):
        log.append_with_headers(HeaderBatch([b"x"] * messages, [BLOCK] * messages, ID_HEAD, 5))
    log.close()
    again, notes = Log.recover(tmp_path, ID_HEAD)
    assert notes == []
    assert found_in(again, range(3 * messages)) == [BLOCK] * 3 * messages
    again.close()


def test_headers_without_a_message_are_not_those_of_the_next_one(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit record failed, or a kill came before it: the number goes to another message."""
    append(log, 1)

    def full(self: CommitIndex, fields: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CommitIndex, "extend", full)
        with pytest.raises(OSError, match="No space left"):
            append(log, 1)
        patch.setattr(HeaderFile, "cut", full)  # as a kill: what was written stays
        with pytest.raises(OSError, match="No space left"):
            append(log, 1)
    log.append(BodyBatch([b"x"], ID_HEAD, 6))
    append(log, 1)
    assert found_in(log, range(3), {1: 6}) == [BLOCK, b"", BLOCK]
    log.close()
    again, notes = Log.recover(tmp_path, ID_HEAD)
    assert (again.next_seq, notes) == (3, [])
    assert found_in(again, range(3), {1: 6}) == [BLOCK, b"", BLOCK]


def test_retention_by_size_counts_headers(log: Log) -> None:
    """Segments of 8 KiB with 7 messages, and as much of headers."""
    append(log, 21, block=block_of(0, 1120))
    (size,) = {segment.allocated_bytes for segment in log.segments}
    assert 15_000 < size < 17_000
    assert Retention(age_ns=1 << 62, max_bytes=2 * size).first_kept(log, 6) == 7
    assert Retention(age_ns=1 << 62, max_bytes=2 * 8192).first_kept(log, 6) == 14


def test_headers_without_a_segment_are_removed_when_no_message_below_is_needed(log: Log, tmp_path: Path) -> None:
    """A kill while a segment was removed leaves them. Their numbers are not taken for those of messages."""
    append(log, 30)
    log.close()
    orphan = tmp_path / f"{0:020d}.hdr"
    for suffix in (".log", ".idx"):
        orphan.with_suffix(suffix).unlink()
    again, _ = Log.recover(tmp_path, ID_HEAD)
    assert again.next_seq == 30
    last = again.segments[-1].first_seq
    again.drop_below(1)
    assert orphan.exists()
    again.drop_below(last)
    assert [path.name for path in tmp_path.glob("*.hdr")] == [f"{last:020d}.hdr"]
    again.close()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with a topic ``t``, channel ``c`` and two messages with headers; it was killed."""
    started = Node(tmp_path)
    started.broker.topic("t").channel("c")
    started.broker.topic("t").publish_with_headers([b"one"], [encode_headers({"n": "1"})])
    started.broker.topic("t").publish_with_headers([b"two"], [encode_headers({"n": "2"})])
    started.kill()
    return started


def header_file(node: Node) -> Path:
    (path,) = node.path.glob("topics/t.*/*.hdr")
    return path


def came(node: Node) -> list[tuple[bytes, bytes]]:
    """The bodies and header blocks that a client receives."""
    got: list[Delivery] = []
    node.subscribe("t", "c", 10, got.append, takes_headers=True)
    node.pass_until(node.now)
    return [(each.body, each.header_block) for each in got]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_file_without_an_undamaged_entry_is_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """As one that another program wrote over: no message is known to have headers."""
    path = header_file(node)
    flip(path, path.read_bytes().index(b'"1"'))
    flip(path, path.read_bytes().index(b'"2"'))
    node.open()
    with caplog.at_level(logging.ERROR, "brokerd"):
        assert came(node) == [(b"one", b""), (b"two", b"")]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"TOPIC(t): headers in {path} are lost, their messages are delivered without them: bytes ")


def test_damaged_headers_are_logged_once_and_cost_no_message(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    path = header_file(node)
    flip(path, path.read_bytes().index(b'"1"'))
    node.open()
    with caplog.at_level(logging.ERROR, "brokerd"):
        assert came(node) == [(b"one", b""), (b"two", b'{"n":"2"}')]
        assert came(node) == []
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"TOPIC(t): headers in {path} are lost, their messages are delivered without them: bytes 48 to 88 are damaged"
    ]
    assert node.broker.storage.lost_message_count == 0
    node.kill()


def test_missing_headers_are_logged_at_the_start(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    path = header_file(node)
    path.unlink()
    with caplog.at_level(logging.INFO, "brokerd"):
        node.open()
    text = f"{path} is missing: messages of the segment are delivered without their headers"
    assert any(text in record.getMessage() for record in caplog.records)
    assert came(node) == [(b"one", b""), (b"two", b"")]
    node.broker.topic("t").publish_with_headers([b"three"], [BLOCK])
    assert came(node) == []  # the first client has it
    node.kill()


def test_repair_names_damaged_and_missing_headers(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """And sets aside a file whose segment is missing. Undamaged ones are no damage, and no foreign files."""
    path = header_file(node)
    assert repair([str(node.path)]) == 0
    assert "hdr" not in capsys.readouterr().out
    flip(path, path.read_bytes().index(b'"2"'))
    assert repair([str(node.path)]) == 1
    name = path.relative_to(node.path)
    assert (
        f"{name}: damaged from byte 89 to 129; messages are delivered without these headers" in capsys.readouterr().out
    )
    orphan = path.with_name(f"{77:020d}.hdr")
    path.rename(orphan)
    assert repair([str(node.path), "--set-aside"]) == 1
    out = capsys.readouterr().out
    assert f"{name}: missing; its messages are delivered without headers" in out
    assert f"{orphan.name}: its .log is missing; --set-aside moves the .hdr away" in out
    assert f"moved {orphan.relative_to(node.path)} to set-aside/" in out
    assert not orphan.exists()
    node.open()
    assert [body for body, _ in came(node)] == [b"one", b"two"]
    node.kill()


def test_a_foreign_segment_takes_its_headers_along(node: Node) -> None:
    """They are renamed, so that a new segment of the name does not get them."""
    path = header_file(node)
    log = path.with_suffix(".log")
    moved = [log, path.with_suffix(".idx"), path]
    for each in moved:
        each.rename(each.with_name(f"{500:020d}{each.suffix}"))
    node.open()
    names = {each.name for each in path.parent.iterdir()}
    assert {f"{500:020d}.{kind}.foreign" for kind in ("log", "idx", "hdr")} <= names
    assert came(node) == []
    node.kill()


def test_a_full_disk_refuses_the_publish_and_keeps_what_was_stored(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is stored, and the next publish succeeds."""
    node.open()
    topic = node.broker.topic("t")

    def full(self: HeaderFile, data: bytes, offset: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(HeaderFile, "_write", full)
        with pytest.raises(PublishFailed, match="No space left"):
            topic.publish_with_headers([b"refused"], [BLOCK])
    assert topic.message_count == 0
    topic.publish_with_headers([b"three"], [BLOCK])
    assert came(node) == [(b"one", b'{"n":"1"}'), (b"two", b'{"n":"2"}'), (b"three", BLOCK)]
    node.kill()


def test_an_idle_topic_closes_the_file_until_it_is_read_again(node: Node) -> None:
    """Many idle topics need no descriptors."""
    node.open()
    topic, path = node.broker.topic("t"), header_file(node)
    topic.publish_with_headers([b"three"], [BLOCK])

    def opened() -> int:
        """Descriptors of the file, with those of the node that was killed in this process."""
        count = 0
        for each in list(Path("/proc/self/fd").iterdir()):
            with suppress(FileNotFoundError):  # it was closed in the meantime
                count += os.readlink(each) == str(path)
        return count

    before = opened()
    for _ in range(2):
        topic.unmap_if_idle()
    assert opened() == before - 1
    assert came(node) == [(b"one", b'{"n":"1"}'), (b"two", b'{"n":"2"}'), (b"three", BLOCK)]
    assert opened() == before
    node.kill()


def test_without_headers_there_is_no_file_and_no_copy(tmp_path: Path) -> None:
    """The frames of a topic without headers are those of the log, also for a client that takes headers."""
    node = Node(tmp_path)
    topic = node.broker.topic("t")
    topic.channel("c")
    topic.publish_with_headers([b"one"], [b""])
    assert not list(tmp_path.glob("topics/*/*.hdr"))
    frame = topic.log.frame(0)
    assert frame is not None
    assert topic.messages.with_headers(frame) is frame
    node.kill()
