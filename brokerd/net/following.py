"""Runs the follower's side of a pair: its connection to the primary, and the files that it applies actions to."""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from brokerd.clock import boot_time
from brokerd.file_failure import named
from brokerd.mirror.election import Election, Role
from brokerd.mirror.errors import Fenced, InvalidStream, JoinRefused, MirrorDamaged
from brokerd.mirror.follower import Follower
from brokerd.mirror.hello import Hello
from brokerd.mirror.stamps import Stamps
from brokerd.net.background import Background
from brokerd.net.mirror_links import send_at_once
from brokerd.net.mirror_tls import MirrorTLS
from brokerd.nsqd_import import METADATA
from brokerd.replica import MirrorState, Replica, has_data
from brokerd.stamp_file import write_stamps
from brokerd.syncer import sync
from nsqwire.units import Seconds

DIAL_AGAIN_S: Final = 0.5
"""Delay between attempts to connect, and between the first attempts to join."""
MAX_DIAL_AGAIN_S: Final = 8.0
"""Longest delay between attempts to join. It doubles while the reason stays the same: most need an operator."""
ERRORS_BEFORE_LOG: Final = 5
"""Failures in a row to connect, for one reason, before the reason is logged: members start one by one."""
LEASES_OF_A_KILLED_PRIMARY: Final = 2
"""Number of leases for which a killed primary may lead by the arbiter's record: its own, and the time to end it."""
DISCARDED_BYTES: Final = 4096
"""Size of the buffer for input of a connection that is being closed."""
logger = logging.getLogger("brokerd")


class _Primary(NamedTuple):
    """The primary of a term. ``ports`` are those for clients of TCP and HTTP, 0 if these cannot be passed on."""

    epoch: int
    host: str
    ports: tuple[int, int]


class Following:
    """Connects to the other member as long as this one follows, by the role in ``election``.

    ``files`` prepares and syncs the files. ``lease_s`` is ``--mirror-lease``, which should be the primary's too.
    ``patience_s`` is how long a connection may take, and half of how long the primary may be silent. With
    ``syncs_each``, what was applied is acknowledged once it is on the disk; otherwise it is synced every
    ``sync_timeout_s``.
    """

    def __init__(
        self,
        data_path: Path,
        state: MirrorState,
        election: Election,
        peer: tuple[str, int],
        tls: MirrorTLS | None,
        files: Executor,
        *,
        lease_s: int,
        patience_s: Seconds,
        syncs_each: bool,
        sync_timeout_s: Seconds,
    ) -> None:
        self.state = state
        """The contents of ``mirror.json``."""
        self._data_path = data_path
        self._election = election
        self._peer = peer
        self._tls = tls
        self._files = files
        self._lease_s, self._patience_s = lease_s, patience_s
        self._syncs_each, self._sync_timeout_s = syncs_each, sync_timeout_s
        self._loop = asyncio.get_running_loop()
        self._connection: _Connection | None = None
        self._replica: Replica | None = None
        """The files as the last connection to a primary has changed them."""
        self._dial_at: Seconds = 0.0
        self._primary: _Primary | None = None
        """The primary that welcomed this member last; None if it was silent or refused this member since."""
        self._connect_error, self._connect_error_count = "", 0
        self._not_greeted_in: tuple[int, Seconds] | None = None
        """The term in which the primary closes connections before it welcomes this member, and since when it does."""
        self._last_obstacle, self._join_again_s = "", DIAL_AGAIN_S
        self._stamps_failed = False
        """True if stamps could not be stored since this member has last followed."""
        self._other_lease_s = 0
        """The lease of the primary that was logged because it differs from this member's; 0 if none was."""
        self._tasks = Background()
        self._is_over = False

    # -- the member's side ----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due. To be called several times in a tenth of a lease, while the member follows."""
        connection = self._connection
        if connection is not None:
            if boot_time() - connection.heard_at > 2 * self._patience_s:
                logger.warning("MIRROR: nothing was received from the primary for %g s", 2 * self._patience_s)
                self._primary = None  # clients would wait for it in vain
                self.drop()
        elif boot_time() >= self._dial_at:
            self._dial_at = boot_time() + DIAL_AGAIN_S + self._patience_s
            self._tasks.start(self._dial())

    def write_state(self, **changes: Any) -> None:
        """Change members of ``state``, and the file. Raises OSError."""
        self.state = replace(self.state, **changes)
        self.state.write(self._data_path)

    def target(self, kind: int) -> tuple[str, int] | None:
        """The primary's address for clients of kind 0, TCP, or 1, HTTP; None if they cannot be passed on.

        Clients are passed on to it also while this member cannot join, for example because its disk is full.
        """
        primary = self._primary
        if primary is None or not primary.ports[kind] or not (self._is_joined or self._leads_still(primary)):
            return None
        return primary.host, primary.ports[kind]

    @property
    def _is_joined(self) -> bool:
        follower = None if self._connection is None else self._connection.follower
        return follower is not None and follower.is_welcomed

    def _leads_still(self, primary: _Primary) -> bool:
        """Return whether ``primary`` still leads, by the arbiter's last answer. Otherwise another broker may listen at
        its address by now."""
        answer = self._election.last_answer
        if answer is None or answer.record is None or answer.record.epoch != primary.epoch:
            return False
        return answer.leader == answer.record.leader != self.state.member

    def drop(self) -> None:
        """Close the connection, and acknowledge nothing more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.transport.abort()

    def cut_incomplete(self) -> None:
        """Remove messages that came without their commit records, and a last change that came in part.

        To be called before this member leads. Raises OSError.
        """
        if self._replica is not None:
            self._replica.cut_incomplete()

    def close(self) -> None:
        """Close the connection, and open no further one."""
        self._is_over = True
        self.drop()
        self._tasks.cancel()

    async def _dial(self) -> None:
        context = None if self._tls is None else self._tls.connects
        try:
            async with asyncio.timeout(self._patience_s):
                await self._loop.create_connection(lambda: _Connection(self), *self._peer, ssl=context)
        except (OSError, UnicodeError) as error:  # UnicodeError: of a host such as a..b
            self._not_connected(str(error) or f"no answer within {self._patience_s:g} s")
        self._dial_at = boot_time() + DIAL_AGAIN_S

    def _not_connected(self, reason: str) -> None:
        """Log a reason once, after it has occurred several times in a row."""
        self._connect_error_count = self._connect_error_count + 1 if reason == self._connect_error else 1
        self._connect_error = reason
        if self._connect_error_count == ERRORS_BEFORE_LOG:
            logger.warning("MIRROR: cannot connect to %s:%d: %s", *self._peer, reason)

    # -- the connection's side ------------------------------------------------------------------------------------

    def dialled(self, connection: _Connection) -> None:
        """The other member has accepted the connection."""
        election = self._election
        if self._connection is not None or election.role is not Role.FOLLOWER or self._is_over:
            connection.transport.abort()
            return
        self._connection = connection
        try:
            has_messages = holds_messages(self._data_path)
        except OSError as error:
            self._cannot_follow(str(error))
            return
        record = None if election.last_answer is None else election.last_answer.record
        seen = 0 if record is None else record.epoch
        own = election.pair if election.epoch else ""  # it was never of the pair that it has only tried to found
        pair = own if has_messages or record is None else own or record.pair
        hello = Hello(
            member=self.state.member, pair=pair, boot=self.state.boot, has_data=has_messages, stores_stamps=True
        )
        connection.replica = Replica(self._data_path, self.state)
        connection.follower = Follower(hello, max(self.state.epoch, seen), connection.replica)
        connection.send()

    def streamed(self, connection: _Connection, nbytes: int) -> None:
        """The primary has sent ``nbytes`` bytes, which are in the follower's buffer."""
        follower, replica = connection.follower, connection.replica
        if connection is not self._connection or follower is None or replica is None:
            return
        was_welcomed, was_copied = follower.is_welcomed, follower.is_copied
        try:
            follower.read(nbytes)
        except JoinRefused as error:
            self._primary = None
            self._cannot_follow(str(error))
            return
        except OSError as error:
            self._note_primary(follower, replica)
            self._cannot_follow(str(error))
            return
        except (Fenced, InvalidStream, MirrorDamaged) as error:
            self._cannot_follow(str(error))
            return
        if follower.is_welcomed and not was_welcomed and follower.welcome is not None:
            self.state, self._replica = replica.state, replica
            self._connect_error_count, self._not_greeted_in = 0, None
            self._election.joined(replica.state.pair, replica.state.epoch)
            self._note_primary(follower, replica)
            if not self._last_obstacle:
                logger.info("MIRROR: joins the primary of term %d", replica.state.epoch)
            self._compare_leases(follower.welcome.lease_s)
        if follower.is_copied and not was_copied and not self._stamps_failed:
            self._follows()
        if follower.awaits_sums:
            follower.awaits_sums = False
            self._tasks.start(self._prepare(connection, follower, replica))
        if follower.stamps is not None:
            stamps, follower.stamps = follower.stamps, None
            self._tasks.start(self._store(connection, follower, replica, stamps))
        self._sync_and_send(connection, replica)

    def _follows(self) -> None:
        """The follower has joined, and has stored its stamps if that had failed."""
        self._last_obstacle, self._join_again_s = "", DIAL_AGAIN_S
        logger.info("MIRROR: has the primary's files, and follows")

    def _note_primary(self, follower: Follower, replica: Replica) -> None:
        """Keep the primary's address for clients, if it has welcomed this member."""
        if (welcome := follower.welcome) is not None:
            ports = welcome.tcp_port, welcome.http_port
            self._primary = _Primary(replica.state.epoch, self._peer[0], ports)

    def _compare_leases(self, primary_s: int) -> None:
        """Log once that the primary has another lease. Both go on: an operator changes one member after the other."""
        if primary_s and primary_s not in (self._lease_s, self._other_lease_s):
            logger.warning(
                "MIRROR: --mirror-lease is %d s here and %d s at the primary: set it to the same on both",
                self._lease_s,
                primary_s,
            )
            self._other_lease_s = primary_s

    def _cannot_follow(self, reason: str) -> None:
        """This member cannot join, or not follow on: try again later. Log the reason, unless it is the last one."""
        if reason != self._last_obstacle:
            logger.error("MIRROR: cannot follow: %s", reason)
            self._last_obstacle, self._join_again_s = reason, DIAL_AGAIN_S
        self.drop()
        self._dial_at = boot_time() + self._join_again_s
        self._join_again_s = min(2 * self._join_again_s, MAX_DIAL_AGAIN_S)

    def lost(self, connection: _Connection) -> None:
        """The connection to the primary is closed."""
        if connection is self._connection:
            self._connection = None
            self._dial_at = boot_time() + DIAL_AGAIN_S
            if connection.follower is not None and not connection.follower.is_welcomed:
                self._not_greeted()
        if connection.replica is not None:
            connection.replica.close()

    def _not_greeted(self) -> None:
        """The connection was closed before the primary welcomed this member. Log what the cause may be, if the primary
        runs.

        A primary that was killed leads by the arbiter's record until its lease ends. Meanwhile a proxy at its address,
        or its new process, which does not lead, closes connections too.
        """
        answer = self._election.last_answer
        if answer is None or answer.record is None or answer.leader in (None, self.state.member):
            self._not_greeted_in = None
        elif self._not_greeted_in is None or self._not_greeted_in[0] != answer.record.epoch:
            self._not_greeted_in = answer.record.epoch, boot_time()
        elif boot_time() - self._not_greeted_in[1] > LEASES_OF_A_KILLED_PRIMARY * self._lease_s:
            hint = "is --mirror-tls set on both members?" if self._tls is None else "its log says why"
            self._not_connected(f"the primary closes the connection: {hint}")

    async def _prepare(self, connection: _Connection, follower: Follower, replica: Replica) -> None:
        try:
            sums = await self._loop.run_in_executor(self._files, replica.prepare, follower.manifest)
        except OSError as error:
            if connection is self._connection:
                self._cannot_follow(str(error))
            return
        follower.compared(sums)
        self._sync_and_send(connection, replica)

    async def _store(self, connection: _Connection, follower: Follower, replica: Replica, stamps: Stamps) -> None:
        try:
            await self._loop.run_in_executor(self._files, write_stamps, self._data_path, stamps)
        except OSError as error:
            self._stamps_failed = True
            if connection is self._connection:
                self._cannot_follow(str(error))
            return
        self._election.stamps = stamps
        follower.stamps_stored(stamps)
        if self._stamps_failed:
            self._stamps_failed = False
            self._follows()
        self._sync_and_send(connection, replica)

    def _sync_and_send(self, connection: _Connection, replica: Replica) -> None:
        """Send acknowledgements: with ``--sync-every=1`` after a sync; otherwise now, with syncs in the background."""
        output = b""
        if self._syncs_each and connection.follower is not None:
            output = connection.follower.take_output()  # all of it: the answer to a ping acknowledges too
        elif not self._syncs_each:
            connection.send()
            if connection.heard_at - connection.synced_at < self._sync_timeout_s:
                return
            connection.synced_at = connection.heard_at
        synced = self._loop.run_in_executor(self._files, _sync, replica.take_unsynced())
        synced.add_done_callback(partial(self._synced, connection, output))

    def _synced(self, connection: _Connection, output: bytes, done: asyncio.Future[None]) -> None:
        """Send ``output`` after a sync. If it failed, join anew: the system may have dropped what it did not write."""
        if done.cancelled():  # the process ends
            return
        error = done.exception()
        if connection is not self._connection:  # it was dropped, and the files are compared anew
            return
        if error is not None:
            self._cannot_follow(str(error))
        elif output:
            connection.transport.write(output)


class _Connection(asyncio.BufferedProtocol):
    """A connection to the other member."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self.follower: Follower | None = None
        self.replica: Replica | None = None
        self.heard_at = self.synced_at = boot_time()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        send_at_once(transport)
        self._following.dialled(self)

    def send(self) -> None:
        """Send what the follower has to send."""
        if self.follower is not None and not self.transport.is_closing():
            self.transport.write(self.follower.take_output())

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.follower is None:  # it is being closed
            return memoryview(bytearray(DISCARDED_BYTES))
        return self.follower.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_at = boot_time()
        self._following.streamed(self, nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._following.lost(self)


def holds_messages(data_path: Path) -> bool:
    """Return whether a data path has files of this broker or of nsqd. Raises OSError."""
    return has_data(data_path) or (data_path / METADATA).exists()


def _sync(paths: list[Path]) -> None:
    if not paths:
        return
    with named(Path(os.path.commonpath(paths)), "synced"):  # the system does not say which of them
        sync({}, [path for path in paths if path.is_dir()], [path for path in paths if not path.is_dir()])
