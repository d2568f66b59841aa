"""Files in the data path that the broker did not create: it starts, leaves them unchanged, and logs their names."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.waiting import wait_until

Start = Callable[..., Any]
Connect = Callable[..., Any]

SEGMENT = f"{0:020d}.log"


def published(broker: Any, body: bytes = b"x", *, topic: str = "t") -> None:
    assert broker.request("POST", f"/pub?topic={topic}", body).status == 200


def depths(broker: Any) -> dict[str, int]:
    return {topic["topic_name"]: topic["depth"] for topic in broker.stats()["topics"]}


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def a_file(path: Path) -> None:
    path.write_text("mine")


def a_broken_link(path: Path) -> None:
    path.symlink_to("/no/such/place")


@pytest.fixture
def left(start_broker: Start, tmp_path: Path) -> Path:
    """The data path of a broker that was killed with one message in topic ``t``."""
    broker = start_broker(data_path=tmp_path)
    published(broker)
    broker.kill()
    return tmp_path


def everything_below(path: Path) -> dict[str, bytes | str | None]:
    """The contents of ``path``: bytes of files, targets of links, None for everything else."""

    def contents(each: Path) -> bytes | str | None:
        if each.is_symlink():
            return os.readlink(each)
        return each.read_bytes() if each.is_file() else None

    return {str(each): contents(each) for each in [path, *sorted(path.rglob("*"))]}


def a_copy_of_the_topic(path: Path) -> None:
    shutil.copytree(path.with_name("t.0"), path)


FOREIGN: dict[str, Callable[[Path], None]] = {
    "README": a_file,
    "backup": lambda path: shutil.copytree(path.with_name("topics"), path),
    "checkpoint.mine": a_file,
    "journal.old": a_file,
    "journal.0009": a_file,
    "journal.²": a_file,
    "journal.9": a_folder,
    "journal.10": a_broken_link,
    "nsqd.dat": a_folder,
    "nsqd-import": a_folder,
    "nsqd-imported-old": a_folder,
    "x.diskqueue.mine": a_file,
    "topics/README": a_file,
    "topics/.DS_Store": a_file,
    "topics/link": a_broken_link,
    "topics/u.4": a_broken_link,
    "topics/u.5": a_file,
    "topics/u.6": a_folder,
    "topics/u.5.deleted": a_file,
    "topics/u.6.deleted": a_folder,
    "topics/t.0.deleted": a_folder,
    "topics/backup": lambda path: shutil.copytree(path.with_name("t.0"), path / "t.0"),
    "topics/t.7": a_copy_of_the_topic,
    "topics/u.7": a_copy_of_the_topic,
    "topics/u.007": a_copy_of_the_topic,
    "topics/u.99999": a_copy_of_the_topic,
    "topics/u#ephemeral.3": a_copy_of_the_topic,
    "topics/t.0.deleted-2": a_copy_of_the_topic,
    "topics/t.0/README": a_file,
    "topics/t.0/.DS_Store": a_file,
    "topics/t.0/link": a_broken_link,
    "topics/t.0/x.log": a_file,
    "topics/t.0/5.log": a_file,
    f"topics/t.0/{7:020d}.log": a_folder,
    f"topics/t.0/{8:020d}.log": a_broken_link,
    f"topics/t.0/{9:020d}.log": os.mkfifo,
}


def test_a_foreign_file_is_named_in_the_log_and_left_alone(left: Path, start_broker: Start) -> None:
    """Through a start, a stop and another start; messages are delivered, and new ones are kept."""
    foreign = [left / name for name in sorted(FOREIGN, key=lambda name: "t.0/" in name)]  # copies of t.0 first
    for path in foreign:
        FOREIGN[str(path.relative_to(left))](path)
    before = [everything_below(path) for path in foreign]
    for messages, stop in ((1, "terminate"), (2, "kill")):
        broker = start_broker(data_path=left)
        for path in foreign:
            broker.wait_for_log(rf"{re.escape(str(path))} is not the broker's")
        assert depths(broker) == {"t": messages}
        published(broker)
        getattr(broker, stop)()
        assert not any(line for line in broker.log if "ERROR" in line or "Traceback" in line)
    assert depths(start_broker(data_path=left)) == {"t": 3}
    assert [everything_below(path) for path in foreign] == before


@pytest.mark.parametrize("name", ["topics/README", "topics/backup", "topics/t.7", "topics/t.0/x.log", "journal.0009"])
def test_one_foreign_file_alone_changes_nothing(name: str, left: Path, start_broker: Start) -> None:
    """A copied topic, for example, is not mistaken for the topic."""
    FOREIGN[name](left / name)
    before = everything_below(left / name)
    assert depths(start_broker(data_path=left)) == {"t": 1}
    assert everything_below(left / name) == before


def test_an_unreadable_foreign_file_is_left_alone(left: Path, start_broker: Start) -> None:
    """The broker does not open it."""
    for name in ("README", "topics/README", "topics/t.0/README"):
        (left / name).touch(mode=0)
    (left / "topics" / "private").mkdir(mode=0)
    broker = start_broker(data_path=left)
    assert depths(broker) == {"t": 1}
    (left / "topics" / "private").rmdir()


def test_a_deleted_topic_leaves_foreign_files_in_its_folder(left: Path, start_broker: Start) -> None:
    """The topic's own files are removed, at once or after a kill in the middle; the foreign file and the folder
    stay."""
    broker = start_broker(data_path=left)
    (left / "topics" / "t.0" / "notes.txt").write_text("mine")
    assert broker.request("POST", "/topic/delete?topic=t").status == 200
    broker.wait_for_log(r"notes.txt.* not the broker's")
    assert [path.name for path in left.glob("topics/*/*")] == ["notes.txt"]
    broker.kill()
    broker = start_broker(data_path=left)
    assert depths(broker) == {}
    assert [path.read_text() for path in left.glob("topics/*/*")] == ["mine"]


def test_a_new_topic_uses_another_number_than_a_foreign_file(left: Path, start_broker: Start) -> None:
    """A foreign file may have the name of the next folder, and so may a folder with foreign files."""
    (left / "topics" / "u.1").write_text("mine")
    a_folder(left / "topics" / "u.2")
    broker = start_broker(data_path=left)
    published(broker, topic="u")
    broker.kill()
    assert depths(start_broker(data_path=left)) == {"t": 1, "u": 1}
    assert (left / "topics" / "u.1").read_text() == "mine"
    assert os.listdir(left / "topics" / "u.2") == ["notes.txt"]


def test_a_topic_is_deleted_although_a_foreign_file_has_the_deleted_name(left: Path, start_broker: Start) -> None:
    """The topic is gone after a kill, too, and the foreign file is not."""
    broker = start_broker(data_path=left)
    a_folder(left / "topics" / "t.0.deleted")
    assert broker.request("POST", "/topic/delete?topic=t").status == 200
    broker.kill()
    broker = start_broker(data_path=left)
    assert depths(broker) == {}
    assert (left / "topics" / "t.0.deleted" / "notes.txt").read_text() == "mine"


def test_an_import_leaves_topics_without_records_unchanged(left: Path, start_broker: Start) -> None:
    """nsqd's files are put into a data path whose checkpoint and journal are lost: messages of existing topics stay."""
    for path in [left / "checkpoint", *left.glob("journal.*")]:
        path.unlink()
    (left / "nsqd.dat").write_text('{"version":"1.3.0","topics":[{"name":"from-go","paused":false,"channels":[]}]}')
    broker = start_broker(data_path=left)
    assert depths(broker) == {"t": 1, "from-go": 0}


def test_the_rest_of_a_deletion_is_removed_at_the_next_start(left: Path, start_broker: Start) -> None:
    """The broker was killed between the renaming of the folder and its removal."""
    broker = start_broker(data_path=left)
    folder = left / "topics" / "t.0"
    segment = (folder / SEGMENT).read_bytes()
    assert broker.request("POST", "/topic/delete?topic=t").status == 200
    broker.kill()
    shutil.rmtree(left / "topics" / "t.0.deleted", ignore_errors=True)
    (left / "topics" / "t.0.deleted").mkdir()
    (left / "topics" / "t.0.deleted" / SEGMENT).write_bytes(segment)
    broker = start_broker(data_path=left)
    wait_until(lambda: not list((left / "topics").iterdir()))
    assert depths(broker) == {}
