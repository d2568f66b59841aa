"""Runs a member of a pair: clock, connections, arbiter and threads around the rules of :mod:`brokerd.mirror`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from brokerd.clock import boot_id, boot_time
from brokerd.file_failure import named, with_name
from brokerd.mirror.election import (
    LEASES_AFTER_STANDING_BACK,
    MAX_READ_INTERVAL_S,
    READS_IN_A_LEASE,
    RENEWALS_IN_A_LEASE,
    ArbiterAnswer,
    Campaign,
    CheckDisk,
    Election,
    EndTerm,
    Lead,
    ReadArbiter,
    RegainLead,
    Renew,
    Role,
)
from brokerd.mirror.errors import NoFollowerInSync
from brokerd.mirror.figures import MirrorFigures
from brokerd.mirror.leader import Leader
from brokerd.mirror.pair import DURABLE_BOOT, InvalidRecord, PairRecord
from brokerd.mirror.stamps import Stamps
from brokerd.net.arbiter import ArbiterFailed, Leadership, give_back_lead, give_up_lead
from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.arbiters import arbiter_at
from brokerd.net.background import Background
from brokerd.net.following import Following, holds_messages
from brokerd.net.lease_keeper import LeaseKeeper
from brokerd.net.mirror_links import MirrorLinks
from brokerd.net.mirror_tls import MirrorTLS
from brokerd.net.refused_connections import RefusedConnections
from brokerd.net.splice import NO_PRIMARY, TLS_REFUSAL, Splicer
from brokerd.recorder import Recorder
from brokerd.replica import MirrorState
from brokerd.replication import Replication
from brokerd.small_file import overwrite
from brokerd.stamp_file import read_stamps, write_stamps
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
MIN_TICK_S: Final = 0.02
"""Shortest time between two ticks, and between two looks at something that ends soon."""
PATIENCES_IN_A_LEASE: Final = 3
ARBITER_TIMEOUTS_IN_A_LEASE: Final = 3
"""A busy arbiter answers late. What it granted late still counts from before it was asked."""
SIGNAL_S: Final = 0.2
"""How long a member, before it replaces its process, waits for a signal that was sent while the process was paused:
another thread may have taken the signal from the system, and pass it on a moment later."""
HAND_OVER_CHECK_S: Final = 0.1
"""Time between two looks at whether the other member leads after a hand-over."""
LEFT_OUT_NUMBERS: Final = 1 << 20
"""How many numbers of each topic are left out for a term in which the other member may have led. Consumers may
have received messages from it that this member never got, and no other message may get their ids. The numbers last for
a million terms."""
MOST_TERMS_LEFT_OUT: Final = 1024
"""The largest number of terms for which numbers are left out at one takeover."""
logger = logging.getLogger("brokerd")


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
        self._loop = asyncio.get_running_loop()
        syncs_each = settings.sync_every == 1
        boot = DURABLE_BOOT if syncs_each else boot_id() or os.urandom(8).hex()
        state = replace(MirrorState.read(data_path), boot=boot)
        state.write(data_path)
        with suppress(OSError):  # so that it takes no space once this member leads
            overwrite(data_path / CHECK_FILE, b"")
        self._member = state.member
        self._arbiter_timeout_s = self._lease_s / ARBITER_TIMEOUTS_IN_A_LEASE
        self._arbiter = arbiter_at(settings.arbiter, timeout_s=self._arbiter_timeout_s, access=access)
        self.election = Election(
            state.member,
            boot,
            self._lease_s,
            PairRecord(pair=os.urandom(8).hex(), node_id=settings.node_id, epoch=0, leader=""),
            pair=state.pair,
            has_data=holds_messages(data_path),
            epoch=state.epoch,
            now=boot_time(),
            stamps=read_stamps(data_path),
            has_stood_back=state.has_stood_back,
        )
        self.term_began: Seconds = 0.0
        self._led_since: Seconds = 0.0
        self._listener: Listener = listen_tcp(settings.mirror_address)
        self._tasks = Background()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="mirror-disk")
        self._files = ThreadPoolExecutor(1, thread_name_prefix="mirror-files")
        self._lead: asyncio.Future[PairRecord] = self._loop.create_future()
        self._following = Following(
            data_path,
            state,
            self.election,
            parse_host_port(settings.mirror_peer),
            self.tls,
            self._files,
            lease_s=round(self._lease_s),
            patience_s=self._patience_s,
            syncs_each=syncs_each,
            sync_timeout_s=settings.sync_timeout.total_seconds(),
        )
        self._links = MirrorLinks(
            data_path,
            self.tls,
            self._files,
            write_record=self._begin_write,
            store_stamp=self._begin_store,
            step_down=self._step_down,
        )
        self._lease = ""
        self._revision = 0
        self._last_epoch = state.epoch
        """The number of the last term that the data path had seen before this member won its own."""
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.Handle | None = None
        self._stop: Stop | None = None
        self.handing_over = asyncio.Event()
        """Set when this member is to give up the lead to the other one, which has everything."""
        self._is_over = False
        # The last errors that were logged, so that each is logged once as long as it lasts.
        self._logged_wait: str | None = None
        self._campaign_error = self._regain_error = self._stamp_error = self._record_error = ""

    # -- the process's side ---------------------------------------------------------------------------------------

    async def until_leading(self, listeners: tuple[Listener | None, ...], stop: Stop) -> PairRecord | None:
        """Follow until this member leads. Returns the record of its term; None if ``stop`` was set before."""
        self._stop = stop
        context = None if self.tls is None else self.tls.accepts
        self._server = await self._loop.create_server(self._links.protocol, sock=self._listener.socket, ssl=context)
        logger.info("MIRROR: member %s, listening on %s", self._member, self._listener.shown)
        refused = RefusedConnections()
        splicers = [
            Splicer(partial(self._following.target, 0), refused=refused),
            Splicer(partial(self._following.target, 1), NO_PRIMARY, refused),
            Splicer(lambda: None, TLS_REFUSAL, refused),  # a greeting has no port of HTTPS
        ]
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
        """How many numbers of each topic are left out at the beginning of the term. It grows with the number of
        terms in which the other member may have used them."""
        epoch = self._lead.result().epoch
        return LEFT_OUT_NUMBERS * min(epoch - self._last_epoch, MOST_TERMS_LEFT_OUT) if epoch > 1 else 0

    @contextmanager
    def kept_lease(self) -> Iterator[None]:
        """Keep the lead during a recovery, which the event loop waits for."""
        keeper = LeaseKeeper(
            self._arbiter,
            self._lease,
            check_disk=partial(_write_a_little, self._data_path / CHECK_FILE),
            interval_s=self._lease_s / RENEWALS_IN_A_LEASE,
            now=boot_time,
        )
        with keeper:
            yield
        if keeper.is_lost:
            self.election.lease_lost()
        elif keeper.sent_at is not None:
            self.election.renewed(True, keeper.sent_at)

    async def give_back(self, reason: str) -> None:
        """The data path cannot be recovered, or lacks messages: let the members lead that were in sync before the term,
        and join anew.

        This member has acknowledged nothing in its term, so they have everything that was acknowledged. Returns if
        there are none, or if the arbiter refuses.
        """
        others = {member: boot for member, boot in self._lead.result().in_sync.items() if member != self._member}
        if not others:
            return
        record = self._lead.result().with_in_sync(others)
        if await give_back_lead(self._arbiter, self._lease, record, self._revision):
            self._end_process(f"{reason}; {', '.join(sorted(others))} may lead")

    async def stand_back(self, reason: str) -> None:
        """The data path has all messages, but lacks changes: let the members lead that were in sync before the term. If
        none of them does within some leases, this member leads with what it has.

        A last change that arrived only in part thus does not leave the pair without a primary. Returns if there are no
        others, if the arbiter refuses, or if the member has stood back already.
        """
        won = self._lead.result()
        record, others = won.with_in_sync(won.in_sync), sorted(set(won.in_sync) - {self._member})
        if not others or self._following.state.has_stood_back:
            return
        try:
            self._following.write_state(has_stood_back=True)
        except OSError as error:
            logger.error("MIRROR: cannot let %s lead: %s", ", ".join(others), error)
            return
        if await give_back_lead(self._arbiter, self._lease, record, self._revision):
            wait_s = LEASES_AFTER_STANDING_BACK * self._lease_s
            self._end_process(f"{reason}; {', '.join(others)} may lead, and this member again in {wait_s:g} s")

    async def recovered(self) -> None:
        """Return once the member may serve what it has recovered. Until then, nobody may be served.

        If the lease has ended during the recovery and another member leads, the process starts again.
        """
        self.election.recovered(boot_time())
        while self.election.is_recovering:  # seldom, and the stop is to be noticed as well
            if self._is_stop_requested:
                self._end_process("it is to end, and the lease expired while the data path was recovered")
            await asyncio.sleep(MIN_TICK_S)

    def begin_term(self, broker: Broker, syncer: Syncer) -> Replication:
        """Stream the changes of a recovered broker from now on. Returns what acknowledges its messages and changes."""
        recorder = Recorder(broker)
        leader = Leader(
            self._member,
            self._lead.result(),
            partial(_read, recorder, self._data_path),
            patience=self._patience_s,
            min_in_sync=self._settings.min_in_sync,
            ports=self._ports,
            lease_s=round(self._lease_s),
            stamp_interval=self._lease_s,
        )
        if self._following.state.has_stood_back:
            with suppress(OSError):  # then it stands back once more after its next start
                self._following.write_state(has_stood_back=False)
        broker.mirror_figures = self._figures
        broker.begin_hand_over = self._begin_hand_over
        replication = Replication(
            syncer,
            recorder,
            leader,
            broker.storage,
            may_answer=lambda: self.election.may_answer(boot_time()),
            changed=self._links.act,
            failed=self._read_failed,
        )
        self.term_began, self._led_since = boot_time(), time.time()
        if not self.election.may_answer(self.term_began):
            self._end_process("the lease expired while the data path was recovered")
        self._links.begin(leader, recorder, replication)
        return replication

    def _read_failed(self, error: OSError) -> None:
        self._end_process(f"a file cannot be read: {error}")

    def _figures(self) -> MirrorFigures:
        leader = self._links.leader
        assert leader is not None
        return {
            "role": self.election.role.value,
            "pair": leader.record.pair,
            "member": self._member,
            "epoch": leader.record.epoch,
            "in_sync": leader.in_sync,
            "under_replicated": leader.is_under_replicated,
            "lag_bytes": leader.lag_bytes,
            "lag_seconds": round(leader.lag_seconds(boot_time()), 3),
            "since": int(self._led_since),
            "since_seconds": round(boot_time() - self.term_began, 3),
        }

    def _begin_hand_over(self) -> dict[str, object]:
        """Let the other member lead: the process stops serving in the next turn of the event loop, and starts again.

        Returns the member that is to lead, and the number of the present term. Raises NoFollowerInSync.
        """
        leader = self._links.leader
        assert leader is not None
        others = [member for member in leader.in_sync if member != self._member]
        if not others:
            raise NoFollowerInSync
        logger.info("MIRROR: hands over to member %s", others[0])
        self._loop.call_soon(self.handing_over.set)
        return {"to": others[0], "epoch": leader.record.epoch}

    async def follow_again(self) -> None:
        """After a hand-over: wait until the other member leads, for a lease at most, and start the process again.

        Without the wait this member might win the lead again. It returns if the process is to end.
        """
        deadline = boot_time() + self._lease_s
        while not self._is_stop_requested:
            with suppress(ArbiterFailed, InvalidRecord):
                if boot_time() >= deadline or (await self._arbiter.read()).leader not in (None, self._member):
                    logger.info("MIRROR: does not lead any more: it handed over; the process starts again")
                    _start_again()
            await asyncio.sleep(HAND_OVER_CHECK_S)

    async def hand_over(self) -> None:
        """Send the follower everything, and give up the lead. No client may be connected any more."""
        leader = self._links.leader
        if leader is None:
            return
        self._links.flush(sweep=True)
        deadline = boot_time() + self._patience_s
        while leader.acknowledged < leader.group and boot_time() < deadline:  # noqa: ASYNC110  (seldom, and short)
            await asyncio.sleep(MIN_TICK_S)
        self._is_over = True
        self._links.stop()
        await give_up_lead(self._arbiter, self._member, self._lease, within_s=self._arbiter_timeout_s)

    def close(self) -> None:
        """End all connections and timers."""
        self._is_over = True
        if self._ticking is not None:
            self._ticking.cancel()
        if self._server is not None:
            self._server.close()
        self._links.close()
        self._following.close()
        self._tasks.cancel()
        for pool in (self._disk, self._files):
            pool.shutdown(wait=False, cancel_futures=True)

    # -- time -----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._is_over:
            return
        self._ticking = self._loop.call_later(max(MIN_TICK_S, self._lease_s / TICKS_IN_A_LEASE), self._tick)
        self.election.tick(boot_time())
        self._decide()
        self._links.tick()
        if self.election.role is Role.FOLLOWER:
            self._following.tick()

    # -- the election ---------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        decisions, self.election.decisions = self.election.decisions, []
        for decision in decisions:
            if isinstance(decision, ReadArbiter):
                self._tasks.start(self._read())
            elif isinstance(decision, Campaign):
                self._tasks.start(self._campaign(decision))
            elif isinstance(decision, CheckDisk):
                self._tasks.start(self._check_disk())
            elif isinstance(decision, Renew):
                self._tasks.start(self._renew(decision))
            elif isinstance(decision, RegainLead):
                self._tasks.start(self._regain(decision))
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
            self._log_wait(f"the arbiter: {error}")
            return
        self.election.read_answered(found, boot_time())
        self._log_wait(self.election.waits_because)
        self._decide()

    def _log_wait(self, reason: str | None) -> None:
        """Log why this member cannot lead although nobody does, unless that was logged last."""
        if reason is not None and reason != self._logged_wait:
            logger.warning("MIRROR: cannot lead: %s", reason)
        self._logged_wait = reason

    async def _campaign(self, decision: Campaign) -> None:
        self._following.drop()
        sent_at = boot_time()
        won: Leadership | None = None
        try:
            self._following.cut_incomplete()
            self._following.write_state(pair=decision.record.pair)  # also to know that it can be written after a win
            won = await self._arbiter.campaign(self._member, decision.record, decision.revision, round(self._lease_s))
            if won is not None:
                self._last_epoch = self._following.state.epoch
                self._following.write_state(epoch=decision.record.epoch, node_id=decision.record.node_id)
        except (ArbiterFailed, OSError) as error:
            if str(error) != self._campaign_error:
                logger.warning("MIRROR: the campaign failed: %s", error)
            self._campaign_error = str(error)
            if won is not None:
                self._tasks.start(self._resign(won.lease))
            won = None
        if won is None:
            self.election.not_won()
        else:
            self._lease = won.lease
            self.election.won(decision.record, won.revision, sent_at)
        self._decide()

    async def _resign(self, lease: str) -> None:
        await give_up_lead(self._arbiter, self._member, lease, within_s=self._arbiter_timeout_s)

    async def _regain(self, decision: RegainLead) -> None:
        """Regain a lease that ended, or was not renewed in time, while the data path was recovered."""
        try:
            await self._loop.run_in_executor(self._disk, _write_a_little, self._data_path / CHECK_FILE)
            sent_at, revision = boot_time(), decision.revision
            if not await self._arbiter.renew(self._lease):
                won = await self._arbiter.campaign(self._member, *decision, round(self._lease_s))
                if won is None:
                    self.election.not_regained(await self._arbiter.read())
                    self._decide()
                    return
                self._lease, self._revision = won.lease, won.revision
                revision = won.revision
                logger.warning("MIRROR: the lease ended meanwhile; leads term %d again", decision.record.epoch)
        except (ArbiterFailed, InvalidRecord, OSError) as error:
            if str(error) != self._regain_error:
                logger.warning("MIRROR: the lead cannot be regained yet: %s", error)
            self._regain_error = str(error)
            await asyncio.sleep(min(self._lease_s / READS_IN_A_LEASE, MAX_READ_INTERVAL_S))
            self.election.not_regained(None)
            return
        self.election.regained(revision, sent_at, boot_time())

    async def _check_disk(self) -> None:
        try:
            await self._loop.run_in_executor(self._disk, _write_a_little, self._data_path / CHECK_FILE)
        except OSError as error:
            logger.error("MIRROR: the data path cannot be written to, so the lease is not renewed: %s", error)
            return
        self.election.disk_answered(boot_time())
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
    def _is_stop_requested(self) -> bool:
        return self._stop is not None and self._stop.is_requested

    def _end_process(self, reason: str) -> None:
        """Answer nobody from now on: replace the process by one that follows, or end it if a stop is requested."""
        if self._is_over:
            return
        self._is_over = True
        time.sleep(SIGNAL_S)  # blocks the event loop: nobody is served
        is_stopping = self._is_stop_requested
        then = "ends" if is_stopping else "starts again"
        logger.error("MIRROR: does not lead any more: %s; the process %s", reason, then)
        if is_stopping:  # a new process would not know of the signal
            _flush_log()
            os._exit(0)
        _start_again()

    # -- the record -----------------------------------------------------------------------------------------------

    def _begin_write(self, record: PairRecord) -> None:
        assert self._links.leader is not None
        self._tasks.start(self._write_record(self._links.leader, record))

    def _begin_store(self, last: str) -> None:
        assert self._links.leader is not None
        self._tasks.start(self._store_stamp(self._links.leader, last))

    async def _store_stamp(self, leader: Leader, last: str) -> None:
        stamps = Stamps(last, os.urandom(8).hex())
        try:
            await self._loop.run_in_executor(self._files, write_stamps, self._data_path, stamps)
        except OSError as error:
            if str(error) != self._stamp_error:
                logger.error("MIRROR: a stamp cannot be stored: %s", error)
            self._stamp_error = str(error)
            leader.stamps_not_stored()
        else:
            self._stamp_error = ""
            leader.stamps_stored(stamps)
        self._links.act()

    def _step_down(self, reason: str) -> None:
        self.election.end_term(reason)
        self._decide()

    async def _write_record(self, leader: Leader, record: PairRecord) -> None:
        revision: int | None = None
        changes_in_sync = record.in_sync != leader.record.in_sync
        try:
            revision = await self._arbiter.write(self._lease, record, self._revision)
        except ArbiterFailed as error:
            self._not_recorded(error, publishes_wait=changes_in_sync)
        if revision is not None:
            self._revision, self._record_error = revision, ""
            if changes_in_sync:
                logger.info("MIRROR: in sync: %s", ", ".join(sorted(record.in_sync)))
            leader.record_written(record)
        else:
            await self._find_revision(leader, publishes_wait=changes_in_sync)
            leader.record_not_written()
        self._links.act()

    def _not_recorded(self, error: Exception, *, publishes_wait: bool) -> None:
        """Log why the arbiter has not taken the record, unless that was logged last: each tick tries again. Publishes
        wait if the record changes who is in sync."""
        problem = (
            "publishes wait, as the arbiter has not recorded who is in sync"
            if publishes_wait
            else "the arbiter has not taken the record of the pair"
        )
        if (found := f"{problem}: {error}") != self._record_error:
            logger.error("MIRROR: %s", found)
        self._record_error = found

    async def _find_revision(self, leader: Leader, *, publishes_wait: bool) -> None:
        """Read the record's revision after a write that was refused or got no answer. End the term if it is over."""
        try:
            found: ArbiterAnswer = await self._arbiter.read()
        except ArbiterFailed:
            return
        except InvalidRecord as error:
            self._not_recorded(error, publishes_wait=publishes_wait)
            return
        if found.record is None or found.record.epoch != leader.record.epoch or found.leader != self._member:
            self.election.end_term("another term has begun, or the lease has ended")
            self._decide()
        else:
            self._revision = found.revision


async def _serve_copy(listener: Listener, splicer: Splicer) -> asyncio.Server:
    """Accept a listener's connections with a copy of its socket, so that the broker can use the socket itself later."""
    copy: Listener = replace(listener, socket=listener.socket.dup())
    return await copy.serve(splicer.protocol)


def _start_again() -> NoReturn:
    """Replace the process by a new one, with the same process id."""
    _flush_log()
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    finally:
        os._exit(1)  # the program file is gone; a member that does not lead may serve no client


def _flush_log() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _read(recorder: Recorder, data_path: Path, path: str, start: int, end: int) -> bytes | memoryview | None:
    """As ``recorder.read``; an error names the file. Raises OSError."""
    try:
        return recorder.read(path, start, end)
    except OSError as error:
        raise with_name(error, data_path / path) from error


def _write_a_little(path: Path) -> None:
    with named(path, "written"):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, os.urandom(8), 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)
