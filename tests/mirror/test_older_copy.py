"""A member whose data path was replaced by an older copy of it does not lead, and gets the files of the other one."""

from __future__ import annotations

import asyncio
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.arbiters import arbiter_at
from tests.harness.pair import Pair
from tests.harness.waiting import DEADLINE_S, wait_until

if TYPE_CHECKING:
    from tests.mirror.conftest import StartPair

STAMPS = 2
"""A copy is recognised once the record has got as many stamps since."""


def stamp(pair: Pair) -> str:
    """The stamp of the pair's record."""
    [arbiter] = [word.removeprefix("--arbiter=") for word in pair.members[0].command if word.startswith("--arbiter=")]
    record = asyncio.run(arbiter_at(arbiter, timeout_s=DEADLINE_S, access=ArbiterAccess()).read()).record
    assert record is not None
    return record.stamp


@pytest.mark.parametrize("whose", ["the primary's", "the follower's"])
def test_an_older_copy_of_a_data_path_does_not_lead(whose: str, start_pair: StartPair) -> None:
    """Both members are in sync and lost at once, and the one with the copy starts first."""
    pair = start_pair(lease="5s")
    primary = pair.wait_for_primary()
    restored = primary if whose == "the primary's" else pair.other(primary)
    other = pair.other(restored)
    primary.post("/pub", b"before the copy", topic="t")
    copy = restored.data_path.with_name("copy")
    shutil.copytree(restored.data_path, copy)
    for _ in range(STAMPS):
        last = stamp(pair)
        wait_until(lambda last=last: stamp(pair) != last, "the record gets another stamp")
    primary.post("/pub", b"since the copy", topic="t")
    pair.wait_until_in_sync()
    primary.end(signal.SIGKILL)  # first: it would record that it is alone
    pair.other(primary).end(signal.SIGKILL)
    shutil.rmtree(restored.data_path)
    copy.rename(restored.data_path)

    restored.start()
    restored.wait_for_log("MIRROR: cannot lead: its data path, or the arbiter's record, is an older copy")
    other.start()
    wait_until(lambda: pair.primary is other, "the other member leads")
    assert pair.wait_for_primary() is other
    assert other.topics()["t"]["depth"] == 2
    pair.wait_until_in_sync()
    wait_until(lambda: other.request("POST", "/mirror/handover").status == 200, "it is in sync and is to lead")
    wait_until(lambda: pair.primary is restored, "the member with the copy leads")
    assert pair.wait_for_primary() is restored
    assert restored.topics()["t"]["depth"] == 2
