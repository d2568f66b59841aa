"""Listening addresses: parsing, checking whether they are free, and finding the process that uses one."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import NamedTuple

import psutil


class Address(NamedTuple):
    """``host`` is empty for all interfaces, as in nsqd's ``:4150``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def reachable(self) -> Address:
        """The address for processes of this machine: loopback in place of all interfaces."""
        return Address("127.0.0.1", self.port) if self.host in ("", "0.0.0.0", "::") else self

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def elsewhere(self) -> Address:
        """The address for other machines: in place of all interfaces, that of one of them, or loopback without any."""
        return self if self.reachable == self else Address(own_address(), self.port)


class Claim(NamedTuple):
    """An address to listen on: its purpose, and the flag that changes it."""

    address: Address
    purpose: str
    flag: str


def own_address() -> str:
    """The IPv4 address from which this machine reaches others, or that of an interface; 127.0.0.1 if it has none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # TEST-NET-1: the system chooses a route, and nothing is sent
        return str(probe.getsockname()[0])
    found = [name for name in interface_addresses() if ":" not in name and not ip_address(name).is_loopback]
    return min(found, default="127.0.0.1")


def own_names() -> list[str]:
    """The names of this machine in URLs: its host names and addresses. A proxy's name is unknown."""
    addresses = {f"[{each}]" if ":" in each else each for each in interface_addresses()}
    return sorted({socket.gethostname(), socket.getfqdn(), *addresses})


def interface_addresses() -> set[str]:
    """The IPv4 and IPv6 addresses of this machine's interfaces, without zones."""
    return {
        each.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    }


def parse_address(text: str) -> Address:
    """Parse ``host:port``, ``:port`` or ``[v6]:port``. Raises ValueError that names ``text``."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port with a port from 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: put an IPv6 host in brackets, [{host}]:{port}")
    return Address(host, int(port))


def bind_error(address: Address) -> OSError | None:
    """The error that listening at ``address`` would raise now, or None."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            # As servers do, so that connections in TIME_WAIT do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def holder(port: int) -> str | None:
    """The process that listens on TCP ``port``, as ``name (pid n)``; None if unknown."""
    pid = holder_pid(port)
    return describe_process(pid) if pid else None


def holder_pid(port: int) -> int | None:
    """The pid of the process that listens on TCP ``port``; None if unknown."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:  # macOS shows other processes' sockets to root only
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return int(connection.pid)
    return None


def describe_process(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        words = process.cmdline()
        name = process.name()
    except psutil.Error:
        return f"pid {pid}"
    # For "python3.11", the arguments identify the program.
    if name.startswith("python"):
        name = " ".join([os.path.basename(words[0]), *words[1:4]])[:60] if words else name
    return f"{name} (pid {pid})"


class Problem(NamedTuple):
    """An address that cannot be used, in one line, and the flag that changes it."""

    text: str
    flag: str


def problems(claims: Iterable[Claim]) -> list[Problem]:
    """The addresses that cannot be used; the text has the process that uses one, and the flag."""
    found: list[Problem] = []
    seen: dict[int, Claim] = {}
    for claim in claims:
        address, purpose, flag = claim
        choose = f"choose another with {flag} {address.host}:PORT"
        if twin := seen.get(address.port):
            found.append(Problem(f"port {address.port} is given twice, by {twin.flag} and {flag}", flag))
            continue
        seen[address.port] = claim
        error = bind_error(address)
        if error is None:
            continue
        if error.errno == errno.EADDRINUSE:
            taken_by = holder(address.port) or "an unknown process"
            text = f"port {address.port} ({purpose}) is in use by {taken_by}; {choose}"
        else:
            text = f"cannot listen on {address} ({purpose}): {error.strerror or error}; {choose}"
        found.append(Problem(text, flag))
    return found
