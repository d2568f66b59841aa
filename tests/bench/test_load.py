"""The load generators against scripted servers and the floors."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from bench import load, wire
from bench.errors import BenchError
from bench.processes import Cores
from bench.server import Address, floor
from tests.harness.waiting import DEADLINE_S

ANYWHERE = Cores(frozenset(), frozenset())


@pytest.fixture
def scripted() -> Iterator[Callable[[bytes], Address]]:
    """Serve one connection: the first input is answered with the given bytes, later input is not answered."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(answer: bytes, *, then_close: bool = False) -> Address:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            with closing(listener.accept()[0]) as peer:
                peer.recv(65536)
                peer.sendall(answer)
                while not then_close and peer.recv(65536):
                    pass

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return listener.getsockname()

    yield start
    for thread in threads:
        thread.join(DEADLINE_S)
    for listener in listeners:
        listener.close()


def test_the_publisher_counts_only_acknowledged_messages() -> None:
    """Every batch is waited for, and none is counted twice."""
    command = wire.mpub("t", [b"x" * 10] * 5)
    with floor(ANYWHERE, "swallow", f"--first={len(load.GREETING)}", f"--every={len(command)}") as server:
        done = load.publish(server.tcp, command, messages=5, seconds=60, commands=1000)
    assert done.messages == 5000


def test_the_storing_floor_writes_all_bytes(tmp_path: Path) -> None:
    """It answers like the swallowing floor, and every byte is in its files."""
    command = wire.mpub("t", [b"x" * 10] * 5)
    sizes = [f"--first={len(load.GREETING)}", f"--every={len(command)}"]
    with floor(ANYWHERE, "store", *sizes, f"--directory={tmp_path}") as server:
        done = load.publish(server.tcp, command, messages=5, seconds=60, commands=100)
    assert done.messages == 500
    assert (tmp_path / "0").read_bytes().rstrip(b"\0") == load.GREETING + command * 100


def test_the_consumer_finishes_every_message_of_the_flood() -> None:
    """It stops at the given number (plus at most one buffer), and its FINs contain the received ids."""
    with floor(ANYWHERE, "blast", "--size=200") as server:
        done = load.consume(server.tcp, "t", "c", expected=100_000, size=200, ready_count=2500, seconds=60)
    assert done.messages >= 100_000


def test_the_sending_floor_takes_its_messages_from_files(tmp_path: Path) -> None:
    """They are identical to the blasting floor's, also from the second file on."""
    with floor(ANYWHERE, "send", "--size=200", f"--directory={tmp_path}") as server:
        done = load.consume(server.tcp, "t", "c", expected=400_000, size=200, ready_count=2500, seconds=60)
    assert done.messages >= 400_000
    assert len(list(tmp_path.iterdir())) > 1


def test_a_fin_carries_the_id_of_its_message(scripted: Callable[..., Address]) -> None:
    """Ids are copied from the buffer by stride, also with a heartbeat between messages."""
    listener = socket.create_server(("127.0.0.1", 0))
    received = b""

    def serve() -> None:
        nonlocal received
        with closing(listener.accept()[0]) as peer:
            first, second = wire.message_frame(0xA1, b"x" * 7), wire.message_frame(0xB2, b"x" * 7)
            peer.sendall(wire.OK + wire.OK + first + wire.HEARTBEAT + second)
            while not received.endswith(b"CLS\n"):
                received += peer.recv(65536)
            peer.sendall(wire.CLOSE_WAIT)

    thread = threading.Thread(target=serve)
    thread.start()
    with listener:
        done = load.consume(listener.getsockname(), "t", "c", expected=2, size=7, ready_count=10, seconds=60)
        thread.join(DEADLINE_S)
    assert done.messages == 2
    said = received.partition(b"RDY 10\n")[2]
    assert said == b"FIN 00000000000000a1\nNOP\nFIN 00000000000000b2\nCLS\n"


def test_the_consumer_does_not_close_before_the_first_message() -> None:
    """A busy server may begin after the load's whole time; its first message is finished, and then the load ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    early = late = b""

    def serve() -> None:
        nonlocal early, late
        with closing(listener.accept()[0]) as peer:
            peer.settimeout(0.5)  # several times the load's time
            with suppress(TimeoutError):
                while received := peer.recv(65536):
                    early += received
            peer.settimeout(DEADLINE_S)
            peer.sendall(wire.OK + wire.OK + wire.message_frame(0xA1, b"x" * 7))
            while not late.endswith(b"CLS\n"):
                late += peer.recv(65536)
            peer.sendall(wire.CLOSE_WAIT)

    thread = threading.Thread(target=serve)
    thread.start()
    with listener:
        done = load.consume(listener.getsockname(), "t", "c", expected=math.inf, size=7, ready_count=10, seconds=0.1)
        thread.join(DEADLINE_S)
    assert done.messages == 1
    assert early.endswith(b"RDY 10\n")
    assert late == b"FIN 00000000000000a1\nCLS\n"


@pytest.mark.parametrize("parts", [[b"SUB t c\nRDY 2500\nCLS\n"], [b"SUB t c\nRD", b"Y 2500\nCL", b"S\n"]])
def test_the_blasting_floor_reads_commands_however_they_are_divided(parts: list[bytes]) -> None:
    """CLS is answered if it arrives with SUB and RDY, and if it arrives in two parts."""
    with (
        floor(ANYWHERE, "blast", "--size=200") as server,
        socket.create_connection(server.tcp, timeout=DEADLINE_S) as client,
    ):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(load.GREETING)
        for part in parts:
            time.sleep(0.05)  # so that the parts mostly arrive one by one; if they do not, the answer is the same
            client.sendall(part)
        received = b""
        while not received.endswith(wire.CLOSE_WAIT):
            received += client.recv(65536)
    assert received.startswith(wire.OK * 2)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (wire.frame(wire.ERROR, b"E_BAD_TOPIC PUB topic"), "the server answered E_BAD_TOPIC PUB topic"),
        (wire.OK + wire.frame(wire.ERROR, b"E_INVALID x"), "the server answered E_INVALID x"),
    ],
)
def test_a_refusal_ends_the_load_with_the_servers_words(
    scripted: Callable[..., Address], answer: bytes, says: str
) -> None:
    """Otherwise the benchmark would measure errors."""
    with pytest.raises(BenchError, match=says):
        load.publish(scripted(answer), wire.pub("t", b"x"), 1, seconds=60)


def test_a_closed_connection_ends_the_load(scripted: Callable[..., Address]) -> None:
    """A server that closes the connection is reported at once."""
    with pytest.raises(BenchError, match="the server closed the connection"):
        load.publish_one_at_a_time(scripted(b"", then_close=True), wire.pub("t", b"x"), seconds=60)


def test_a_message_of_another_size_is_not_miscounted(scripted: Callable[..., Address]) -> None:
    """Strides are valid for one size only: another size is an error, which contains both."""
    address = scripted(wire.OK + wire.OK + wire.message_frame(1, b"xxx"))
    with pytest.raises(BenchError, match="a message of 3 B arrived instead of 7 B"):
        load.consume(address, "t", "c", expected=math.inf, size=7, ready_count=1, seconds=60)


def test_http_other_than_200_ends_the_load(scripted: Callable[..., Address]) -> None:
    """An overloaded or refusing broker does not count as a fast one."""
    address = scripted(b"HTTP/1.1 413 Too Big\r\nContent-Length: 2\r\n\r\nOK")
    with pytest.raises(BenchError, match="413 Too Big"):
        load.post(address, wire.post("/pub?topic=t", b"x"), 1, seconds=60, connections=1)
