"""``nsq repair``: what it reports, what it mends, and that it destroys nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]

BODIES = [b"one", b"two", b"three"]


def repair(*arguments: str | Path) -> tuple[int, str]:
    """The command's exit status and what it printed."""
    command = [sys.executable, "-c", "import sys; from brokerd.repair import main; sys.exit(main(sys.argv[1:]))"]
    ended = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=20, check=False)
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


def test_a_sound_data_path_is_reported_and_not_changed(left: Path) -> None:
    """Topics, messages and channels, what is not the broker's, and exit status 0."""
    (left / "README").write_text("mine")
    (left / "topics" / "x.log").write_text("mine")
    before = contents(left)
    status, told = repair(left)
    assert status == 0, told
    assert "1 topics, 3 messages" in told
    assert "t: 3 messages in 1 segments" in told
    assert "channels: c" in told
    assert "no damage found" in told
    assert "\n  README\n  topics/x.log\n" in told
    assert contents(left) == before


def test_a_damaged_message_is_named_and_nothing_is_changed(left: Path) -> None:
    """Its segment, its number, and exit status 1."""
    flip(segment(left, ".log"), 35)
    before = contents(left)
    status, told = repair(left)
    assert status == 1
    assert f"topics/t.0/{0:020d}.log: 1 messages from number 0 on are damaged" in told
    assert "t: 2 messages" in told
    assert contents(left) == before


@pytest.mark.parametrize("damage", ["zeroed", "missing", "flipped"])
def test_an_index_is_rebuilt_from_its_log(damage: str, left: Path, start_broker: Start) -> None:
    """Every message is there again, and the report afterwards finds nothing."""
    index = segment(left, ".idx")
    if damage == "zeroed":
        index.write_bytes(bytes(4096))
    elif damage == "missing":
        index.unlink()
    else:
        flip(index, 60)
    status, told = repair(left)
    assert status == 1
    assert index.name in told
    status, told = repair("--rebuild", left)
    assert (status, told.count("no damage found")) == (0, 1), told
    assert depth(start_broker(data_path=left)) == 3


def test_a_data_path_without_a_usable_checkpoint_is_set_aside_and_rebuilt(left: Path, start_broker: Start) -> None:
    """The broker does not start over it; afterwards it does, with every message, and nothing was deleted."""
    checkpoints = sorted(left.glob("checkpoint*"))
    damaged = [path.read_bytes()[:-9] + b"x" for path in checkpoints]
    for path, data in zip(checkpoints, damaged, strict=True):
        path.write_bytes(data)
    refused = start_broker(data_path=left, ready=False)
    refused.wait_for_log("failed to load metadata")
    assert repair(left)[0] == 1
    status, told = repair("--set-aside", "--rebuild", left)
    assert status == 0, told
    kept = [next((left / "set-aside").glob(f"*/{path.name}")).read_bytes() for path in checkpoints]
    assert kept == damaged
    assert depth(start_broker(data_path=left)) == 3


def test_what_is_not_the_brokers_is_set_aside_from_the_topics(left: Path) -> None:
    """A copied topic moves as it is; the operator's own files beside the topics stay."""
    (left / "README").write_text("mine")
    (left / "topics" / "u.7").mkdir()
    (left / "topics" / "u.7" / "notes.txt").write_text("mine")
    assert repair("--set-aside", left)[0] == 0
    assert [path.read_text() for path in left.glob("set-aside/*/topics/u.7/notes.txt")] == ["mine"]
    assert (left / "README").exists()


def test_a_running_broker_is_left_alone(start_broker: Start) -> None:
    """Its data path is locked: nothing is done, and the exit status is 2."""
    broker = start_broker()
    for flags in ([], ["--set-aside", "--rebuild"]):
        status, told = repair(*flags, broker.data_path)
        assert status == 2
        assert "possibly in use by another instance" in told


def test_a_directory_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """Exit status 2, and nothing is made."""
    status, told = repair(tmp_path / "none")
    assert (status, "no such file or directory" in told) == (2, True)
    assert not list(tmp_path.iterdir())
