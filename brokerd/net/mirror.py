"""A member of a pair at work: its clock, its connections, the arbiter and its threads around the mirror's rules."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from brokerd.clock import boot_id
from brokerd.mirror.election import (
    RENEWALS_IN_A_LEASE,
    Campaign,
    CheckDisk,
    Election,
    EndTerm,
    Found,
    Lead,
    ReadArbiter,
    RegainLead,
    Renew,
    Role,
)
from brokerd.mirror.errors import Fenced, InvalidStream, JoinRefused, MirrorDamaged, NoFollowerInSync
from brokerd.mirror.follower import Follower
from brokerd.mirror.hello import Hello
from brokerd.mirror.leader import Close, CompareFiles, Leader, Send, StepDown, TakeCut, WriteRecord
from brokerd.mirror.manifest import BLOCK_BYTES, missing
from brokerd.mirror.pair import DURABLE_BOOT, InvalidRecord, PairRecord
from brokerd.net.arbiter import ArbiterFailed, Leadership
from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.arbiters import arbiter_at
from brokerd.net.lease_keeper import LeaseKeeper
from brokerd.net.mirror_tls import MirrorTLS
from brokerd.net.refused_connections import RefusedConnections
from brokerd.net.splice import NO_PRIMARY, Splicer
from brokerd.nsqd_import import METADATA
from brokerd.recorder import Recorder
from brokerd.replica import MirrorState, Replica, has_data, sums_of
from brokerd.replication import Replication
from brokerd.syncer import sync
from nsqdaemon.listener import Listener, listen_tcp
from nsqwire.addresses import parse_host_port
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.net.stop import Stop
    from brokerd.settings import BrokerSettings
    from brokerd.syncer import Syncer

CHECK_FILE: Final = "mirror.check"
"""The small file that is written before each renewal of the lease."""
TICKS_IN_A_LEASE: Final = 50
LEAST_TICK_S: Final = 0.02
FLUSH_S: Final = 0.02
"""Longest time until changes of channels, which nobody waits for, are sent."""
SWEEP_S: Final = 1.0
"""Longest time until segments that were removed are removed from the follower."""
PATIENCES_IN_A_LEASE: Final = 3
ARBITER_TIMEOUTS_IN_A_LEASE: Final = 3
"""A busy arbiter answers late. What it granted late still counts from before it was asked."""
DIAL_AGAIN_S: Final = 0.5
REFUSALS_BEFORE_LOG: Final = 5
"""So often a connection to the other member fails for one reason before that is logged: members start one by one."""
HAND_OVER_CHECK_S: Final = 0.1
"""Time between two looks at whether the other member leads after a hand-over."""
UNHEARD_BYTES: Final = 4096
LEFT_OUT_NUMBERS: Final = 1 << 20
"""Numbers of each topic that are left out at a takeover. Consumers may have received as many messages from the old
primary that the new one never got; no other message may get their ids. The numbers last for a million takeovers."""
logger = logging.getLogger("brokerd")


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", None)  # of Linux only


def now() -> Seconds:
    """Seconds of a clock that goes on while the machine sleeps."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class Mirror:
    """One member. It follows until it wins the lead, and leads until it loses it; then the process starts again."""

    def __init__(self, settings: BrokerSettings, data_path: Path, ports: tuple[int, int]) -> None:
        """``ports`` are those of TCP and HTTP clients.

        Raises OSError, ValueError, ListenFailed, InvalidAccess and MirrorTLSFailed.
        """
        access = ArbiterAccess.of_files(
            settings.arbiter_ca_file, settings.arbiter_user_file, settings.arbiter_service_account
        )
        self.tls = MirrorTLS.of(settings) if settings.mirror_tls else None
        self._settings = settings
        self._data_path = data_path
        self._ports = ports
        self._lease_s = settings.mirror_lease.total_seconds()
        self._patience_s = self._lease_s / PATIENCES_IN_A_LEASE
        self._syncs_each = settings.sync_every == 1
        self._sync_timeout_s = settings.sync_timeout.total_seconds()
        self._loop = asyncio.get_running_loop()
        self._boot = DURABLE_BOOT if settings.sync_every == 1 else boot_id() or os.urandom(8).hex()
        self._state = replace(MirrorState.read(data_path), boot=self._boot)
        self._state.write(data_path)
        timeout_s = self._lease_s / ARBITER_TIMEOUTS_IN_A_LEASE
        self._arbiter = arbiter_at(settings.arbiter, timeout_s=timeout_s, access=access)
        self.election = Election(
            self._state.member,
            self._boot,
            self._lease_s,
            PairRecord(pair=os.urandom(8).hex(), node_id=settings.node_id, epoch=0, leader=""),
            pair=self._state.pair,
            has_data=_has_data(data_path),
            epoch=self._state.epoch,
            now=now(),
        )
        self.leader: Leader | None = None
        self.term_began: Seconds = 0.0
        self._led_since: Seconds = 0.0
        self._listener: Listener = listen_tcp(settings.mirror_address)
        self._peer = parse_host_port(settings.mirror_peer)
        self._tasks: set[asyncio.Task[None]] = set()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="mirror-disk")
        self._files = ThreadPoolExecutor(1, thread_name_prefix="mirror-files")
        self._lead: asyncio.Future[PairRecord] = self._loop.create_future()
        self._connection: _ToPrimary | None = None
        self._dial_at: Seconds = 0.0
        self._primary: tuple[str, tuple[int, int]] | None = None
        self._links: dict[int, _FromFollower] = {}
        self._link_count = 0
        self._lease = ""
        self._revision = 0
        self._in_sync_before: Mapping[str, str] = {}
        """The members in sync when this one asked for the lead, each with its boot id."""
        self._recorder: Recorder | None = None
        self._replication: Replication | None = None
        self._cuts: list[int] = []
        self._swept_at: Seconds = 0.0
        self._flushed_at: Seconds = 0.0
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.Handle | None = None
        self._stop: Stop | None = None
        self.handing_over = asyncio.Event()
        """Set when this member is to give up the lead to the other one, which has everything."""
        self._is_acting = self._is_over = False
        self._last_wait: str | None = None
        self._last_refusal, self._refusals = "", 0

    # -- the process's side ---------------------------------------------------------------------------------------

    async def until_leading(self, listeners: tuple[Listener | None, ...], stop: Stop) -> PairRecord | None:
        """Follow until this member leads. Returns the record of its term; None if ``stop`` was set before."""
        self._stop = stop
        context = None if self.tls is None else self.tls.accepts
        self._server = await self._loop.create_server(
            lambda: _FromFollower(self), sock=self._listener.socket, ssl=context
        )
        logger.info("MIRROR: member %s, listening on %s", self._state.member, self._listener.shown)
        refused = RefusedConnections()
        splicers = [Splicer(partial(self._target, 0), refused=refused)]
        splicers.append(Splicer(partial(self._target, 1), NO_PRIMARY, refused))
        splicers.append(Splicer(lambda: None, refused=refused))
        servers = [
            await _serve_copy(listener, splicer)
            for listener, splicer in zip(listeners, splicers, strict=True)
            if listener is not None
        ]
        self._ticking = self._loop.call_soon(self._tick)
        stopping = asyncio.ensure_future(stop.wait())
        ends: list[asyncio.Future[Any]] = [self._lead, stopping]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            for each in servers:
                each.close()
            for splicer in splicers:
                splicer.close()
        return self._lead.result() if self._lead.done() else None

    @property
    def left_out_numbers(self) -> int:
        """How many numbers of each topic are left out at the beginning of the term."""
        return LEFT_OUT_NUMBERS if self._lead.result().epoch > 1 else 0

    @contextmanager
    def kept_lease(self) -> Iterator[None]:
        """Keep the lead during a recovery, which the event loop waits for."""
        keeper = LeaseKeeper(
            self._arbiter,
            self._lease,
            check_disk=partial(_write_a_little, self._data_path / CHECK_FILE),
            interval_s=self._lease_s / RENEWALS_IN_A_LEASE,
            now=now,
        )
        with keeper:
            yield
        if keeper.sent_at is not None:
            self.election.renewed(True, keeper.sent_at)

    async def give_back(self, error: Exception) -> None:
        """The data path cannot be recovered: let the others lead that were in sync before the term, and join anew.

        This member has acknowledged nothing in its term, so they still have everything that was. Returns if there are
        none, or if the arbiter does not take it.
        """
        others = {member: boot for member, boot in self._in_sync_before.items() if member != self._state.member}
        if not others:
            return
        record = self._lead.result().with_in_sync(others)
        try:
            if await self._arbiter.write(self._lease, record, self._revision) is None:
                return
            await self._arbiter.resign(self._lease)
        except ArbiterFailed as failure:
            logger.warning("MIRROR: the arbiter did not take that another member may lead: %s", failure)
            return
        self._end_process(f"its data path cannot be recovered: {error}; {', '.join(sorted(others))} may lead")

    async def recovered(self) -> None:
        """Return once the member may serve what it has recovered; before, nobody may be served.

        If the lease has ended during the recovery, and another member leads, the process starts again.
        """
        self.election.recovered(now())
        while self.election.is_recovering:  # seldom, and the stop is to be noticed as well
            if self._is_to_end:
                self._end_process("it is to end, and the lease expired while the data path was recovered")
            await asyncio.sleep(LEAST_TICK_S)

    def begin_term(self, broker: Broker, syncer: Syncer) -> Replication:
        """Stream the changes of a recovered broker from now on. Returns what acknowledges its messages."""
        record = self._lead.result()
        recorder = self._recorder = Recorder(broker)
        self.leader = leader = Leader(
            self._state.member,
            record,
            recorder.read,
            patience=self._patience_s,
            min_in_sync=self._settings.min_in_sync,
            ports=self._ports,
        )
        broker.mirror_figures = self._figures
        broker.begin_hand_over = self._begin_hand_over
        self._replication = Replication(
            syncer,
            recorder,
            leader,
            broker.storage,
            may_answer=lambda: self.election.may_answer(now()),
            changed=self._act,
            failed=self._read_failed,
        )
        self.term_began, self._led_since = now(), time.time()
        if not self.election.may_answer(self.term_began):
            self._end_process("the lease expired while the data path was recovered")
        self._replication.settle()
        self._flush_in_turn()
        return self._replication

    def _read_failed(self, error: OSError) -> None:
        self._end_process(f"a file cannot be read: {error}")

    def _figures(self) -> dict[str, object]:
        """The figures of ``/stats``: times in seconds, sizes in bytes."""
        leader = self.leader
        assert leader is not None
        return {
            "role": self.election.role.value,
            "pair": leader.record.pair,
            "member": self._state.member,
            "epoch": leader.record.epoch,
            "in_sync": sorted(leader.record.in_sync),
            "under_replicated": leader.is_under_replicated,
            "lag_bytes": leader.lag_bytes,
            "lag_seconds": round(leader.lag_seconds(now()), 3),
            "since": int(self._led_since),
            "since_seconds": round(now() - self.term_began, 3),
        }

    def _begin_hand_over(self) -> dict[str, object]:
        """Let the other member lead: the process stops to serve in the next turn of the event loop, and starts again.

        Returns the member that is to lead, and the number of the present term. Raises NoFollowerInSync.
        """
        leader = self.leader
        assert leader is not None
        others = sorted(set(leader.record.in_sync) - {self._state.member})
        if not others:
            raise NoFollowerInSync
        logger.info("MIRROR: hands over to member %s", others[0])
        self._loop.call_soon(self.handing_over.set)
        return {"to": others[0], "epoch": leader.record.epoch}

    async def follow_again(self) -> None:
        """After a hand-over: wait until the other member leads, for a lease at most, and start the process again.

        Without the wait this member might win the lead again. It returns if the process is to end.
        """
        deadline = now() + self._lease_s
        while not self._is_to_end:
            with suppress(ArbiterFailed, InvalidRecord):
                if now() >= deadline or (await self._arbiter.read()).leader is not None:
                    logger.info("MIRROR: does not lead any more: it handed over; the process starts again")
                    _start_again()
            await asyncio.sleep(HAND_OVER_CHECK_S)

    async def hand_over(self) -> None:
        """Send the follower everything, and give up the lead. No client may be connected any more."""
        if self.leader is None or self._replication is None:
            return
        self._replication.flush(sweep=True)
        deadline = now() + self._patience_s
        while self.leader.acknowledged < self.leader.group and now() < deadline:  # noqa: ASYNC110  (seldom, and short)
            await asyncio.sleep(LEAST_TICK_S)
        self._is_over = True
        with suppress(ArbiterFailed):
            await self._arbiter.resign(self._lease)

    def close(self) -> None:
        """End all connections and timers."""
        self._is_over = True
        if self._ticking is not None:
            self._ticking.cancel()
        if self._server is not None:
            self._server.close()
        for link in list(self._links.values()):
            link.transport.abort()
        self._drop_connection()
        for task in list(self._tasks):
            task.cancel()
        if self._recorder is not None:
            self._recorder.close()
        for pool in (self._disk, self._files):
            pool.shutdown(wait=False, cancel_futures=True)

    # -- time -----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._is_over:
            return
        self._ticking = self._loop.call_later(max(LEAST_TICK_S, self._lease_s / TICKS_IN_A_LEASE), self._tick)
        self.election.tick(now())
        self._decide()
        if self.leader is not None:
            self.leader.tick(now())
            self._take_cuts()
            self._act()
        elif self.election.role is Role.FOLLOWER:
            self._follow()

    def _flush_in_turn(self) -> None:
        """Send what nobody waits for: changes of channels, and segments that were removed."""
        if self._is_over or self._replication is None:
            return
        self._loop.call_later(FLUSH_S, self._flush_in_turn)
        is_sweep_due = now() - self._swept_at >= SWEEP_S
        if is_sweep_due:
            self._swept_at = now()
        self._replication.flush(sweep=is_sweep_due)

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the election ---------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        decisions, self.election.decisions = self.election.decisions, []
        for decision in decisions:
            if isinstance(decision, ReadArbiter):
                self._task(self._read())
            elif isinstance(decision, Campaign):
                self._task(self._campaign(decision))
            elif isinstance(decision, CheckDisk):
                self._task(self._check_disk())
            elif isinstance(decision, Renew):
                self._task(self._renew(decision))
            elif isinstance(decision, RegainLead):
                self._task(self._regain(decision))
            elif isinstance(decision, Lead):
                self._revision = decision.revision
                logger.info("MIRROR: leads term %d", decision.record.epoch)
                self._lead.set_result(decision.record)
            else:
                assert isinstance(decision, EndTerm)
                self._end_process(decision.reason)

    async def _read(self) -> None:
        try:
            found = await self._arbiter.read()
        except (ArbiterFailed, InvalidRecord) as error:
            self._wait_because(f"the arbiter: {error}")
            return
        self.election.read_answered(found, now())
        self._wait_because(self.election.waits_because)
        self._decide()

    def _wait_because(self, reason: str | None) -> None:
        """Log why nobody leads, once."""
        if reason is not None and reason != self._last_wait:
            logger.warning("MIRROR: cannot lead: %s", reason)
        self._last_wait = reason

    async def _campaign(self, decision: Campaign) -> None:
        found = self.election.found
        if found is not None and found.record is not None and found.revision == decision.revision:
            self._in_sync_before = found.record.in_sync
        self._drop_connection()
        sent_at = now()
        won: Leadership | None = None
        try:
            if self._state.pair != decision.record.pair:
                self._state = replace(self._state, pair=decision.record.pair)
                self._state.write(self._data_path)
            won = await self._arbiter.campaign(
                self._state.member, decision.record, decision.revision, round(self._lease_s)
            )
            if won is not None:
                self._state = replace(self._state, epoch=decision.record.epoch, node_id=decision.record.node_id)
                self._state.write(self._data_path)
        except (ArbiterFailed, OSError) as error:
            logger.warning("MIRROR: the campaign failed: %s", error)
            if won is not None:
                self._task(self._resign(won.lease))
            won = None
        if won is None:
            self.election.not_won()
        else:
            self._lease = won.lease
            self.election.won(decision.record, won.revision, sent_at)
        self._decide()

    async def _resign(self, lease: str) -> None:
        with suppress(ArbiterFailed):
            await self._arbiter.resign(lease)

    async def _regain(self, decision: RegainLead) -> None:
        """The lease ended, or was not renewed in time, while the data path was recovered."""
        try:
            await self._loop.run_in_executor(self._disk, _write_a_little, self._data_path / CHECK_FILE)
            sent_at, revision = now(), decision.revision
            if not await self._arbiter.renew(self._lease):
                won = await self._arbiter.campaign(self._state.member, *decision, round(self._lease_s))
                if won is None:
                    self.election.not_regained(await self._arbiter.read())
                    self._decide()
                    return
                self._lease, self._revision = won.lease, won.revision
                revision = won.revision
                logger.warning("MIRROR: the lease ended meanwhile; leads term %d again", decision.record.epoch)
        except (ArbiterFailed, InvalidRecord, OSError) as error:
            logger.warning("MIRROR: the lead cannot be regained yet: %s", error)
            self.election.not_regained(None)
            return
        self.election.regained(revision, sent_at, now())

    async def _check_disk(self) -> None:
        try:
            await self._loop.run_in_executor(self._disk, _write_a_little, self._data_path / CHECK_FILE)
        except OSError as error:
            logger.error("MIRROR: the data path cannot be written to, so the lease is not renewed: %s", error)
            return
        self.election.disk_answered(now())
        self._decide()

    async def _renew(self, decision: Renew) -> None:
        is_held: bool | None
        try:
            is_held = await self._arbiter.renew(self._lease)
        except ArbiterFailed as error:
            logger.warning("MIRROR: the lease could not be renewed: %s", error)
            is_held = None
        self.election.renewed(is_held, decision.sent_at)
        self._decide()

    @property
    def _is_to_end(self) -> bool:
        return self._stop is not None and self._stop.is_asked

    def _end_process(self, reason: str) -> None:
        """Answer nobody from now on: the process is replaced by a new one, which follows. If it is to end, it ends."""
        if self._is_over:
            return
        self._is_over = True
        is_ending = self._is_to_end
        then = "ends" if is_ending else "starts again"
        logger.error("MIRROR: does not lead any more: %s; the process %s", reason, then)
        if is_ending:  # a new process would not know of the signal
            _flush_log()
            os._exit(0)
        _start_again()

    # -- the primary ----------------------------------------------------------------------------------------------

    def connected(self, link: _FromFollower) -> None:
        """A member has connected."""
        if self.tls is not None and not self.tls.is_peer(link.transport):
            logger.warning("MIRROR: the certificate of %s is not that of %s", link.remote, self.tls.peer)
            link.transport.abort()
            return
        if self.leader is None or self._is_over:
            link.transport.abort()
            return
        self._link_count += 1
        link.number = self._link_count
        self._links[link.number] = link
        self.leader.connected(link.number, now())

    def received(self, link: _FromFollower, data: bytes) -> None:
        """A follower has sent bytes."""
        if self.leader is not None and not self._is_over:
            self.leader.received(link.number, data, now())
            self._act()

    def disconnected(self, link: _FromFollower) -> None:
        """A follower's connection is closed."""
        if self._links.pop(link.number, None) is not None and self.leader is not None and not self._is_over:
            self.leader.disconnected(link.number)
            self._act()

    def _act(self) -> None:
        """Do what the leader has decided, then answer those who may be answered."""
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

    def _do(self, leader: Leader, effect: Close | TakeCut | CompareFiles | WriteRecord | StepDown) -> None:
        if isinstance(effect, Close):
            if (link := self._links.pop(effect.link, None)) is not None:
                logger.warning("MIRROR: the connection of %s is closed: %s", link.remote, effect.reason)
                link.transport.close()
        elif isinstance(effect, TakeCut):
            self._cuts.append(effect.link)
            self._loop.call_soon(self._take_cuts)
        elif isinstance(effect, CompareFiles):
            self._task(self._compare(leader, effect))
        elif isinstance(effect, WriteRecord):
            self._task(self._write_record(leader, effect.record))
        else:
            assert isinstance(effect, StepDown)
            self.election.end_term(effect.reason)
            self._decide()

    def _take_cuts(self) -> None:
        """List the files for followers that join, unless a checkpoint is being written."""
        if not self._cuts or self.leader is None or self._recorder is None or self._replication is None:
            return
        self._replication.flush(sweep=True)
        files = self._recorder.cut()
        if files is None:
            return
        cuts, self._cuts = self._cuts, []
        for link in cuts:
            self.leader.cut_taken(link, files)
        self._act()

    async def _compare(self, leader: Leader, effect: CompareFiles) -> None:
        ours = await self._loop.run_in_executor(self._files, sums_of, self._data_path, effect.files, effect.sums)
        leader.compared(effect.link, missing(effect.files, effect.sums, ours, BLOCK_BYTES))
        self._act()

    async def _write_record(self, leader: Leader, record: PairRecord) -> None:
        revision: int | None = None
        try:
            revision = await self._arbiter.write(self._lease, record, self._revision)
        except ArbiterFailed as error:
            logger.warning("MIRROR: the arbiter did not take who is in sync: %s", error)
        if revision is not None:
            self._revision = revision
            logger.info("MIRROR: in sync: %s", ", ".join(sorted(record.in_sync)))
            leader.record_written(record)
        else:
            await self._find_revision(leader)
            leader.record_not_written()
        self._act()

    async def _find_revision(self, leader: Leader) -> None:
        """Find out what became of a write that was refused, or not answered."""
        try:
            found: Found = await self._arbiter.read()
        except (ArbiterFailed, InvalidRecord):
            return
        if found.record is None or found.record.epoch != leader.record.epoch or found.leader != self._state.member:
            self.election.end_term("another term has begun, or the lease has ended")
            self._decide()
        else:
            self._revision = found.revision

    # -- the follower ---------------------------------------------------------------------------------------------

    def _target(self, port: int) -> tuple[str, int] | None:
        """The address of the primary for clients of TCP (0) or HTTP (1)."""
        if self._primary is None or not self._primary[1][port]:
            return None
        return self._primary[0], self._primary[1][port]

    def _follow(self) -> None:
        connection = self._connection
        if connection is not None:
            if now() - connection.heard_at > 2 * self._patience_s:
                logger.warning("MIRROR: nothing was received from the primary for %g s", 2 * self._patience_s)
                self._drop_connection()
        elif now() >= self._dial_at:
            self._dial_at = now() + DIAL_AGAIN_S + self._patience_s
            self._task(self._dial())

    async def _dial(self) -> None:
        context = None if self.tls is None else self.tls.connects
        try:
            async with asyncio.timeout(self._patience_s):
                await self._loop.create_connection(lambda: _ToPrimary(self), *self._peer, ssl=context)
        except OSError as error:
            reason = str(error) or f"no answer within {self._patience_s:g} s"
            self._refusals = self._refusals + 1 if reason == self._last_refusal else 1
            self._last_refusal = reason
            if self._refusals == REFUSALS_BEFORE_LOG:
                logger.warning("MIRROR: cannot connect to %s:%d: %s", *self._peer, reason)
        self._dial_at = now() + DIAL_AGAIN_S

    def dialled(self, connection: _ToPrimary) -> None:
        """The other member has accepted the connection."""
        if self._connection is not None or self.election.role is not Role.FOLLOWER or self._is_over:
            connection.transport.abort()
            return
        self._connection, self._refusals = connection, 0
        found, election = self.election.found, self.election
        record, has_data = None if found is None else found.record, _has_data(self._data_path)
        seen = 0 if record is None else record.epoch
        pair = election.pair if has_data or record is None else election.pair or record.pair
        hello = Hello(member=self._state.member, pair=pair, boot=self._boot, has_data=has_data)
        connection.replica = Replica(self._data_path, self._state)
        connection.follower = Follower(hello, max(self._state.epoch, seen), connection.replica)
        connection.send()

    def streamed(self, connection: _ToPrimary, nbytes: int) -> None:
        """The primary has sent so many bytes, which are in the follower's buffer."""
        follower, replica = connection.follower, connection.replica
        if connection is not self._connection or follower is None or replica is None:
            return
        was_begun, was_copied = follower.is_begun, follower.is_copied
        try:
            follower.read(nbytes)
        except (Fenced, InvalidStream, JoinRefused, MirrorDamaged, OSError) as error:
            logger.error("MIRROR: cannot follow: %s", error)
            self._drop_connection()
            return
        if follower.is_begun and not was_begun and follower.welcome is not None:
            self._state = replica.state
            self.election.joined(replica.state.pair, replica.state.epoch)
            self._primary = self._peer[0], (follower.welcome.tcp_port, follower.welcome.http_port)
            logger.info("MIRROR: joins the primary of term %d", replica.state.epoch)
        if follower.is_copied and not was_copied:
            logger.info("MIRROR: has the primary's files, and follows")
        if follower.awaits_sums:
            follower.awaits_sums = False
            self._task(self._prepare(connection, follower, replica))
        self._sync_and_send(connection, replica)

    async def _prepare(self, connection: _ToPrimary, follower: Follower, replica: Replica) -> None:
        try:
            sums = await self._loop.run_in_executor(self._files, replica.prepare, follower.manifest)
        except OSError as error:
            logger.error("MIRROR: cannot join: %s", error)
            self._drop_connection()
            return
        follower.compared(sums)
        self._sync_and_send(connection, replica)

    def _sync_and_send(self, connection: _ToPrimary, replica: Replica) -> None:
        """Acknowledge, with ``--sync-every=1`` once it is on the disk; otherwise sync in the background."""
        if not self._syncs_each:
            connection.send()
            if connection.heard_at - connection.synced_at >= self._sync_timeout_s:
                connection.synced_at = connection.heard_at
                synced = self._loop.run_in_executor(self._files, _sync, replica.take_unsynced())
                synced.add_done_callback(_log_failure)
        elif connection.follower is not None:  # in the order of the syncs: an answer to a ping acknowledges too
            output = connection.follower.take_output()
            synced = self._loop.run_in_executor(self._files, _sync, replica.take_unsynced())
            synced.add_done_callback(partial(self._synced, connection, output))

    def _synced(self, connection: _ToPrimary, output: bytes, done: asyncio.Future[None]) -> None:
        if (error := done.exception()) is not None:
            logger.error("MIRROR: cannot follow: %s", error)
            self._drop_connection()
        elif connection is self._connection:
            connection.transport.write(output)

    def lost(self, connection: _ToPrimary) -> None:
        """The connection to the primary is closed."""
        if connection is self._connection:
            self._connection = self._primary = None
            self._dial_at = now() + DIAL_AGAIN_S
        if connection.replica is not None:
            connection.replica.close()

    def _drop_connection(self) -> None:
        """Acknowledge nothing more."""
        connection, self._connection, self._primary = self._connection, None, None
        if connection is not None:
            connection.transport.abort()


class _FromFollower(asyncio.Protocol):
    """A connection that the other member has opened."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self.number = 0
        self.remote = ""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.remote = str(transport.get_extra_info("peername"))
        _send_at_once(transport)
        self._mirror.connected(self)

    def send(self, parts: list[bytes | memoryview]) -> None:
        """Send the parts of a frame."""
        if len(parts) == 1:
            self.transport.write(parts[0])
        else:
            self.transport.writelines(parts)

    def data_received(self, data: bytes) -> None:
        self._mirror.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._mirror.disconnected(self)


class _ToPrimary(asyncio.BufferedProtocol):
    """A connection to the other member."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self.follower: Follower | None = None
        self.replica: Replica | None = None
        self.heard_at = self.synced_at = now()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        _send_at_once(transport)
        self._mirror.dialled(self)

    def send(self) -> None:
        """Send what the follower has to send."""
        if self.follower is not None and not self.transport.is_closing():
            self.transport.write(self.follower.take_output())

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.follower is None:  # it is being closed
            return memoryview(bytearray(UNHEARD_BYTES))
        return self.follower.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_at = now()
        self._mirror.streamed(self, nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._mirror.lost(self)


def _send_at_once(transport: asyncio.BaseTransport) -> None:
    connected = transport.get_extra_info("socket")
    if connected is not None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _serve_copy(listener: Listener, splicer: Splicer) -> asyncio.Server:
    """Accept connections of a listener with a copy of its socket, so that the broker can use the socket later."""
    copy: Listener = replace(listener, socket=listener.socket.dup())
    return await copy.serve(splicer.protocol)


def _start_again() -> NoReturn:
    """Replace the process by a new one, with the same process id."""
    _flush_log()
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    finally:
        os._exit(1)  # the program is gone: no client may be served by a member that does not lead


def _flush_log() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _has_data(data_path: Path) -> bool:
    """Return whether a data path has files of a broker, ours or nsqd."""
    return has_data(data_path) or (data_path / METADATA).exists()


def _write_a_little(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, os.urandom(8), 0)
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _sync(paths: list[Path]) -> None:
    sync({}, [path for path in paths if path.is_dir()], [path for path in paths if not path.is_dir()])


def _log_failure(done: asyncio.Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        logger.error("MIRROR: files could not be synced: %s", error)
