"""The disk refuses a write that a command needs: the client gets the protocol's error, and nothing incomplete stays."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.waiting import wait_until

Start = Callable[..., Any]
Connect = Callable[..., Any]

FAULTY = """
import errno, os, time
from pathlib import Path

def faulty(name, number):
    real = getattr(os, name)
    def call(*args, **options):
        if Path({faults!r}, name).exists():
            with Path({faults!r}, name).open("a") as refused:
                refused.write("x")
            raise OSError(number, os.strerror(number), args[0])
        return real(*args, **options)
    setattr(os, name, call)

for name in ("mkdir", "rename", "posix_fallocate"):
    faulty(name, errno.ENOSPC)
"""
"""As a ``sitecustomize``: while a file named after a system call exists, the call fails as on a full disk, and the file
grows by a byte with each failure."""


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


COMMANDS = [
    (b"PUB new\n" + sized(b"x"), b"E_PUB_FAILED PUB failed [Errno 28] No space left on device"),
    (b"DPUB new 10\n" + sized(b"x"), b"E_DPUB_FAILED DPUB failed [Errno 28] No space left on device"),
    (b"MPUB new\n" + sized(struct.pack(">i", 1) + sized(b"x")), b"E_MPUB_FAILED MPUB failed [Errno 28] No space"),
    (2 * (b"PUB new\n" + sized(b"x")), b"E_PUB_FAILED PUB failed [Errno 28] No space left on device"),
    (b"SUB new c\n", b"E_SUB_FAILED SUB failed [Errno 28] No space left on device"),
]


class Disk:
    """Makes system calls of the next started broker fail."""

    def __init__(self, faults: Path) -> None:
        self._faults = faults

    def fail(self, *names: str) -> None:
        for name in names:
            (self._faults / name).touch()

    def failures(self, name: str) -> int:
        return (self._faults / name).stat().st_size

    def work(self) -> None:
        for path in self._faults.iterdir():
            path.unlink()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "faults").mkdir()
    (tmp_path / "sitecustomize.py").write_text(FAULTY.format(faults=str(tmp_path / "faults")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Disk(tmp_path / "faults")


def topics(broker: Any) -> list[str]:
    return [topic["topic_name"] for topic in broker.stats()["topics"]]


@pytest.mark.parametrize(("command", "answer"), COMMANDS, ids=["PUB", "DPUB", "MPUB", "PUB PUB", "SUB"])
def test_a_command_for_a_new_topic_on_a_full_disk_is_answered(
    command: bytes, answer: bytes, disk: Disk, start_broker: Start, connect: Connect
) -> None:
    """With the protocol's error frame, after which the connection is closed; once there is room, the command
    succeeds."""
    broker = start_broker()
    disk.fail("mkdir")
    client = connect(broker)
    kind, text = client.command(command)
    assert (kind, text[: len(answer)]) == (1, answer)
    assert client.is_closed()
    assert topics(broker) == []
    assert broker.request("GET", "/ping").status == 500
    disk.work()
    connect(broker).ok(command)
    assert topics(broker) == ["new"]
    assert not any("Traceback" in line for line in broker.log)


@pytest.mark.parametrize(
    ("target", "body", "message"),
    [
        ("/pub?topic=new", b"x", "EXITING"),
        ("/pub?topic=new&defer=10", b"x", "EXITING"),
        ("/mpub?topic=new", b"x\ny", "EXITING"),
        ("/topic/create?topic=new", b"", "STORAGE_FAILED"),
    ],
)
def test_a_request_for_a_new_topic_on_a_full_disk_is_answered_503(
    target: str, body: bytes, message: str, disk: Disk, start_broker: Start
) -> None:
    """The answer is JSON; once there is room, the request and the health check succeed."""
    broker = start_broker()
    disk.fail("mkdir")
    answer = broker.request("POST", target, body)
    assert (answer.status, answer.text) == (503, f'{{"message":"{message}"}}')
    assert topics(broker) == []
    assert broker.request("GET", "/ping").status == 500
    disk.work()
    assert broker.request("POST", target, body).status == 200
    assert broker.request("GET", "/ping").text == "OK"
    assert not any("Traceback" in line for line in broker.log)


def test_a_topic_that_cannot_be_deleted_stays_as_it_is(disk: Disk, start_broker: Start, connect: Connect) -> None:
    """Its consumer keeps its connection and receives later publishes."""
    broker = start_broker()
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    disk.fail("rename")
    answer = broker.request("POST", "/topic/delete?topic=t")
    assert (answer.status, answer.text) == (503, '{"message":"STORAGE_FAILED"}')
    disk.work()
    assert broker.request("POST", "/pub?topic=t", b"x").status == 200
    assert consumer.message()[2] == b"x"
    assert broker.request("POST", "/topic/delete?topic=t").status == 200
    assert consumer.is_closed()


def test_a_topic_whose_folder_cannot_be_filled_is_published_to_once_there_is_room(
    disk: Disk, start_broker: Start, connect: Connect
) -> None:
    """The folder is created, its first segment is not: the topic exists, without the refused message."""
    broker = start_broker()
    disk.fail("posix_fallocate")
    kind, text = connect(broker).command(b"PUB t\n" + sized(b"refused"))
    assert (kind, text[:12]) == (1, b"E_PUB_FAILED")
    disk.work()
    connect(broker).ok(b"PUB t\n" + sized(b"taken"))
    broker.kill()
    [topic] = start_broker(data_path=broker.data_path).stats()["topics"]
    assert (topic["topic_name"], topic["depth"]) == ("t", 1)


@pytest.mark.parametrize("call", ["mkdir", "posix_fallocate"])
def test_the_health_recovers_although_nobody_publishes(
    call: str, disk: Disk, start_broker: Start, connect: Connect
) -> None:
    """A load balancer that checks /ping sends no publish; the broker itself retries the refused write."""
    broker = start_broker()
    disk.fail(call)
    kind, text = connect(broker).command(b"PUB t\n" + sized(b"refused"))
    assert (kind, text[:12]) == (1, b"E_PUB_FAILED")
    tried = disk.failures(call)
    wait_until(lambda: disk.failures(call) >= tried + 2)
    assert broker.request("GET", "/ping").status == 500
    disk.work()
    wait_until(lambda: broker.request("GET", "/ping").text == "OK")
    assert broker.stats()["health"] == "OK"
    connect(broker).ok(b"PUB t\n" + sized(b"taken"))
    [directory] = (broker.data_path / "topics").iterdir()
    assert sorted(path.suffix for path in directory.iterdir()) == [".idx", ".log"]


def test_a_publish_that_needs_no_disk_does_not_end_the_error(disk: Disk, start_broker: Start, connect: Connect) -> None:
    """An ephemeral topic is kept in memory."""
    broker = start_broker()
    disk.fail("mkdir")
    assert connect(broker).command(b"PUB t\n" + sized(b"refused"))[0] == 1
    connect(broker).ok(b"PUB t#ephemeral\n" + sized(b"taken"))
    assert broker.request("GET", "/ping").status == 500
