"""Stories of a pair: publishers, faults at random times, and a check of what was acknowledged.

``python -m tests.mirror.stories --stories 100000 --seed 1`` runs many, and prints the seed of each that goes wrong.
"""

from __future__ import annotations

import sys
from collections import Counter
from random import Random

from tests.mirror.disk import Disk, Store
from tests.mirror.story_runner import Violation, run_stories
from tests.mirror.world import LEASE, LONGEST_FAULT, Process, World, other_member

STORY_S = 16.0
"""Time within a story in which faults begin."""
HEALING_S = 8 * LEASE
LONGEST_HEALING_S = 60 * LEASE
"""Members that recover for long, and lose the lead meanwhile, leave each other more and more leases."""
FAULTS = ("kill", "pause", "partition", "reset", "hang", "arbiter", "reboot", "spoil")
RESTORES = (0, 0, 0, 1, 2)
"""How many times a member's data path is replaced by an older copy of it."""
STAMPS_SINCE = 2
"""An older copy is recognised if the record has got as many stamps since it was made."""


class Story:
    """One story. ``faults`` is how many there are."""

    def __init__(self, seed: int, *, faults: int | None = None) -> None:
        self.seed = seed
        self.world = World(seed)
        random = self.world.random
        self._message = 0
        self._is_published_until = STORY_S + LONGEST_FAULT
        self.world.at(0.0, None, self._publish)
        self.world.at(0.0, None, self._sync)
        self._occasion = random.choice((0.0, 0.0, 0.1, 0.3))
        if random.random() < 0.4:
            self.world.loss, self.world.lateness = random.choice(((0.1, 0.3), (0.01, 0.5), (0.3, 0.1)))
        self.world.delay_s = random.choice((0.002, 0.005, 0.05))
        self._longest_s = random.choice((0.3, LEASE, 1.5 * LEASE, LONGEST_FAULT))
        self.world.occurred = self._occurred
        count = random.randrange(1, 12) if faults is None else faults
        for _ in range(count):
            self.world.at(random.uniform(1.5 * LEASE, STORY_S), None, self._fault)
        self._restores = Random(f"restores {seed}")
        self._restored: set[str] = set()
        """The members whose data path was replaced by an older copy."""
        for _ in range(self._restores.choice(RESTORES) if faults is None else 0):
            self.world.at(self._restores.uniform(LEASE, STORY_S), None, self._copy)

    def tell(self) -> None:
        """Let it happen. Raises Violation."""
        try:
            self.world.run(STORY_S + LONGEST_FAULT)
            self.world.is_calm = True
            self._heal()
            self._check_end()
        except Violation as violation:
            raise Violation(f"seed {self.seed}: {violation}") from None

    def _heal(self) -> None:
        """Let the time pass until there is a primary, and both members are in sync."""
        world, end = self.world, self.world.now + LONGEST_HEALING_S
        world.run(world.now + HEALING_S)
        while world.now < end:
            leaders = [each.leader for each in world.processes.values() if each is not None and each.leader is not None]
            if any(len(leader.record.in_sync) == 2 for leader in leaders):
                world.run(world.now + LEASE)
                return
            world.run(world.now + LEASE)

    def _publish(self) -> None:
        world = self.world
        if world.now > self._is_published_until:
            return
        world.check_who_leads()
        for process in list(world.processes.values()):
            if process is not None and world.paused_until[process.member] <= world.now:
                count = world.random.randrange(1, 6)
                process.publish(list(range(self._message, self._message + count)))
                self._message += count
        world.at(world.now + world.random.expovariate(1 / 0.03), None, self._publish)

    def _sync(self) -> None:
        for disk in self.world.disks.values():
            if self.world.random.random() < 0.5:
                disk.sync()
        self.world.at(self.world.now + 0.5, None, self._sync)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _occurred(self, event: str) -> None:
        world = self.world
        if LEASE < world.now < STORY_S and world.random.random() < self._occasion:
            world.at(world.now + world.random.choice((0.0, 0.01, 0.1)), None, self._fault)

    def _fault(self) -> None:
        world, random = self.world, self.world.random
        member, seconds = random.choice("ab"), random.uniform(0.05, self._longest_s)
        world.counts["faults"] += 1
        kind = random.choice(FAULTS)
        process = world.processes[member]
        if kind in ("kill", "reboot"):
            world.kill(member)
            if kind == "reboot" and random.random() < 0.5:
                world.disks[member].reboot()
            elif kind == "reboot":  # half of them end only the process, which happens more often
                seconds = 0.1
            world.at(world.now + seconds, None, lambda: world.start(member))
        elif kind == "pause":
            world.paused_until[member] = max(world.paused_until[member], world.now + seconds)
        elif kind == "partition":
            ends = random.choice((("a", "b"), ("a", "arbiter"), ("b", "arbiter"), ("a", "b", "arbiter")))
            for pair in [ends] if len(ends) == 2 else [(member, other_member(member)), (member, "arbiter")]:
                world.cut_until[frozenset(pair)] = world.now + seconds
        elif kind == "reset" and process is not None and process.connection is not None:
            world.close(process.connection)
        elif kind == "hang" and process is not None:
            process.disk_hangs_until = world.now + seconds
        elif kind == "arbiter":
            world.arbiter.is_away = True
            world.at(world.now + seconds, None, self._arbiter_back)
        elif kind == "spoil" and process is not None and process.follower is not None and process.follower.is_copied:
            world.disks[member].spoils_next_write = True

    def _copy(self) -> None:
        member = self._restores.choice("ab")
        copied, stamps = self.world.disks[member].copy(), self.world.arbiter.stamp_count
        back_at = self.world.now + self._restores.uniform(0, 4 * LEASE)
        self.world.at(back_at, None, lambda: self._restore(member, copied, stamps))

    def _restore(self, member: str, copied: Disk, stamps: int) -> None:
        """Put an older copy in place of a data path while the member is dead. Often the other one dies, too."""
        world, random = self.world, self._restores
        if world.arbiter.stamp_count < stamps + STAMPS_SINCE or world.disks[member].boot != copied.boot:
            return
        world.counts["restores"] += 1
        for each in (member, other_member(member)) if random.random() < 0.7 else (member,):
            world.kill(each)
            world.at(world.now + random.uniform(0.05, self._longest_s), None, lambda each=each: world.start(each))
        world.disks[member] = copied
        self._restored.add(member)

    def _arbiter_back(self) -> None:
        arbiter = self.world.arbiter
        arbiter.is_away = False
        if arbiter.holder is not None:  # etcd begins each lease anew when it starts
            arbiter.lease_ends = self.world.now + LEASE

    # -- the end --------------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        """All faults are over: there is a primary and a follower in sync with the same bytes, or nobody may lead."""
        world, record = self.world, self.world.arbiter.record
        leaders = [each for each in world.processes.values() if each is not None and each.leader is not None]
        if record is None:
            raise Violation("no pair was founded")
        boots = {member: disk.boot_id for member, disk in world.disks.items()}
        if not leaders:
            for member, boot in boots.items():
                stamps = {record.stamp} if member not in self._restored else world.disks[member].stamps
                if record.may_lead(member, boot, stamps):
                    raise Violation(f"nobody leads, and {record.in_sync} may")
            return
        if len(leaders) > 1:
            raise Violation("two members lead at the end")
        primary = leaders[0]
        assert primary.store is not None
        assert primary.leader is not None
        world.checker.check("at the end", primary.store.messages)
        if set(record.in_sync) != {"a", "b"}:
            raise Violation(f"only {', '.join(record.in_sync)} is in sync at the end")
        if primary.pending:
            raise Violation(f"{len(primary.pending)} publishes wait for their answer at the end")
        self._check_files(primary)

    def _check_files(self, primary: Process) -> None:
        assert primary.store is not None
        other = self.world.disks[other_member(primary.member)]
        for path, _, end in primary.store.cut():
            ours = primary.disk.files[path][:end]
            theirs = other.files.get(path, b"")
            if theirs[:end] != ours or any(theirs[end:]):
                raise Violation(f"{path} differs")
        if extra := set(other.files) - set(primary.disk.files):
            raise Violation(f"the follower has {sorted(extra)}, which the primary has not")
        readable = Store(other).messages
        if readable != primary.store.messages:
            raise Violation("the follower would recover other messages")


def tell(seed: int, counts: Counter[str]) -> None:
    story = Story(seed)
    try:
        story.tell()
    finally:
        checker = story.world.checker
        counts.update(story.world.counts, takeovers=checker.takeovers, acknowledged=len(checker.acknowledged))


if __name__ == "__main__":
    sys.exit(run_stories("Simulate stories of a mirrored pair.", 1000, tell))
