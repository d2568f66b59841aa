"""A simulated pair: two members, three links, an arbiter, publishers, and faults, all from one seed.

Every event has a time, and the next one is always the earliest: a story with the same seed is the same story. The
members are the real state machines of ``brokerd.mirror``; disks, connections, clocks and the arbiter are simulated.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from brokerd.mirror.election import (
    ArbiterAnswer,
    Campaign,
    CheckDisk,
    Election,
    EndTerm,
    Lead,
    ReadArbiter,
    RegainLead,
    Renew,
)
from brokerd.mirror.errors import Fenced, InvalidStream, JoinRefused, MirrorDamaged
from brokerd.mirror.follower import Follower
from brokerd.mirror.hello import Hello
from brokerd.mirror.leader import Close, CompareFiles, Leader, Send, StepDown, StoreStamp, TakeCut, WriteRecord
from brokerd.mirror.manifest import missing
from brokerd.mirror.pair import PairRecord
from brokerd.mirror.stamps import Stamps
from tests.mirror.disk import BLOCK_BYTES, Disk, Store
from tests.mirror.story_runner import Violation

LEASE = 2.0
TICK = 0.05
PATIENCE = 0.6
LONGEST_FAULT = 3 * LEASE
STAMP_INTERVAL = LEASE
ARBITER_PATIENCE = 0.5
RECOVERIES = (0.0, 0.0, 0.5 * LEASE, 2.5 * LEASE)
"""Times that the longest recovery of a story may take."""


class Answer(NamedTuple):
    """The arbiter's answer to one request. In place of an answer that was lost, there is None."""

    value: object


class Arbiter:
    """What etcd keeps for a pair. Its lease ends when its own clock says so."""

    def __init__(self) -> None:
        self.record: PairRecord | None = None
        self.revision = 0
        self.holder: tuple[str, int] | None = None
        self.lease_ends = 0.0
        self.is_away = False
        self.stamp_count = 0
        """How often the record got another stamp."""
        self._campaigns = 0

    def expire(self, now: float) -> None:
        if self.holder is not None and now >= self.lease_ends and not self.is_away:
            self.holder = None

    def read(self, now: float) -> ArbiterAnswer:
        self.expire(now)
        return ArbiterAnswer(self.record, self.revision, None if self.holder is None else self.holder[0])

    def campaign(self, now: float, member: str, record: PairRecord, revision: int) -> tuple[int, int] | None:
        """The number of the lease and the revision of the record; None if it was refused."""
        self.expire(now)
        if self.holder is not None or revision != self.revision:
            return None
        self._campaigns += 1
        self.holder, self.lease_ends = (member, self._campaigns), now + LEASE
        self.record, self.revision = record, self.revision + 1
        return self._campaigns, self.revision

    def renew(self, now: float, lease: int) -> bool:
        self.expire(now)
        if self.holder is None or self.holder[1] != lease:
            return False
        self.lease_ends = now + LEASE
        return True

    def write(self, now: float, lease: int, record: PairRecord, revision: int) -> int | None:
        """The new revision; None if the lease or the revision is another one."""
        self.expire(now)
        if self.holder is None or self.holder[1] != lease or revision != self.revision:
            return None
        self.stamp_count += record.stamp != self.record.stamp if self.record is not None else 0
        self.record, self.revision = record, self.revision + 1
        return self.revision


class Connection:
    """A connection from a follower to the other member: two queues of bytes, each in order."""

    def __init__(self, number: int, follower: Process, leader: Process) -> None:
        self.number = number
        self.ends = (follower, leader)
        self.queues: tuple[deque[bytes], deque[bytes]] = (deque(), deque())  # to the leader, to the follower
        self.free_at = [0.0, 0.0]
        self.is_open = True
        self.is_reset = False
        """True if what was under way when it was closed is lost; otherwise it still arrives before the end."""


class Process:
    """One run of a member's process. A kill ends it; the next one begins with the disk as it is."""

    def __init__(self, world: World, member: str) -> None:
        self.world, self.member, self.disk = world, member, world.disks[member]
        disk = self.disk
        world.pairs += 1
        new_record = PairRecord(pair=f"pair {world.pairs}", node_id=7, epoch=0, leader="")
        self.election = Election(
            member, disk.boot_id, LEASE, new_record,
            pair=disk.pair, has_data=bool(disk.files), epoch=disk.epoch, now=world.now, stamps=disk.stamps,
        )  # fmt: skip
        self.is_alive = True
        self.election.clock = lambda: world.now  # type: ignore[attr-defined]  # one of the mutations needs it
        self.leader: Leader | None = None
        self.store: Store | None = None
        self.follower: Follower | None = None
        self.connection: Connection | None = None
        self.is_blocked = False
        """True while the data path is recovered."""
        self.lease = self.revision = 0
        self.disk_hangs_until = 0.0
        self.pending: deque[tuple[int, list[int]]] = deque()
        self.stores: deque[Callable[[], None]] = deque()
        """What follows each store of stamps that is not on the disk yet."""
        self.connections: dict[int, Connection] = {}
        self.closed_here: set[int] = set()

    # -- time -----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        world = self.world
        world.at(world.now + TICK * world.random.uniform(0.8, 1.2), self, self.tick)
        self.election.tick(world.now)
        self.decide()
        if self.store is not None and self.leader is None and not (self.is_blocked or self.election.is_recovering):
            self.begin()
        if self.leader is not None:
            self.leader.tick(world.now)
            self.act()
        elif self.connection is None and self.election.role.value == "follower":
            self.dial()

    def dial(self) -> None:
        world, other = self.world, self.world.processes[other_member(self.member)]
        if other is None or not other.is_alive or world.is_cut(self.member, other.member):
            return
        self.connection = world.connect(self, other)
        found = self.election.last_answer
        seen = max(self.disk.epoch, found.record.epoch if found is not None and found.record is not None else 0)
        hello = Hello(
            member=self.member, pair=self.election.pair, boot=self.disk.boot_id, has_data=bool(self.disk.files),
            stores_stamps=True,
        )  # fmt: skip
        self.follower = Follower(hello, seen, self.disk)
        world.send(self.connection, 0, self.follower.take_output())

    # -- the election ---------------------------------------------------------------------------------------------

    def decide(self) -> None:
        decisions, self.election.decisions = self.election.decisions, []
        for decision in decisions:
            if isinstance(decision, ReadArbiter):
                self.ask(lambda now: self.world.arbiter.read(now), self.read_answered)
            elif isinstance(decision, Campaign):
                self.campaign(decision)
            elif isinstance(decision, CheckDisk):
                self.check_disk()
            elif isinstance(decision, Renew):
                self.renew(decision)
            elif isinstance(decision, Lead):
                self.lead(decision)
            elif isinstance(decision, RegainLead):
                self.regain(decision)
            else:
                assert isinstance(decision, EndTerm)
                self.end()

    def ask(self, request: Callable[[float], object], answered: Callable[[Answer | None], None]) -> None:
        """Ask the arbiter. The answer, or None if there is none in time, comes once."""
        self.world.ask(self, request, answered)

    def read_answered(self, answer: Answer | None) -> None:
        if answer is not None and isinstance(found := answer.value, ArbiterAnswer):
            self.election.read_answered(found, self.world.now)
            self.decide()

    def campaign(self, decision: Campaign) -> None:
        self.drop_connection()
        self.disk.pair = decision.record.pair
        self.world.occurred("campaign")
        sent_at = self.world.now

        def answered(answer: Answer | None) -> None:
            if answer is not None and isinstance(answer.value, tuple):
                self.lease, revision = answer.value
                self.election.won(decision.record, revision, sent_at)
            else:
                self.election.not_won()
            self.decide()

        self.ask(lambda now: self.world.arbiter.campaign(now, self.member, *decision), answered)

    def check_disk(self) -> None:
        world = self.world
        done = max(world.now + world.random.uniform(0.001, 0.02), self.disk_hangs_until)
        world.at(done, self, lambda: (self.election.disk_answered(world.now), self.decide()))

    def renew(self, decision: Renew) -> None:
        def answered(answer: Answer | None) -> None:
            self.election.renewed(None if answer is None else bool(answer.value), decision.sent_at)
            self.decide()

        self.ask(lambda now: self.world.arbiter.renew(now, self.lease), answered)

    def lead(self, decision: Lead) -> None:
        world, record = self.world, decision.record
        self.disk.epoch, self.disk.pair = record.epoch, record.pair
        self.store = Store(self.disk)
        self.revision, self.record = decision.revision, record
        world.occurred("lead")
        if not world.recovery_s:
            self.election.recovered(world.now)
            self.begin()
            return
        self.is_blocked = True
        world.at(world.now + world.recoveries.uniform(0, world.recovery_s), self, self.recovered)
        if not world.starves_keeper:
            self.keep()

    def keep(self) -> None:
        """Renew the lease as a thread does during the recovery."""
        world = self.world
        if self.is_blocked:
            sent_at, lease = world.now, self.lease
            self.ask(
                lambda now: world.arbiter.renew(now, lease),
                lambda answer: self.election.renewed(True, sent_at) if answer is not None and answer.value else None,
            )
            world.at(world.now + LEASE / 4, self, self.keep)

    def recovered(self) -> None:
        self.is_blocked = False
        self.election.recovered(self.world.now)
        self.decide()

    def regain(self, decision: RegainLead) -> None:
        world, sent_at = self.world, self.world.now

        def renewed(answer: Answer | None) -> None:
            if answer is None:
                self.election.not_regained(None)
            elif answer.value:
                self.election.regained(decision.revision, sent_at, world.now)
            else:
                self.ask(lambda now: world.arbiter.campaign(now, self.member, *decision), granted)

        def granted(answer: Answer | None) -> None:
            if answer is not None and isinstance(answer.value, tuple):
                self.lease, self.revision = answer.value
                world.counts["regained"] += 1
                self.election.regained(self.revision, sent_at, world.now)
            elif answer is None:
                self.election.not_regained(None)
            else:
                self.ask(lambda now: world.arbiter.read(now), known)

        def known(answer: Answer | None) -> None:
            found = None if answer is None else answer.value
            self.election.not_regained(found if isinstance(found, ArbiterAnswer) else None)
            self.decide()

        self.ask(lambda now: world.arbiter.renew(now, self.lease), renewed)

    def begin(self) -> None:
        """Serve what was recovered."""
        assert self.store is not None
        self.world.checker.took_over(self.record.epoch, self.member, self.store.messages)
        self.leader = Leader(
            self.member, self.record, self.read_to_send, patience=PATIENCE, stamp_interval=STAMP_INTERVAL
        )

    def read_to_send(self, path: str, start: int, end: int) -> bytes | None:
        world = self.world
        if not world.is_calm and world.reads.random() < world.unreadable:
            world.counts["unreadable"] += 1
            raise OSError(f"{path} cannot be read")
        return self.disk.read_to_send(path, start, end)

    def end(self) -> None:
        """A primary that stops leading starts again as a process, so that nothing is left of the term."""
        self.world.kill(self.member)
        self.world.start(self.member)

    # -- the primary ----------------------------------------------------------------------------------------------

    def publish(self, messages: list[int]) -> None:
        if self.leader is None or self.store is None or not self.leader.accepts_publishes:
            return
        if not self.election.may_answer(self.world.now):
            return
        self.world.checker.attempted.update(messages)
        entries = self.store.append(messages)
        if self.world.random.random() < 0.02:
            entries += self.store.checkpoint()
        self.pending.append((self.leader.group_changed(entries), messages))
        self.act()

    def act(self) -> None:
        leader = self.leader
        while leader is not None and leader.effects and self.is_alive:
            effects, leader.effects = leader.effects, []
            for effect in effects:
                if isinstance(effect, Send):
                    if effect.link in self.connections:
                        self.world.send(self.connections[effect.link], 1, b"".join(effect.parts))
                elif isinstance(effect, Close):
                    if effect.link in self.connections:
                        self.closed_here.add(effect.link)
                        self.world.close(self.connections[effect.link])
                elif isinstance(effect, TakeCut):
                    assert self.store is not None
                    self.world.occurred("cut")
                    leader.cut_taken(effect.link, self.store.cut())
                elif isinstance(effect, CompareFiles):
                    self.compare(leader, effect)
                elif isinstance(effect, WriteRecord):
                    self.write_record(leader, effect.record)
                elif isinstance(effect, StoreStamp):
                    self.store_stamp(leader, effect.last)
                else:
                    assert isinstance(effect, StepDown)
                    self.election.end_term(effect.reason)
                    self.decide()
        if leader is not None and self.is_alive:
            self.answer(leader)

    def compare(self, leader: Leader, effect: CompareFiles) -> None:
        def compared() -> None:
            copies = missing(effect.files, effect.sums, self.disk.sums(effect.files), BLOCK_BYTES)
            leader.compared(effect.link, copies)
            self.act()

        self.world.at(self.world.now + self.world.random.uniform(0.0, 0.2), self, compared)

    def store_stamp(self, leader: Leader, last: str) -> None:
        world = self.world
        world.stamps += 1
        stamps = Stamps(last, f"stamp {world.stamps}")

        def stored() -> None:
            self.disk.stamps = stamps
            leader.stamps_stored(stamps)
            self.act()

        self.store_in_turn(stored)

    def write_record(self, leader: Leader, record: PairRecord) -> None:
        revision = self.revision
        self.world.occurred("record")

        def answered(answer: Answer | None) -> None:
            if answer is not None and isinstance(answer.value, int):
                self.revision = answer.value
                leader.record_written(record)
            else:
                leader.record_not_written()
                self.ask(lambda now: self.world.arbiter.read(now), known)
            self.act()

        def known(answer: Answer | None) -> None:
            if answer is not None and isinstance(found := answer.value, ArbiterAnswer) and found.record is not None:
                if found.record.epoch == leader.record.epoch:
                    self.revision = found.revision
                else:
                    self.election.end_term("another member leads")
                    self.decide()

        self.ask(lambda now: self.world.arbiter.write(now, self.lease, record, revision), answered)

    def answer(self, leader: Leader) -> None:
        """Send the OKs that may leave."""
        while self.pending and self.pending[0][0] <= leader.acknowledged:
            _, messages = self.pending.popleft()
            if self.election.may_answer(self.world.now):
                self.world.checker.acknowledged_by(leader.record.epoch, self.member, messages)

    # -- connections ----------------------------------------------------------------------------------------------

    def received(self, connection: Connection, data: bytes) -> None:
        if connection.number in self.closed_here:
            return
        if connection.ends[1] is self:
            if self.leader is None:
                self.closed_here.add(connection.number)
                self.world.close(connection)
                return
            if connection.number not in self.connections:
                self.connections[connection.number] = connection
                self.leader.connected(connection.number, self.world.now)
            self.leader.received(connection.number, data, self.world.now)
            self.act()
        elif connection is self.connection:
            self.follow(connection, data)

    def follow(self, connection: Connection, data: bytes) -> None:
        follower = self.follower
        assert follower is not None
        try:
            follower.received(data)
        except (Fenced, InvalidStream, JoinRefused, MirrorDamaged) as error:
            self.world.counts[type(error).__name__] += 1
            self.world.close(connection)
            return
        if follower.is_welcomed:
            self.election.joined(self.disk.pair, self.disk.epoch)
        if follower.awaits_sums:
            self.world.occurred("prepare")
            self.disk.prepare(follower.manifest)
            follower.compared(self.disk.sums(follower.manifest))
        if follower.stamps is not None:
            self.store_followers(connection, follower, follower.stamps)
            follower.stamps = None
        self.world.send(connection, 0, follower.take_output())

    def store_followers(self, connection: Connection, follower: Follower, stamps: Stamps) -> None:
        def stored() -> None:
            self.disk.stamps = self.election.stamps = stamps
            if connection is self.connection:
                follower.stamps_stored(stamps)
                self.world.send(connection, 0, follower.take_output())

        self.store_in_turn(stored)

    def store_in_turn(self, stored: Callable[[], None]) -> None:
        """Store stamps in one thread: in the order of the calls, also after a pause."""
        world = self.world
        self.stores.append(stored)
        done = max(world.now + world.stamping.uniform(0.001, 0.02), self.disk_hangs_until)
        world.at(done, self, lambda: self.stores.popleft()())

    def closed(self, connection: Connection) -> None:
        if connection is self.connection:
            self.connection = self.follower = None
        elif self.connections.pop(connection.number, None) is not None and self.leader is not None:
            self.leader.disconnected(connection.number)
            self.act()

    def drop_connection(self) -> None:
        if self.connection is not None:
            self.world.close(self.connection)
            self.connection = self.follower = None


class Checker:
    """What was attempted and acknowledged, and by whom."""

    def __init__(self) -> None:
        self.attempted: set[int] = set()
        self.acknowledged: set[int] = set()
        self.leaders: dict[int, str] = {}
        self.last_epoch = 0
        self.takeovers = 0

    def acknowledged_by(self, epoch: int, member: str, messages: list[int]) -> None:
        if self.leaders.setdefault(epoch, member) != member:
            raise Violation(f"two members answer OK in term {epoch}")
        if epoch < self.last_epoch:
            raise Violation(f"{member} answers OK in term {epoch}, after term {self.last_epoch} has")
        self.last_epoch = epoch
        self.acknowledged.update(messages)

    def took_over(self, epoch: int, member: str, readable: list[int]) -> None:
        if self.leaders.setdefault(epoch, member) != member:
            raise Violation(f"two members lead term {epoch}")
        self.takeovers += 1
        self.check(f"{member} leads term {epoch}", readable)

    def check(self, when: str, readable: list[int]) -> None:
        lost, unexpected = self.acknowledged - set(readable), set(readable) - self.attempted
        if lost or unexpected or len(readable) != len(set(readable)):
            raise Violation(f"{when}: {len(lost)} lost, {len(unexpected)} unexpected, {len(readable)} readable")


class World:
    """One story. ``processes`` are the members' present processes, None while they are dead."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.pairs = 0
        self.is_calm = False
        """No request is lost or late any more."""
        self.loss, self.lateness, self.delay_s = 0.01, 0.02, 0.005
        """How many requests to the arbiter are lost, and late; the mean delay of bytes between the members."""
        self.recoveries = random.Random(f"recoveries {seed}")
        """Of its own, so that the other choices of a story do not depend on recoveries."""
        self.recovery_s, self.starves_keeper = self.recoveries.choice(RECOVERIES), self.recoveries.random() < 0.5
        """How long the longest recovery takes; whether it leaves the thread that renews the lease no time."""
        self.reads = random.Random(f"reads {seed}")
        self.stamping = random.Random(f"stamps {seed}")
        self.stamps = 0
        """How many stamps there were."""
        self.unreadable = self.reads.choice((0.0, 0.0, 0.002, 0.02))
        """How many of the primary's reads of its files fail."""
        self.occurred: Callable[[str], None] = lambda event: None
        """Called at moments at which a fault may hurt most."""
        self.disks = {"a": Disk(), "b": Disk()}
        self.arbiter = Arbiter()
        self.checker = Checker()
        self.processes: dict[str, Process | None] = {"a": None, "b": None}
        self.paused_until = {"a": 0.0, "b": 0.0}
        self.cut_until: dict[frozenset[str], float] = {}
        counted = (
            "Fenced",
            "InvalidStream",
            "JoinRefused",
            "MirrorDamaged",
            "faults",
            "regained",
            "unreadable",
            "restores",
        )
        self.counts = dict.fromkeys(counted, 0)
        self._events: list[tuple[float, int, Process | None, Callable[[], object]]] = []
        self._number = self._connections = 0
        self._open: list[Connection] = []
        for member in self.disks:
            self.start(member)

    # -- events ---------------------------------------------------------------------------------------------------

    def at(self, when: float, process: Process | None, event: Callable[[], object]) -> None:
        """Run ``event`` at the time ``when``, or once the process is not paused any more; not if it has ended."""
        self._number += 1
        heapq.heappush(self._events, (when, self._number, process, event))

    def run(self, until: float) -> None:
        """Let the time pass."""
        while self._events and self._events[0][0] <= until:
            when, _, process, event = heapq.heappop(self._events)
            self.now = max(self.now, when)
            if process is not None and not process.is_alive:
                continue
            if process is not None and self.paused_until[process.member] > self.now:
                self.at(self.paused_until[process.member] + self.random.uniform(0, 0.01), process, event)
                continue
            event()
        self.now = until

    # -- processes ------------------------------------------------------------------------------------------------

    def start(self, member: str) -> None:
        if self.processes[member] is None:
            process = self.processes[member] = Process(self, member)
            self.at(self.now + self.random.uniform(0, 0.1), process, process.tick)

    def kill(self, member: str) -> None:
        process = self.processes[member]
        if process is not None:
            process.is_alive, self.processes[member] = False, None
            for connection in [each for each in self._open if process in each.ends]:
                self.close(connection)

    def check_who_leads(self) -> None:
        """Check that the two members do not both believe that they lead."""
        leading = [each for each in self.processes.values() if each is not None and each.election.may_answer(self.now)]
        if len(leading) > 1:
            raise Violation("two members may answer at one time")

    # -- network --------------------------------------------------------------------------------------------------

    def is_cut(self, *ends: str) -> bool:
        return self.cut_until.get(frozenset(ends), 0.0) > self.now

    def connect(self, follower: Process, leader: Process) -> Connection:
        self._connections += 1
        connection = Connection(self._connections, follower, leader)
        self._open.append(connection)
        return connection

    def send(self, connection: Connection, direction: int, data: bytes) -> None:
        """Bytes arrive in order, after a delay; sometimes in two parts."""
        if not connection.is_open or not data:
            return
        parts = [data]
        if len(data) > 1 and self.random.random() < 0.1:
            cut = self.random.randrange(1, len(data))
            parts = [data[:cut], data[cut:]]
        receiver = connection.ends[1 - direction]
        for part in parts:
            connection.queues[direction].append(part)
            delay = self.random.expovariate(1 / self.delay_s)
            arrives = self.now + (min(delay, 0.1) if self.is_calm else delay)
            connection.free_at[direction] = max(connection.free_at[direction], arrives)
            self._arrive(connection, direction, receiver, connection.free_at[direction])

    def _arrive(self, connection: Connection, direction: int, receiver: Process, when: float) -> None:
        def arrived() -> None:
            members = [end.member for end in connection.ends]
            if connection.is_reset:
                return
            if self.is_cut(*members):
                self._arrive(connection, direction, receiver, self.cut_until[frozenset(members)])
                return
            receiver.received(connection, connection.queues[direction].popleft())

        self.at(when, receiver, arrived)

    def close(self, connection: Connection) -> None:
        """Close a connection. Its ends notice later; bytes that are under way arrive before that, or are lost."""
        if connection.is_open:
            connection.is_open = False
            connection.is_reset = self.random.random() < 0.5
            self._open.remove(connection)
            for end in connection.ends:
                direction = 1 - connection.ends.index(end)
                when = self.now if connection.is_reset else max(self.now, connection.free_at[direction])
                self.at(when + self.random.uniform(0, 0.1), end, lambda end=end: end.closed(connection))

    def ask(
        self, process: Process, request: Callable[[float], object], answered: Callable[[Answer | None], None]
    ) -> None:
        """Send a request to the arbiter. It or its answer may be lost; it may arrive when nobody waits for the answer
        any more."""
        is_done = False

        def is_cut_off() -> bool:
            return self.is_cut(process.member, "arbiter")

        def finish(answer: Answer | None) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                answered(answer)

        def arrive() -> None:
            if self.arbiter.is_away or is_cut_off():
                return
            answer = Answer(request(self.now))
            if self.is_calm or self.random.random() > self.loss:
                self.at(self.now + self._delay(), process, lambda: None if is_cut_off() else finish(answer))

        if self.is_calm or self.random.random() > self.loss:
            self.at(self.now + self._delay(), None, arrive)
        self.at(self.now + ARBITER_PATIENCE, process, lambda: finish(None))

    def _delay(self) -> float:
        is_late = not self.is_calm and self.random.random() < self.lateness
        return self.random.uniform(0.2, 1.0) if is_late else min(0.1, self.random.expovariate(1 / 0.01))


def other_member(member: str) -> str:
    return "b" if member == "a" else "a"
