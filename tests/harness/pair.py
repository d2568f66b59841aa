"""A mirrored pair of brokers as processes, and clients that know both addresses and what was acknowledged."""

from __future__ import annotations

import json
import random
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import trustme

from tests.harness.daemon import Broker
from tests.harness.etcd import EtcdServer
from tests.harness.link import Link
from tests.harness.loopback import own_address
from tests.harness.v2 import MESSAGE, V2Client, mpub
from tests.harness.waiting import wait_until

LEADS = "MIRROR: leads term"
MAY_NOT_LEAD = "MIRROR: cannot lead: it is not in sync"
STARTS_AGAIN = "the process starts again"
TCP, HTTP, MIRROR = 21150, 21151, 21155
"""The ports of each member, on its own address. They are not nsqd's: other tests listen on those at all addresses."""
LONG_LEASE = "60s"
"""A lease that does not end within a test, however slow the machine is."""
TAKEOVER_TRIES = 5
CLIENT_TIMEOUT_S = 5.0
"""After it, a client tries the other member. Nothing is asserted about the time."""


def mirror_tls(authority: trustme.CA, directory: Path, host: str) -> list[str]:
    """The flags of a member that the other one reaches at ``host``."""
    directory.mkdir()
    certificate = authority.issue_cert(host)
    certificate.cert_chain_pems[0].write_to_path(directory / "crt")
    certificate.private_key_pem.write_to_path(directory / "key")
    authority.cert_pem.write_to_path(directory / "ca")
    flags = {"cert": "crt", "key": "key", "root-ca-file": "ca"}
    return ["--mirror-tls", "--https-address=", *(f"--tls-{flag}={directory / file}" for flag, file in flags.items())]


class Member(Broker):
    """One broker of a pair."""

    def __init__(self, name: str, host: str, peer: str, data_path: Path, *flags: str) -> None:
        self.name, self.host = name, host
        addresses = (
            f"--tcp-address={host}:{TCP}",
            f"--http-address={host}:{HTTP}",
            f"--mirror-address={host}:{MIRROR}",
        )
        super().__init__(data_path, *addresses, f"--mirror-peer={peer}:{MIRROR}", *flags)
        self.tcp_address, self.http_address = f"{host}:{TCP}", f"{host}:{HTTP}"

    def let_disk_fail(self) -> None:
        """Start, from now on, a broker whose disk fails as :meth:`fail` says."""
        self._faults = self.data_path.with_name(f"faults-{self.name}")
        self.fail()
        self.command[2:3] = ["tests.failures.faulty_broker", f"--faults={self._faults}"]

    def fail(self, **kinds: int | str) -> None:
        """Let system calls fail from now on, as :class:`tests.failures.disk.FaultyDisk` does; without any, none."""
        aside = self._faults.with_suffix(".new")
        aside.write_text(json.dumps(kinds))
        aside.replace(self._faults)

    @property
    def leads(self) -> bool:
        """True if the process runs and has won the lead, by its log."""
        lines = [line for line in self.log if LEADS in line or STARTS_AGAIN in line]
        return self.is_running and bool(lines) and LEADS in lines[-1]

    def mirror_figures(self) -> dict[str, Any]:
        """The figures of ``/stats`` about the mirror, of the primary if this member follows."""
        return dict(self.stats(include_histograms="true")["mirror"])

    @property
    def descriptor_count(self) -> int:
        """The number of the process's open descriptors."""
        return int(psutil.Process(self.process.pid).num_fds())


class Pair:
    """Two members, ``a`` and ``b``, and their arbiter. All connections between them can be cut."""

    def __init__(
        self,
        directory: Path,
        etcd: EtcdServer | None,
        *flags: str,
        lease: str = "3s",
        disks_fail: bool = False,
        authority: trustme.CA | None = None,
    ) -> None:
        """With an ``authority``, the stream between the members is encrypted. Without ``etcd``, ``flags`` have the
        arbiter."""
        hosts = own_address(), own_address()
        self.members: list[Member] = []
        self._to_peers: list[Link] = []
        self._to_arbiter: dict[str, Link] = {}
        for name, host, peer in (("a", *hosts), ("b", *reversed(hosts))):
            path = directory / name
            path.mkdir()
            to_peer = Link(own_address(), peer, (TCP, HTTP, MIRROR))
            self._to_peers.append(to_peer)
            given = (f"--mirror-lease={lease}", *flags)
            if etcd is not None:
                self._to_arbiter[name] = to_arbiter = Link(own_address(), etcd.host, (etcd.PORT,))
                given += (f"--arbiter={etcd.scheme}://{to_arbiter.host}:{etcd.PORT}/{directory.name}",)
            self.members.append(Member(name, host, to_peer.host, path, *given))
            if disks_fail:
                self.members[-1].let_disk_fail()
        if authority is not None:
            for member, to_peer in zip(self.members, reversed(self._to_peers), strict=True):
                member.command += mirror_tls(authority, directory / f"{member.name}.tls", to_peer.host)

    def links(self, *, members: bool = False, arbiter_of: tuple[Member, ...] = ()) -> list[Link]:
        """The links between the members, and those of some of them to the arbiter."""
        return [*(self._to_peers if members else ()), *(self._to_arbiter[member.name] for member in arbiter_of)]

    def start(self) -> None:
        """Start both, and wait until both are in sync. The first founds the pair."""
        first, second = self.members
        (first.data_path / "topics").mkdir()  # it has data, so it does not wait for the other one to found the pair
        first.start()
        wait_until(lambda: first.leads, "the first member leads")
        second.start()
        self.wait_until_in_sync()

    @property
    def primary(self) -> Member | None:
        """The member that leads; None while nobody does."""
        leading = [member for member in self.members if member.leads]
        return leading[0] if len(leading) == 1 else None

    def wait_for_primary(self) -> Member:
        """Wait until a member leads and answers."""

        def answering() -> Member | None:
            primary = self.primary
            return primary if primary is not None and self._figures(primary) else None

        return wait_until(answering, "a member leads")

    def wait_for_takeover(self, lost: Member, *, since: int | None = None) -> bool:
        """Wait until the other member leads. False if it may not, because it was not in sync when ``lost`` was lost.

        On a busy machine a follower may be dropped at any moment; the lost member then has to come back. ``since`` is
        the length of the other member's log before ``lost`` was lost, if the lead may have ended before this call.
        """
        other = self.other(lost)
        began = len(other.log) if since is None else since

        def ended() -> bool | None:
            if other.leads:
                return True
            return False if any(MAY_NOT_LEAD in line for line in other.log[began:]) else None

        return wait_until(lambda: () if (found := ended()) is None else (found,), "the other member leads")[0]

    def lose_primary(self, how: signal.Signals, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        """End the primary and wait until the other member leads; then start it, and wait until both are in sync.

        ``meanwhile`` is called before it is started. On a busy machine the follower may not be in sync when the primary
        ends; then this is tried again.
        """
        for _ in range(TAKEOVER_TRIES):
            lost = self.wait_for_primary()
            since = len(self.other(lost).log)  # the lead may end before the process does
            lost.end(how)
            is_replaced = self.wait_for_takeover(lost, since=since)
            if is_replaced:
                meanwhile()
            lost.start()
            self.wait_until_in_sync()
            if is_replaced:
                return
        raise AssertionError(f"the follower was out of sync {TAKEOVER_TRIES} times")

    def other(self, member: Member) -> Member:
        """The other member."""
        first, second = self.members
        return second if member is first else first

    def wait_until_in_sync(self) -> dict[str, Any]:
        """Wait until both are in sync. Returns the primary's figures."""

        def both() -> dict[str, Any] | None:
            figures = None if self.primary is None else self._figures(self.primary)
            return figures if figures is not None and len(figures["in_sync"]) == 2 else None

        return wait_until(both, "both members are in sync")

    @staticmethod
    def _figures(member: Member) -> dict[str, Any] | None:
        try:
            return member.mirror_figures()
        except (OSError, AssertionError, KeyError, ValueError):  # nobody leads, or it does not answer yet
            return None

    def close(self) -> None:
        """Kill both."""
        for link in (*self._to_peers, *self._to_arbiter.values()):
            link.close()
        for member in self.members:
            if hasattr(member, "process"):
                member.close()


class Load:
    """Publishers and consumers of one topic, which change to the other member when they lose one."""

    def __init__(
        self,
        pair: Pair,
        *,
        publishers: int = 2,
        consumers: int = 1,
        topic: str = "orders",
        timeout_s: float = CLIENT_TIMEOUT_S,
    ) -> None:
        """Clients change to the other member if one does not answer within ``timeout_s``."""
        self.attempted: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.received: set[bytes] = set()
        self.errors: list[str] = []
        """What publishers were answered, and how they lost a connection."""
        self._pair, self._topic, self._timeout_s = pair, topic, timeout_s
        self._lock = threading.Lock()
        self._open: set[V2Client] = set()
        self._ends, self._consumers_end = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._publish, args=(number,)) for number in range(publishers)]
        self._consumers = [threading.Thread(target=self._consume, args=(number,)) for number in range(consumers)]

    def __enter__(self) -> Load:
        for thread in (*self._threads, *self._consumers):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._consumers_end.set()
        with self._lock:
            for client in self._open:
                with suppress(OSError):
                    client.socket.shutdown(socket.SHUT_RDWR)  # wakes up the thread that reads
        for thread in (*self._threads, *self._consumers):
            thread.join()

    def wait_for(self, more: int) -> None:
        """Wait until ``more`` further messages are acknowledged."""
        target = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= target, f"{more} more messages are acknowledged")

    def finish(self) -> None:
        """End the publishers, and wait until the consumers have received all that was acknowledged."""
        self._ends.set()
        for thread in self._threads:
            thread.join()
        if self._consumers:
            wait_until(lambda: not self.lost, "all acknowledged messages are received")

    @property
    def lost(self) -> set[bytes]:
        """What was acknowledged and not received."""
        return self.acknowledged - self.received

    @property
    def unexpected(self) -> set[bytes]:
        """What was received and never published."""
        return self.received - self.attempted

    def _publish(self, number: int) -> None:
        serial, chance = 0, random.Random(number)

        def conversation(client: V2Client) -> None:
            nonlocal serial
            while not self._ends.is_set():
                bodies = [b"%d-%d" % (number, serial + each) for each in range(chance.randrange(1, 10))]
                serial += len(bodies)
                with self._lock:
                    self.attempted.update(bodies)
                _, answer = client.command(mpub(self._topic, bodies))
                if answer != b"OK":
                    with self._lock:
                        self.errors.append(answer.decode(errors="replace"))
                    return
                with self._lock:
                    self.acknowledged.update(bodies)

        self._converse(number, self._ends, conversation)

    def _consume(self, number: int) -> None:
        def conversation(client: V2Client) -> None:
            client.send(b"SUB %s c\nRDY 100\n" % self._topic.encode())
            while not self._consumers_end.is_set():
                kind, data = client.frame()
                if kind == MESSAGE:
                    with self._lock:
                        self.received.add(data[26:])
                    client.send(b"FIN %s\n" % data[10:26])

        self._converse(number, self._consumers_end, conversation)

    def _converse(self, number: int, ends: threading.Event, conversation: Callable[[V2Client], None]) -> None:
        member = self._pair.members[number % 2]
        while not ends.is_set():
            client = None
            try:
                client = V2Client(member.tcp, timeout_s=self._timeout_s)
                client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open.add(client)
                conversation(client)
            except (OSError, EOFError) as error:
                if ends is self._ends and not ends.is_set():
                    with self._lock:
                        self.errors.append(repr(error))
            finally:
                if client is not None:
                    with self._lock:
                        self._open.discard(client)
                    client.socket.close()
            member = self._pair.other(member)
            ends.wait(0.05)
