"""``nsq repair``: its report, its repairs, and that it deletes nothing."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from brokerd import repair as repair_module
from brokerd.file_header import HEADER_BYTES
from brokerd.journal import records
from brokerd.journal.recovery import scan
from tests.harness.waiting import DEADLINE_S

Start = Callable[..., Any]

BODIES = [b"one", b"two", b"three"]


def repair(*arguments: str | Path) -> tuple[int, str]:
    """Returns the command's exit status and output."""
    command = [sys.executable, "-c", "import sys; from brokerd.repair import main; sys.exit(main(sys.argv[1:]))"]
    ended = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def left(start_broker: Start, tmp_path: Path) -> Path:
    """The data path of a broker that was killed: topic ``t`` with channel ``c`` and three messages."""
    broker = start_broker(data_path=tmp_path)
    for body in BODIES:
        assert broker.request("POST", "/pub?topic=t", body).status == 200
    assert broker.request("POST", "/channel/create?topic=t&channel=c").status == 200
    broker.kill()
    return tmp_path


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def segment(left: Path, suffix: str) -> Path:
    return left / "topics" / "t.0" / f"{0:020d}{suffix}"


def depth(broker: Any) -> int:
    [topic] = broker.stats(topic="t")["topics"]
    return int(topic["channels"][0]["depth"]) if topic["channels"] else int(topic["depth"])


def test_an_undamaged_data_path_is_reported_and_not_changed(left: Path) -> None:
    """Topics, messages and channels, foreign files, and exit status 0."""
    (left / "README").write_text("mine")
    (left / "topics" / "x.log").write_text("mine")
    before = contents(left)
    status, report = repair(left)
    assert status == 0, report
    assert "1 topic, 3 messages" in report
    assert "t: 3 messages in 1 segment," in report
    assert "channels: c" in report
    assert "no damage found" in report
    assert "\n  README\n  topics/x.log\n" in report
    assert contents(left) == before


def test_a_damaged_message_is_named_and_nothing_is_changed(left: Path) -> None:
    """Its segment, its number, and exit status 1."""
    flip(segment(left, ".log"), HEADER_BYTES + 35)
    before = contents(left)
    status, report = repair(left)
    assert status == 1
    assert f"topics/t.0/{0:020d}.log: 1 message is damaged, from number 0 on" in report
    assert "t: 2 messages" in report
    assert contents(left) == before


@pytest.mark.parametrize("damage", ["zeroed", "missing"])
def test_damage_is_found_although_the_index_is_lost(damage: str, left: Path, start_broker: Start) -> None:
    """Damage is found in the messages' frames; a start loses as many messages."""
    index = segment(left, ".idx")
    index.write_bytes(bytes(4096)) if damage == "zeroed" else index.unlink()
    flip(segment(left, ".log"), HEADER_BYTES + 34 + len(BODIES[0]) + 20)  # the id of the second message
    before = contents(left)
    status, report = repair(left)
    assert status == 1
    assert f"topics/t.0/{0:020d}.log: 1 message is damaged, from number 1 on" in report
    assert "2 messages" in report
    assert contents(left) == before
    assert start_broker(data_path=left).stats(format="json", include_histograms="true")["lost_message_count"] == 1


@pytest.mark.parametrize("damage", ["zeroed", "missing", "flipped"])
def test_an_index_is_rebuilt_from_its_log(damage: str, left: Path, start_broker: Start) -> None:
    """Every message is delivered again, and a second report finds no damage."""
    index = segment(left, ".idx")
    if damage == "zeroed":
        index.write_bytes(bytes(4096))
    elif damage == "missing":
        index.unlink()
    else:
        flip(index, HEADER_BYTES + 60)
    status, report = repair(left)
    assert status == 1
    assert f"{index.name}: " in report
    assert "a start or --rebuild reads" in report
    assert " 0 messages" not in report
    status, report = repair("--rebuild", left)
    assert (status, report.count("no damage found")) == (0, 1), report
    assert depth(start_broker(data_path=left)) == 3


def test_a_data_path_without_a_usable_checkpoint_is_set_aside_and_rebuilt(left: Path, start_broker: Start) -> None:
    """The broker refuses to start on it; afterwards it starts with every message, and nothing was deleted."""
    checkpoints = sorted(left.glob("checkpoint*"))
    damaged = [path.read_bytes()[:-9] + b"x" for path in checkpoints]
    for path, data in zip(checkpoints, damaged, strict=True):
        path.write_bytes(data)
    refused = start_broker(data_path=left, ready=False)
    refused.wait_for_log("failed to load metadata")
    assert repair(left)[0] == 1
    status, report = repair("--set-aside", "--rebuild", left)
    assert status == 0, report
    kept = [next((left / "set-aside").glob(f"*/{path.name}")).read_bytes() for path in checkpoints]
    assert kept == damaged
    assert depth(start_broker(data_path=left)) == 3


@pytest.mark.parametrize("flags", [(), ("--set-aside", "--rebuild")])
def test_a_checkpoint_of_another_version_is_not_called_damaged(flags: tuple[str, ...], left: Path) -> None:
    newest = left / "checkpoint"
    text = b"{}\n"
    newest.write_bytes(xxh3_64_hexdigest(text).encode() + b" 1\n" + text)
    before = contents(left)
    status, report = repair(*flags, left)
    assert status == 2
    [line] = report.splitlines()
    assert line.startswith(f"nsq repair: {newest} was written by a version that this release cannot read")
    assert contents(left) == before


def test_foreign_files_are_set_aside_from_the_topics(left: Path) -> None:
    """A copied topic is moved unchanged; the operator's own files beside the topics stay."""
    (left / "README").write_text("mine")
    (left / "topics" / "u.7").mkdir()
    (left / "topics" / "u.7" / "notes.txt").write_text("mine")
    assert repair("--set-aside", left)[0] == 0
    assert [path.read_text() for path in left.glob("set-aside/*/topics/u.7/notes.txt")] == ["mine"]
    assert (left / "README").exists()


def test_a_running_broker_is_left_alone(start_broker: Start) -> None:
    """Its data path is locked: nothing is changed, and the exit status is 2."""
    broker = start_broker()
    for flags in ([], ["--set-aside", "--rebuild"]):
        status, report = repair(*flags, broker.data_path)
        assert status == 2
        assert "possibly in use by another instance" in report


def test_a_directory_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """Exit status 2, and nothing is created."""
    status, report = repair(tmp_path / "none")
    assert (status, "no such file or directory" in report) == (2, True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flags", [(), ("--rebuild",), ("--set-aside", "--rebuild")], ids=" ".join)
def test_a_directory_that_no_broker_used_is_not_a_data_path(flags: tuple[str, ...], left: Path) -> None:
    """One line, exit status 2, and nothing is written, be it empty, foreign, or a folder inside a data path."""
    empty, other = left / "empty", left / "other"
    empty.mkdir()
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    for path in (empty, other, left / "topics"):
        before = sorted(path.rglob("*"))
        status, report = repair(*flags, path)
        assert status == 2
        assert report.startswith(f"nsq repair: {path} is not a data path")
        assert report.count("\n") == 1
        assert sorted(path.rglob("*")) == before


def test_a_data_path_of_nsqd_is_a_data_path(tmp_path: Path) -> None:
    """A start would import it."""
    (tmp_path / "nsqd.dat").write_text('{"topics": []}')
    assert repair(tmp_path)[0] == 0


def test_an_index_without_its_log_is_set_aside(left: Path, start_broker: Start) -> None:
    """It counts as damage until --set-aside has moved it; then a broker starts with the rest."""
    index = segment(left, ".idx")
    data = index.read_bytes()
    segment(left, ".log").unlink()
    status, report = repair(left)
    assert (status, f"{index.name}: its .log is missing" in report) == (1, True), report
    assert repair("--set-aside", left)[0] == 0
    assert [path.read_bytes() for path in left.glob(f"set-aside/*/topics/t.0/{index.name}")] == [data]
    assert repair(left)[0] == 0
    assert depth(start_broker(data_path=left)) == 0


def test_a_file_that_cannot_be_read_is_not_called_damaged(left: Path) -> None:
    """Exit status 2, because 1 means damage, and one line names the file."""
    (left / "checkpoint").unlink()
    (left / "checkpoint").mkdir()
    for flags in ((), ("--rebuild",)):
        status, report = repair(*flags, left)
        assert status == 2
        assert report.startswith(f"nsq repair: cannot read or write {left / 'checkpoint'}: ")


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EACCES, "run nsq repair as the broker's user"), (errno.EIO, "copy the readable files to another disk")],
)
def test_a_failing_disk_or_a_missing_permission_is_named_with_a_remedy(
    number: int, advice: str, left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2; one line names the file, the reason and the remedy."""
    failed = segment(left, ".idx")

    def fail(directory: Path, id_head: bytes, holes: Sequence[tuple[int, int]]) -> None:
        raise OSError(number, os.strerror(number), str(failed))

    monkeypatch.setattr(repair_module, "inspect_log", fail)
    assert repair_module.main([str(left)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"nsq repair: cannot read or write {failed}: {os.strerror(number)}")
    assert advice in line


def test_a_rebuild_that_skips_journal_damage_says_so(left: Path, start_broker: Start) -> None:
    """The creation of the channel is lost: exit status 1 and the consequence, although the data path is intact now."""
    [journal] = (path for path in left.glob("journal.*") if any(path.read_bytes()))
    ends = [(end, record) for end, record in scan(journal.read_bytes()) if record is not None]
    flip(journal, next(end - 2 for end, record in ends if record[0] == records.CHANNEL_CREATED))
    lost = (
        f"{journal.name}: damaged in 1 place: changes are lost; some messages may be delivered again, "
        "and a channel created there has to be created again"
    )
    status, report = repair(left)
    assert (status, lost in report) == (1, True), report
    copy = left.with_name("copy")
    shutil.copytree(left, copy)
    status, report = repair("--rebuild", left)
    now = report.partition("Now:")[2]
    assert (status, lost in now, "no damage found" in now) == (1, True, False), report
    assert repair(left)[0] == 0
    started = start_broker(data_path=copy)
    started.wait_for_log(lost)
