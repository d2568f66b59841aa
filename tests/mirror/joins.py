"""Joins with real files and threads: a follower joins, again and again, while the primary's files change.

The primary is a broker whose journals are so small that it writes a checkpoint every few changes, in a thread. The
follower's connection ends at any moment, and so does its process: in the middle of a frame, and of the preparation of
its files. In between, its files are damaged, or the members change places. A checkpoint is never damaged, unless it was
before the follower joined, and a follower that has everything has the primary's files.

``python -m tests.mirror.joins --stories 100 --seed 1`` tells more stories than the tests do.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from brokerd.log.segment import Segment
from brokerd.mirror.follower import Follower
from brokerd.mirror.hello import Hello
from brokerd.mirror.leader import Close, CompareFiles, Leader, Send, TakeCut, WriteRecord
from brokerd.mirror.manifest import BLOCK_BYTES, missing
from brokerd.mirror.pair import PairRecord
from brokerd.recorder import Recorder
from brokerd.replica import MirrorState, Replica, has_data, sums_of
from brokerd.syncer import Done
from nsqwire.units import Seconds
from tests.brokerd.clockwork import Node
from tests.mirror.damaged_files import damage_files, damaged_checkpoints, mirrored
from tests.mirror.story_runner import Violation, run_stories

JOINS_IN_A_STORY: Final = 12
STEPS_IN_A_JOIN: Final = 300
JOURNAL_BYTES: Final = 8 * 1024
TOPICS: Final = 4
PATIENCE: Final[Seconds] = 1e9
LONGEST_SLEEP_S: Final[Seconds] = 0.003
DEADLINE_S: Final[Seconds] = 120.0
PAIR: Final = "pair"


class Killed(BaseException):
    """The process ends here."""


class Calls:
    """The system calls of :mod:`brokerd.replica`, one of which may be the process's last."""

    def __init__(self) -> None:
        self.left: int | None = None
        """How many more there are until the process is killed; None if it is not."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return partial(self._call, found) if name in ("open", "pwrite", "ftruncate", "posix_fallocate") else found

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.left is not None:
            if self.left <= 0:
                raise Killed
            self.left -= 1
        return function(*args, **kwargs)


class Unwaited:
    """Records what was written. No response waits for it."""

    acknowledges = delays_responses = is_stalled = False

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def wrote(self, segment: Segment, messages: int) -> None:
        self._recorder.wrote(segment)

    def when_synced(self, done: Done) -> None:
        done(None)

    when_synced_at_last = when_synced

    async def synced(self) -> None:
        return

    def check(self, interval_s: Seconds) -> None:
        return


class Primary:
    """A broker that leads a term. What it sends to the link of the present connection is in ``sent``."""

    def __init__(self, path: Path, member: str, epoch: int, chance: random.Random) -> None:
        self.path, self.member, self._chance = path, member, chance
        self._node = Node(path)
        self.broker = self._node.broker
        self.recorder = Recorder(self.broker)
        self.broker.storage.syncer = Unwaited(self.recorder)
        record = PairRecord(pair=PAIR, node_id=1, epoch=epoch, leader=member, in_sync={member: "boot"})
        self.leader = Leader(member, record, self.recorder.read, patience=PATIENCE)
        self.link = 0
        self.sent = bytearray()
        self._pool = ThreadPoolExecutor(2)
        self._checkpoint: tuple[Future[None], Callable[[BaseException | None], None]] | None = None
        self.broker.storage.checkpoint_in_background(self._write_checkpoint)
        self._cuts: list[int] = []
        self._records: list[PairRecord] = []
        self._compared: list[tuple[CompareFiles, Future[dict[str, bytes]]]] = []

    def _write_checkpoint(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self._checkpoint = self._pool.submit(work), done

    # -- what happens ---------------------------------------------------------------------------------------------

    def change(self) -> None:
        """Change files, as clients do."""
        chance, name = self._chance, f"t{self._chance.randrange(TOPICS)}"
        topic = self.broker.topic(name)
        what = chance.randrange(20)
        if what == 0:
            self.broker.delete_topic(name)
        elif what == 1:
            topic.publish([bytes(chance.randrange(200_000))])
        elif what == 2:
            topic.publish_with_headers([b"body"], [b"\0\1k\0\1v"])
        elif what < 6:
            for channel in topic.channels.values():
                channel.empty()
        elif what < 12:
            channel = topic.channel(f"c{chance.randrange(5)}")
            channel.unpause() if channel.paused else channel.pause()
        else:
            topic.publish([os.urandom(chance.randrange(1, 2000)) for _ in range(chance.randrange(1, 5))])

    def end_turn(self, *, sweep: bool) -> None:
        """End a turn of the event loop: a checkpoint may begin, or have ended, and changes are sent."""
        self._node.pass_until(self._node.now + 0.001)
        if self._checkpoint is not None and self._checkpoint[0].done():
            (future, done), self._checkpoint = self._checkpoint, None
            done(future.exception())
        if sweep or self.recorder.has_changes:
            entries = self.recorder.take_group(sweep=sweep)
            if entries:
                self.leader.group_changed(entries)
        self.act()

    def act(self) -> None:
        """Do what the leader has decided, and what has ended since."""
        leader = self.leader
        while leader.effects:
            effects, leader.effects = leader.effects, []
            for effect in effects:
                if isinstance(effect, Send):
                    if effect.link == self.link:
                        self.sent += b"".join(effect.parts)
                elif isinstance(effect, TakeCut):
                    self._cuts.append(effect.link)
                elif isinstance(effect, CompareFiles):
                    ours = self._pool.submit(sums_of, self.path, effect.files, effect.sums)
                    self._compared.append((effect, ours))
                elif isinstance(effect, WriteRecord):
                    self._records.append(effect.record)
                elif isinstance(effect, Close):
                    raise Violation(f"the primary closes the connection: {effect.reason}")

    def go_on(self) -> None:
        """Let one of the things end that take time: the arbiter's answer, a comparison, the list of files."""
        if self._records:
            self.leader.record_written(self._records.pop(0))
        elif self._compared and self._compared[0][1].done():
            effect, ours = self._compared.pop(0)
            self.leader.compared(effect.link, missing(effect.files, effect.sums, ours.result(), BLOCK_BYTES))
        elif self._cuts:
            self.end_turn(sweep=True)
            files = self.recorder.cut()
            if files is not None:
                cuts, self._cuts = self._cuts, []
                for link in cuts:
                    self.leader.cut_taken(link, files)
        self.act()

    def connected(self) -> None:
        """The follower connects."""
        self.leader.disconnected(self.link)
        self.link += 1
        self.sent.clear()
        self.leader.connected(self.link, 0.0)
        self.act()

    def received(self, data: bytes) -> None:
        """Bytes of the follower have arrived."""
        self.leader.received(self.link, data, 0.0)
        self.act()

    def end(self) -> None:
        """Kill the process. A checkpoint that is being written is completed, for which a real kill does not wait."""
        self._pool.shutdown()
        self.recorder.close()
        self._node.kill()


class Member:
    """A follower: its process and the present connection."""

    def __init__(self, path: Path, member: str, calls: Calls) -> None:
        self.path, self.member = path, member
        self._calls = calls
        self._files = ThreadPoolExecutor(1)
        self._state = MirrorState(member=member, pair=PAIR) if has_data(path) else MirrorState(member=member)
        self._replica: Replica | None = None
        self._prepared: Future[dict[str, bytes]] | None = None
        self.follower: Follower | None = None

    def connect(self, epoch: int) -> None:
        """Open a connection. The preparation for the one before it may not have ended."""
        self.drop()
        self._replica = Replica(self.path, self._state)
        hello = Hello(member=self.member, pair=self._state.pair, boot="boot", has_data=has_data(self.path))
        self.follower = Follower(hello, epoch, self._replica)

    def received(self, data: bytes) -> None:
        """Bytes of the primary have arrived. Raises Killed."""
        assert self.follower is not None
        assert self._replica is not None
        self.follower.received(data)
        self._state = self._replica.state
        if self.follower.awaits_sums:
            self.follower.awaits_sums = False
            self._prepared = self._files.submit(self._replica.prepare, self.follower.manifest)

    def go_on(self) -> None:
        """Send the checksums, if they are there. Raises Killed."""
        if self._prepared is not None and self._prepared.done() and self.follower is not None:
            prepared, self._prepared = self._prepared, None
            self.follower.compared(prepared.result())

    def drop(self) -> None:
        """Close the connection."""
        self._prepared = self.follower = None
        if self._replica is not None:
            self._replica.close()
            self._replica = None

    def campaign(self) -> None:
        """Stop following, in order to lead."""
        assert self._replica is not None
        self._replica.cut_incomplete()

    def end(self) -> None:
        """Kill the process, at once or at one of its next system calls."""
        self._calls.left = 0
        self._files.shutdown()
        self.drop()
        self._calls.left = None


class Story:
    """Joins in two data paths below ``directory``."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.seed = seed
        self.counts = Counter[str]()
        self._chance = random.Random(seed)
        self._calls = Calls()
        self._epoch = 1
        self._paths = {name: directory / name for name in ("a", "b")}
        for path in self._paths.values():
            path.mkdir()
        self._spoiled = False
        """True from a damage to the follower's files until it has joined."""
        self._primary = Primary(self._paths["a"], "a", 1, self._chance)
        self._begin_follower("b")

    def _begin_follower(self, name: str) -> None:
        self._member = Member(self._paths[name], name, self._calls)

    def tell(self, joins: int = JOINS_IN_A_STORY) -> None:
        """Let it happen. Raises Violation."""
        try:
            with patch("brokerd.replica.os", self._calls):
                for number in range(joins):
                    self._join(is_last=number == joins - 1)
                    self._between()
        except Violation as violation:
            raise Violation(f"seed {self.seed}: {violation}") from None
        finally:
            self._member.end()
            self._primary.end()

    # -- one join -------------------------------------------------------------------------------------------------

    def _join(self, *, is_last: bool) -> None:
        chance, member, primary = self._chance, self._member, self._primary
        member.connect(self._epoch)
        primary.connected()
        self.counts["connections"] += 1
        end = chance.choice(("completed", "dropped", "killed", "killed at a call", "taken over"))
        if is_last:
            end = "completed"
        steps = STEPS_IN_A_JOIN if end == "completed" else chance.randrange(STEPS_IN_A_JOIN)
        if end == "killed at a call":
            self._calls.left, steps = int(chance.expovariate(1 / 40)), STEPS_IN_A_JOIN
        try:
            for _ in range(steps):
                self._step()
            if end == "completed":
                self._complete()
        except Killed:
            self.counts["killed at a call"] += 1
            end = "killed"
        finally:
            self._calls.left = None
        if end == "taken over":
            self._take_over_if_in_sync()
        elif end == "dropped":
            member.drop()
        elif end == "killed" or chance.random() < 0.2:
            member.end()
            self._begin_follower(member.member)
        self.counts[end] += 1
        self._check_checkpoints()

    def _step(self) -> None:
        chance, member, primary = self._chance, self._member, self._primary
        what = chance.randrange(10)
        if what < 2:
            primary.change()
            primary.end_turn(sweep=chance.random() < 0.1)
        elif what < 4:
            primary.go_on()
        elif what < 5:
            primary.end_turn(sweep=False)
            time.sleep(chance.random() * LONGEST_SLEEP_S)
        elif what < 6:
            member.go_on()
        else:
            self._deliver(chance.choice((1, 50, 1000, 100_000, 1_000_000)))
        self._check_checkpoints()

    def _deliver(self, most: int) -> None:
        follower = self._member.follower
        assert follower is not None
        output = follower.take_output()
        if output:
            self._primary.received(output)
        data = bytes(self._primary.sent[:most])
        del self._primary.sent[:most]
        if data:
            was_copied = follower.is_copied
            self._member.received(data)
            if follower.is_copied and not was_copied:
                self._spoiled = False
                self.counts["copied"] += 1

    def _complete(self) -> None:
        """Let everything end that has begun, and compare the files."""
        deadline, is_equal = time.monotonic() + DEADLINE_S, False
        while not is_equal:
            if time.monotonic() > deadline:
                raise Violation("the follower does not catch up")
            self._member.go_on()
            self._primary.go_on()
            self._primary.end_turn(sweep=True)
            self._deliver(1 << 30)
            self._check_checkpoints()
            is_equal = self._is_equal()
            if not is_equal:
                time.sleep(0.0005)

    def _is_equal(self) -> bool:
        """False if the follower has not received everything. Raises Violation if its files are other ones."""
        leader, follower = self._primary.leader, self._member.follower
        assert follower is not None
        if self._primary.sent or not follower.is_copied or len(leader.record.in_sync) < 2:
            return False
        files = None if self._primary.recorder.has_changes else self._primary.recorder.cut()
        if files is None or leader.acknowledged < leader.group:
            return False
        path = self._member.path
        for name, size, end in files:
            if size < 0:
                continue
            theirs, ours = (path / name).read_bytes(), (self._primary.path / name).read_bytes()[:end]
            if theirs[:end] != ours or len(theirs) != max(size, end) or any(theirs[end:]):
                raise Violation(f"{name} differs")
        extra = set(mirrored(path)) - {file.path for file in files}
        if extra:
            raise Violation(f"the follower has {sorted(extra)}, which the primary has not")
        return True

    # -- checks and damage ----------------------------------------------------------------------------------------

    def _check_checkpoints(self) -> None:
        paths = [self._primary.path] if self._spoiled else [self._primary.path, self._member.path]
        if damaged := damaged_checkpoints(paths):
            raise Violation(damaged[0])

    def _between(self) -> None:
        """Damage files of the follower, or let the members change places, or neither."""
        chance = self._chance
        if chance.random() < 0.3:
            self._spoil()
        elif self._member.follower is not None and chance.random() < 0.5:
            self._take_over_if_in_sync()

    def _take_over_if_in_sync(self) -> None:
        """Let the follower recover its files and lead, if it is in sync: it has lost no message then.

        A member whose files were damaged may still be in sync by the record, until the primary has had it changed.
        """
        old, new = self._primary.member, self._member.member
        is_in_sync = new in self._primary.leader.record.in_sync
        if self._member.follower is None or not is_in_sync or self._spoiled:
            return
        self.counts["takeovers"] += 1
        self._member.campaign()
        self._member.end()
        self._primary.end()
        self._epoch += 1
        self._primary = Primary(self._paths[new], new, self._epoch, self._chance)
        self._begin_follower(old)
        if lost := self._primary.broker.storage.lost_message_count:
            raise Violation(f"{new} has lost {lost} messages")

    def _spoil(self) -> None:
        self._member.end()
        if damage_files(self._member.path, self._chance):
            self._spoiled = True
        self._begin_follower(self._member.member)


@contextmanager
def small_journals() -> Iterator[None]:
    """Let brokers write a checkpoint every few changes."""
    with patch("brokerd.journal.journal.JOURNAL_BYTES", JOURNAL_BYTES):
        yield


def tell(seed: int, counts: Counter[str]) -> None:
    with small_journals(), tempfile.TemporaryDirectory(prefix="joins-") as directory:
        story = Story(seed, Path(directory))
        try:
            story.tell()
        finally:
            counts.update(story.counts)


if __name__ == "__main__":
    sys.exit(run_stories("Let followers join, with real files and threads.", 20, tell))
