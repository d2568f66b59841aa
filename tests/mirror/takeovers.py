"""``python -m tests.mirror.takeovers``: members of a running pair are lost under load, again and again.

Publishers and consumers go on all the time. At the end, everything that was acknowledged must have been received, and
nothing that nobody published. Prints the seed, what was done and what was lost; status 1 if anything was.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.failures.disk import HANG
from tests.harness.etcd import EtcdServer
from tests.harness.link import Link
from tests.harness.pair import Load, Pair
from tests.harness.waiting import wait_until
from tests.mirror.damaged_files import damage_files, damaged_checkpoints

BETWEEN = 200
"""Messages that are acknowledged between two faults."""


class Takeovers:
    """A pair under load, and what can be done to it. Each fault ends with both members in sync."""

    def __init__(self, pair: Pair, etcd: EtcdServer, load: Load, chance: random.Random) -> None:
        self._pair, self._etcd, self._load, self._chance = pair, etcd, load, chance

    def faults(self) -> dict[str, Callable[[], None]]:
        """The faults by name."""
        return {
            "kill": self.kill,
            "damage": self.damage,
            "pause": self.pause,
            "hand over": self.hand_over,
            "disk hangs": self.hang_disk,
            "arbiter restarts": self.restart_arbiter,
            "arbiter away": self.pause_arbiter,
            "follower killed": self.kill_follower,
            "members cut off": self.cut_members,
            "primary cut off": self.cut_primary,
            "arbiter cut off": self.cut_arbiter,
            "follower's arbiter cut off": self.cut_follower,
        }

    def kill(self) -> None:
        """Kill the primary, and start it when the other one leads."""
        killed = self._pair.wait_for_primary()
        killed.end(signal.SIGKILL)
        self._pair.wait_for_takeover(killed)
        killed.start()

    def damage(self) -> None:
        """Kill the primary, and start it with damaged files when the other one leads."""
        killed = self._pair.wait_for_primary()
        killed.end(signal.SIGKILL)
        if self._pair.wait_for_takeover(killed):  # otherwise it has what the other one lacks
            damage_files(killed.data_path, self._chance)
        killed.start()

    def pause(self) -> None:
        """Pause the primary until the other one leads."""
        paused = self._pair.wait_for_primary()
        paused.signal(signal.SIGSTOP)
        if self._pair.wait_for_takeover(paused):
            self._load.wait_for(BETWEEN)
        paused.signal(signal.SIGCONT)

    def hang_disk(self) -> None:
        """Let the primary's disk hang until the other one leads."""
        hanging = self._pair.wait_for_primary()
        hanging.fail(sync=HANG)
        try:
            if self._pair.wait_for_takeover(hanging):
                self._load.wait_for(BETWEEN)
        finally:
            hanging.fail()

    def hand_over(self) -> None:
        """End the primary by SIGTERM."""
        ended = self._pair.wait_for_primary()
        since = len(self._pair.other(ended).log)  # the lead ends before the process does
        status = ended.end(signal.SIGTERM)
        if status:
            raise AssertionError(f"status {status} after SIGTERM: {ended.output}")
        self._pair.wait_for_takeover(ended, since=since)
        ended.start()

    def restart_arbiter(self) -> None:
        """Kill etcd and start it again."""
        self._etcd.stop()
        wait_until(self._etcd.start, "etcd starts again")

    def pause_arbiter(self) -> None:
        """Pause etcd until nobody leads."""
        self._etcd.pause()
        wait_until(lambda: self._pair.primary is None, "nobody leads")
        self._etcd.resume()

    def kill_follower(self) -> None:
        """Kill the follower, and start it again."""
        killed = self._pair.other(self._pair.wait_for_primary())
        killed.end(signal.SIGKILL)
        self._load.wait_for(BETWEEN)
        killed.start()

    def cut_members(self) -> None:
        """Cut the link between the members, until the primary is alone."""
        primary, links = self._pair.wait_for_primary(), self._pair.links(members=True)
        self._cut(links, lambda: primary.request("GET", "/ping").text == "OK - under_replicated")

    def cut_primary(self) -> None:
        """Cut the primary off from the other member and from the arbiter."""
        primary = self._pair.wait_for_primary()
        self._cut(
            self._pair.links(members=True, arbiter_of=(primary,)), lambda: self._pair.wait_for_takeover(primary) or True
        )

    def cut_arbiter(self) -> None:
        """Cut the primary off from the arbiter."""
        primary = self._pair.wait_for_primary()
        self._cut(self._pair.links(arbiter_of=(primary,)), lambda: self._pair.wait_for_takeover(primary) or True)

    def cut_follower(self) -> None:
        """Cut the follower off from the arbiter for a while; nothing changes."""
        follower = self._pair.other(self._pair.wait_for_primary())
        links = self._pair.links(arbiter_of=(follower,))
        for link in links:
            link.cut()
        self._load.wait_for(BETWEEN)
        for link in links:
            link.heal()

    @staticmethod
    def _cut(links: list[Link], until: Callable[[], bool]) -> None:
        for link in links:
            link.cut()
        try:
            wait_until(until, "the cut has its consequence")
        finally:
            for link in links:
                link.heal()


def main() -> int:
    """Lose members as often as requested."""
    parser = argparse.ArgumentParser(prog="python -m tests.mirror.takeovers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="number of faults (default: 100)")
    parser.add_argument("--seed", type=int, help="repeat the choices of an earlier run; its timing cannot be repeated")
    parser.add_argument("--fault", action="append", help="only this fault; may be repeated")
    parser.add_argument("--lease", default="3s", help="lease of the pair (default: 3s)")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    chance, done = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="takeovers-") as directory:
        (Path(directory) / "pair").mkdir()
        etcd = EtcdServer(Path(directory))
        pair = Pair(Path(directory) / "pair", etcd, lease=given.lease, disks_fail=True)
        paths = [member.data_path for member in pair.members]
        try:
            pair.start()
            with Load(pair, publishers=8, consumers=8) as load:
                faults = Takeovers(pair, etcd, load, chance).faults()
                for number in range(given.rounds):
                    load.wait_for(BETWEEN)
                    fault = chance.choice(given.fault or sorted(faults))
                    faults[fault]()
                    pair.wait_until_in_sync()
                    wait_until(lambda: not damaged_checkpoints(paths), "the members' checkpoints can be read")
                    done[fault] += 1
                    print(f"\r{number + 1}/{given.rounds}", end="", file=sys.stderr, flush=True)
                load.finish()
        except AssertionError:
            kept = Path(directory).with_name(Path(directory).name + "-failed")
            shutil.copytree(directory, kept, ignore_dangling_symlinks=True, ignore=shutil.ignore_patterns("etcd"))
            print(f"seed {seed}, after {done}; the data paths: {kept}")
            for member in pair.members:
                print(*(f"{member.name}: {line}" for line in member.log if "MIRROR" in line), sep="\n")
            raise
        finally:
            pair.close()
            etcd.stop()
    print(f"\nseed {seed}: " + ", ".join(f"{count} {fault}" for fault, count in sorted(done.items())))
    print(f"{len(load.acknowledged):,} acknowledged, {len(load.lost)} lost, {len(load.unexpected)} unexpected")
    return 1 if load.lost or load.unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
