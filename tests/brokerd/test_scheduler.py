"""Long work is done in slices, so that no client waits for all of another client's."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable

import pytest

from brokerd.scheduler import SLICE_SECONDS, TURN_SECONDS, Scheduler


class Loop:
    """An event loop whose iterations and time the test controls."""

    def __init__(self) -> None:
        self.now = 100.0
        self._soon: list[Callable[[], None]] = []
        self.scheduler = Scheduler(self._soon.append, lambda: self.now)

    def turn(self) -> None:
        due, self._soon[:] = list(self._soon), []
        for call in due:
            call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_one_slice_is_run_in_a_turn(loop: Loop) -> None:
    """Between two slices the event loop handles other input."""
    done: list[str] = []
    for name in ("a", "b"):
        loop.scheduler.later(lambda deadline, name=name: done.append(name))  # type: ignore[misc]
    loop.turn()
    assert done == ["a"]
    loop.turn()
    assert done == ["a", "b"]


def test_unfinished_jobs_alternate(loop: Loop) -> None:
    """Jobs alternate, however much each has to do."""
    done: list[str] = []

    def add(name: str, times: int) -> None:
        def job(deadline: float) -> None:
            assert deadline == loop.now + SLICE_SECONDS
            done.append(name)
            if times > 1:
                add(name, times - 1)

        loop.scheduler.later(job)

    add("long", 3)
    add("short", 1)
    for _ in range(5):
        loop.turn()
    assert done == ["long", "short", "long", "long"]


def test_a_job_that_fails_does_not_keep_the_others_from_theirs(loop: Loop) -> None:
    """The failure is logged."""
    done: list[bool] = []

    def fails(deadline: float) -> None:
        raise ZeroDivisionError

    loop.scheduler.later(fails)
    loop.scheduler.later(lambda deadline: done.append(True))
    loop.turn()
    loop.turn()
    assert done


def test_a_turn_ends_after_some_milliseconds_and_the_next_has_its_own_time(loop: Loop) -> None:
    """From then on large input is queued."""
    assert not loop.scheduler.is_spent()
    loop.now += TURN_SECONDS
    assert loop.scheduler.is_spent()
    loop.turn()
    assert not loop.scheduler.is_spent()


def deflated(connect, packed_socket, broker):
    client = connect(broker)
    body = b'{"feature_negotiation": true, "deflate": true}'
    client.command(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body)
    client.socket = packed_socket("deflate", client.socket)
    assert client.frame() == (0, b"OK")
    return client


COMMANDS = b"".join(b"PUB %b\n\0\0\0\1x" % name for name in (b"a#ephemeral", b"b#ephemeral")) * 6000
"""Commands that are no run: each is carried out by itself."""


@pytest.mark.parametrize("codec", ["plain", "deflate"])
def test_a_client_does_not_wait_for_thousands_of_commands_of_others(broker, connect, packed_socket, codec):
    """Eight clients send 96,000 commands in some dozen reads; a ninth is answered repeatedly in between."""
    heavy = [connect(broker) if codec == "plain" else deflated(connect, packed_socket, broker) for _ in range(8)]
    bystander = connect(broker)
    senders = [threading.Thread(target=client.socket.sendall, args=[COMMANDS], daemon=True) for client in heavy]
    readers = [threading.Thread(target=read_answers, args=[client.socket], daemon=True) for client in heavy]
    for thread in senders + readers:
        thread.start()
    answered = 0
    while any(thread.is_alive() for thread in readers):
        bystander.ok(b"PUB c\n\0\0\0\1x")
        answered += 1
    assert answered > 60


def read_answers(client) -> None:
    """Read the OKs to COMMANDS."""
    left = 12_000 * 10
    while left:
        left -= len(client.recv(min(left, 65536)))


def test_a_deflated_flood_of_nops_is_skipped(broker, connect, packed_socket):
    """Twenty megabytes of NOP, deflated to twenty kilobytes, and then a command that is answered."""
    client = deflated(connect, packed_socket, broker)
    packer = client.socket.packer
    packed = (
        packer.compress(b"NOP\n" * 5_000_000) + packer.compress(b"PUB t\n\0\0\0\1x") + packer.flush(zlib.Z_SYNC_FLUSH)
    )
    client.socket.under.sendall(packed)
    assert client.frame() == (0, b"OK")
