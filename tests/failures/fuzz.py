"""Fuzzers: connections that send anything to a port, while a bystander is served.

``python -m tests.failures.fuzz --seconds=3600`` runs them by hand; the seed is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from bench.processes import anonymous_bytes
from tests.failures.bystander import Bystander, Fuzzed
from tests.failures.fuzz_platform import fuzz_platform
from tests.failures.grammar import TARGETS as PORTS
from tests.failures.grammar import conversations
from tests.harness.conversation import converse
from tests.harness.daemon import Broker, Daemon, Registry
from tests.harness.v2 import V2Client, sized
from tests.harness.waiting import DEADLINE_S

BATCH = 50
"""Conversations between two looks at the clock."""
TARGETS = (*PORTS, "platform_http")
MOST_GROWTH = 256 << 20
"""Bytes by which the anonymous memory of a process may grow."""
BYSTANDER = "bystander"


def beside_broker(broker: Daemon) -> Callable[[], bool]:
    """A turn beside a broker: publish a message, receive and finish it. False if another message came."""
    publisher, consumer = V2Client(broker.tcp), V2Client(broker.tcp)
    for client in (publisher, consumer):
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    consumer.sub(BYSTANDER, "c", 1)

    def turn() -> bool:
        body = secrets.token_bytes(16)
        publisher.pub(BYSTANDER, body)
        message_id, attempts, came = consumer.message()
        consumer.finish(message_id)
        return (came, attempts) == (body, 1)

    return turn


def beside_registry(registry: Daemon) -> Callable[[], bool]:
    """A turn beside a registry: ask where the bystander's topic is. False if its node is not in the answer."""
    node = socket.create_connection(registry.tcp, DEADLINE_S)
    identity = b'{"broadcast_address":"bystander","hostname":"h","tcp_port":1,"http_port":2,"version":"1.3.0"}'
    node.sendall(b"  V1IDENTIFY\n" + sized(identity) + b"REGISTER bystander c\n")

    def answer() -> bytes:
        size = struct.unpack(">i", _exactly(node, 4))[0]
        return _exactly(node, size)

    answer(), answer()

    def turn() -> bool:
        node.sendall(b"PING\n")
        assert answer() == b"OK"
        found = registry.get(f"/lookup?topic={BYSTANDER}")
        return [each["broadcast_address"] for each in found["producers"]] == ["bystander"] and found["channels"] == [
            "c"
        ]

    return turn


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = peer.recv(size - len(data))
        assert part, "the bystander was disconnected"
        data += part
    return data


def fuzz(target: str, seconds: float, seed_: int, folder: Path) -> Fuzzed:
    """Fuzz one port of a new process, or of a new platform, for ``seconds``, at least BATCH conversations."""
    if target == "platform_http":
        return fuzz_platform(seconds, seed_)
    daemon: Daemon = Broker(folder) if target.startswith("broker") else Registry()
    with daemon:
        daemon.wait_until_ready()
        bystander = Bystander(beside_broker(daemon) if target.startswith("broker") else beside_registry(daemon))
        bystander.start()
        before = anonymous_bytes(daemon.process.pid) or 0
        address = daemon.tcp if target.endswith("tcp") else daemon.http
        done, failures = 0, list[str]()

        @given(data=conversations(target), piece=st.sampled_from([1, 7, 100, 10_000]), abrupt=st.booleans())
        @settings(
            max_examples=BATCH,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def one(data: bytes, piece: int, abrupt: bool) -> None:
            nonlocal done
            done += 1
            try:
                converse(address, data, max(piece, len(data) // 200), abrupt=abrupt)
            except OSError as error:
                failures.append(f"{error!r} after {data!r}")
                raise

        until, batch = time.monotonic() + seconds, 0
        while not failures and (batch == 0 or time.monotonic() < until):
            with contextlib.suppress(OSError):
                seed(seed_ + batch)(one)()
            batch += 1
        bystander.end()
        if bystander.is_alive() or bystander.failure is not None:
            failures.append(f"the bystander was not served: {bystander.failure or 'no answer'!r}")
        if not daemon.is_running:
            failures.append(f"the process ended: {daemon.output[-2000:]}")
        elif (grown := (anonymous_bytes(daemon.process.pid) or 0) - before) > MOST_GROWTH:
            failures.append(f"the process grew by {grown >> 20} MiB")
        if "Traceback" in daemon.output:
            at = daemon.output.index("Traceback")
            failures.append(daemon.output[max(0, at - 300) : at + 3000])
        return Fuzzed(target, seed_, done, bystander.asked, bystander.answered, bystander.unexpected, failures)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.failures.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--target", choices=TARGETS, action="append", help="the port; more than once for several (default all)"
    )
    parser.add_argument("--seconds", type=float, default=3600, help="for all ports together (default 3600)")
    parser.add_argument("--seed", type=int, help="repeat what an earlier run sent")
    given_ = parser.parse_args()
    targets = given_.target or TARGETS
    seed_ = secrets.randbelow(10**9) if given_.seed is None else given_.seed
    print(f"seed {seed_}", flush=True)
    has_failed = False
    for target in targets:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            done = fuzz(target, given_.seconds / len(targets), seed_, Path(folder))
        served = f"{done.answered} of {done.asked} turns of the bystander"
        print(f"{target}: {done.conversations} conversations, {served}, {len(done.failures)} failures", flush=True)
        for failure in done.failures:
            print(f"  {failure}")
        has_failed = has_failed or bool(done.failures) or done.unexpected > 0
    sys.exit(1 if has_failed else 0)


if __name__ == "__main__":
    main()
