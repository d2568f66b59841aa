"""Runs the primary's side of a pair: the connections of followers, and the files that they are sent."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from brokerd.clock import boot_time
from brokerd.mirror.leader import Close, CompareFiles, Leader, Send, StepDown, StoreStamp, TakeCut, WriteRecord
from brokerd.mirror.manifest import BLOCK_BYTES, missing
from brokerd.mirror.pair import PairRecord
from brokerd.net.background import Background
from brokerd.net.mirror_tls import MirrorTLS
from brokerd.recorder import Recorder
from brokerd.replica import sums_of
from nsqwire.addresses import address_text
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.replication import Replication

FLUSH_S: Final = 0.02
"""Longest time until changes of channels, which nobody waits for, are sent."""
SWEEP_S: Final = 1.0
"""Longest time until removals of segments are sent."""
logger = logging.getLogger("brokerd")


class MirrorLinks:
    """The connections that the other member has opened. While this member does not lead, they are closed at once.

    ``files`` reads the files that are compared. ``write_record`` has to replace the arbiter's record, call
    ``record_written`` or ``record_not_written`` of the leader, and then ``act``. ``store_stamp`` has to store a new
    stamp beside the given one, call ``stamps_stored`` or ``stamps_not_stored``, and then ``act``. ``step_down`` is
    called with the reason if another member leads a later term.
    """

    def __init__(
        self,
        data_path: Path,
        tls: MirrorTLS | None,
        files: Executor,
        *,
        write_record: Callable[[PairRecord], None],
        store_stamp: Callable[[str], None],
        step_down: Callable[[str], None],
    ) -> None:
        self.leader: Leader | None = None
        """None until ``begin``."""
        self._data_path = data_path
        self._tls = tls
        self._files = files
        self._write_record, self._store_stamp, self._step_down = write_record, store_stamp, step_down
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, _Link] = {}
        self._link_count = 0
        self._recorder: Recorder | None = None
        self._replication: Replication | None = None
        self._cuts: list[int] = []
        """The links that wait for a list of the files."""
        self._swept_at: Seconds = 0.0
        self._last_closing: tuple[str, str] | None = None
        """The host and the reason of the last closed connection; None after a change of the members in sync."""
        self._tasks = Background()
        self._is_acting = self._is_over = False

    def protocol(self) -> asyncio.BaseProtocol:
        """The protocol of a connection."""
        return _Link(self)

    # -- the member's side ----------------------------------------------------------------------------------------

    def begin(self, leader: Leader, recorder: Recorder, replication: Replication) -> None:
        """Send the changes that ``recorder`` finds to followers, as ``leader`` decides."""
        self.leader, self._recorder, self._replication = leader, recorder, replication
        replication.settle()
        self._flush_periodically()

    def tick(self) -> None:
        """Do what is due. To be called several times in a tenth of a lease."""
        if self.leader is not None:
            self.leader.tick(boot_time())
            self._take_cuts()
            self.act()

    def flush(self, *, sweep: bool) -> None:
        """Send all changes up to now. With ``sweep``, also removals of segments."""
        if self._replication is not None:
            self._replication.flush(sweep=sweep)

    def stop(self) -> None:
        """Send nothing more, and answer nobody."""
        self._is_over = True

    def close(self) -> None:
        """Close all connections."""
        self.stop()
        for link in list(self._links.values()):
            link.transport.abort()
        self._tasks.cancel()
        if self._recorder is not None:
            self._recorder.close()

    def _flush_periodically(self) -> None:
        """Send the changes that nobody waits for: those of channels, and removals of segments."""
        if self._is_over:
            return
        self._loop.call_later(FLUSH_S, self._flush_periodically)
        is_sweep_due = boot_time() - self._swept_at >= SWEEP_S
        if is_sweep_due:
            self._swept_at = boot_time()
        self.flush(sweep=is_sweep_due)

    # -- the connections' side ------------------------------------------------------------------------------------

    def connected(self, link: _Link) -> None:
        """A connection was accepted."""
        if self._tls is not None and not self._tls.is_peer(link.transport):
            logger.warning("MIRROR: the certificate of %s is not that of %s", link.remote, self._tls.peer)
            link.transport.abort()
            return
        if self.leader is None or self._is_over:
            link.transport.abort()
            return
        self._link_count += 1
        link.number = self._link_count
        self._links[link.number] = link
        self.leader.connected(link.number, boot_time())

    def received(self, link: _Link, data: bytes) -> None:
        """A follower has sent bytes."""
        if self.leader is not None and not self._is_over:
            self.leader.received(link.number, data, boot_time())
            self.act()

    def disconnected(self, link: _Link) -> None:
        """A follower's connection is closed."""
        if self._links.pop(link.number, None) is not None and self.leader is not None and not self._is_over:
            self.leader.disconnected(link.number)
            self.act()

    # -- what the leader decides ----------------------------------------------------------------------------------

    def act(self) -> None:
        """Do what the leader has decided, then answer the requests that may be answered."""
        leader = self.leader
        if leader is None or self._is_acting or self._is_over:
            return
        self._is_acting = True
        try:
            while leader.effects:
                effects, leader.effects = leader.effects, []
                for effect in effects:
                    if isinstance(effect, Send):
                        if (link := self._links.get(effect.link)) is not None:
                            link.send(effect.parts)
                    else:
                        self._do(leader, effect)
        finally:
            self._is_acting = False
        if self._replication is not None:
            self._replication.settle()

    def _do(self, leader: Leader, effect: Close | TakeCut | CompareFiles | WriteRecord | StoreStamp | StepDown) -> None:
        if isinstance(effect, Close):
            if (link := self._links.pop(effect.link, None)) is not None:
                closing = link.remote.rpartition(":")[0], effect.reason
                if closing != self._last_closing:  # members connect again and again
                    logger.warning("MIRROR: the connection of %s is closed: %s", link.remote, effect.reason)
                self._last_closing = closing
                link.transport.close()
        elif isinstance(effect, TakeCut):
            self._cuts.append(effect.link)
            self._loop.call_soon(self._take_cuts)
        elif isinstance(effect, CompareFiles):
            self._tasks.start(self._compare(leader, effect))
        elif isinstance(effect, WriteRecord):
            if effect.record.in_sync != leader.record.in_sync:
                self._last_closing = None
            self._write_record(effect.record)
        elif isinstance(effect, StoreStamp):
            self._store_stamp(effect.last)
        else:
            assert isinstance(effect, StepDown)
            self._step_down(effect.reason)

    def _take_cuts(self) -> None:
        """List the files for followers that join, unless a checkpoint is being written."""
        if not self._cuts or self.leader is None or self._recorder is None:
            return
        self.flush(sweep=True)
        try:
            files = self._recorder.cut()
        except OSError as error:
            cuts, self._cuts = self._cuts, []
            for link in cuts:
                self.leader.not_readable(link, error)
            self.act()
            return
        if files is None:
            return
        cuts, self._cuts = self._cuts, []
        for link in cuts:
            self.leader.cut_taken(link, files)
        self.act()

    async def _compare(self, leader: Leader, effect: CompareFiles) -> None:
        try:
            ours = await self._loop.run_in_executor(self._files, sums_of, self._data_path, effect.files, effect.sums)
        except OSError as error:
            leader.not_readable(effect.link, error)
        else:
            leader.compared(effect.link, missing(effect.files, effect.sums, ours, BLOCK_BYTES))
        self.act()


class _Link(asyncio.Protocol):
    """A connection that the other member has opened."""

    def __init__(self, links: MirrorLinks) -> None:
        self._links = links
        self.number = 0
        self.remote = ""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.remote = address_text(transport.get_extra_info("peername"))
        send_at_once(transport)
        self._links.connected(self)

    def send(self, parts: list[bytes | memoryview]) -> None:
        """Send the parts of a frame."""
        if len(parts) == 1:
            self.transport.write(parts[0])
        else:
            self.transport.writelines(parts)

    def data_received(self, data: bytes) -> None:
        self._links.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.disconnected(self)


def send_at_once(transport: asyncio.BaseTransport) -> None:
    """Let the system send small frames without a delay."""
    connected = transport.get_extra_info("socket")
    if connected is not None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
