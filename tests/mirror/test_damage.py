"""Damage on the disk of one member: the other one leads, and the damaged one gets its files."""

from __future__ import annotations

import re
import shutil
import signal
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from brokerd.replica import MirrorState
from tests.harness.command import nsq
from tests.harness.etcd import EtcdServer
from tests.harness.pair import LEADS, LONG_LEASE, MAY_NOT_LEAD, Member, Pair
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.mirror.conftest import StartPair

CHANNEL = b"the_channel"
TOPICS = 100
COUNT = 20
BODY = b"message body %d"


def damage_checkpoints(member: Member) -> None:
    """Overwrite all checkpoints, so that a broker does not know which topics it has."""
    checkpoints = [*member.data_path.glob("checkpoint*")]
    assert checkpoints
    for path in checkpoints:
        path.write_bytes(b"\xff" * path.stat().st_size)


def remove_log(member: Member) -> None:
    """Remove the messages of a topic."""
    [path] = member.data_path.glob("topics/t.*/*.log")
    path.unlink()


def change_a_body(member: Member) -> None:
    """Overwrite a part of a message."""
    [path] = member.data_path.glob("topics/t.*/*.log")
    content = path.read_bytes()
    path.write_bytes(content.replace(BODY % 7, b"another body 7", 1))


def remove_directory(member: Member) -> None:
    """Remove all files of a topic."""
    [path] = member.data_path.glob("topics/t.*")
    shutil.rmtree(path)


def end_lease(pair: Pair, etcd: EtcdServer) -> None:
    """End the lead of a member that was killed at once, and not with its lease."""
    key = f"/nsq/{pair.members[0].data_path.parent.name}/leader"
    etcd.post("/v3/kv/deleterange", key=b64encode(key.encode()).decode())


def lose_both(pair: Pair, etcd: EtcdServer) -> tuple[Member, Member]:
    """Kill both members once they are in sync, and end the lead. Returns the primary and the other member."""
    primary = pair.wait_for_primary()
    pair.wait_until_in_sync()
    primary.end(signal.SIGKILL)  # first: it would record that it is alone
    pair.other(primary).end(signal.SIGKILL)
    end_lease(pair, etcd)
    return primary, pair.other(primary)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damage_checkpoints, "its data path cannot be recovered"),
        (remove_log, "its data path is damaged: 20 messages are lost"),
        (change_a_body, "its data path is damaged: 1 message is lost"),
        (remove_directory, r"its data path is damaged: \S+/topics/t.0 is missing"),
    ],
)
def test_a_damaged_member_lets_the_other_lead_and_gets_its_files(
    damage: Callable[[Member], None], says: str, start_pair: StartPair, etcd_server: EtcdServer
) -> None:
    """It wins the lead, as both are in sync and it starts first. It deletes nothing, and acknowledges nothing."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    for number in range(COUNT):
        primary.post("/pub", BODY % number, topic="t")
    damaged, other = lose_both(pair, etcd_server)
    damage(damaged)
    damaged.start()
    wait_until(lambda: any(re.search(says, line) for line in damaged.log), "the member gives back the lead")
    wait_until(lambda: any(MAY_NOT_LEAD in line for line in damaged.log), "the member waits for the other one")
    assert damage is remove_directory or [*damaged.data_path.glob("topics/t.*")]

    other.start()
    wait_until(lambda: pair.primary is other, "the other member leads")
    assert pair.wait_for_primary() is other
    assert other.topics()["t"]["depth"] == COUNT
    pair.wait_until_in_sync()
    wait_until(lambda: other.request("POST", "/mirror/handover").status == 200, "it is in sync and is to lead")
    wait_until(lambda: pair.primary is damaged, "the member that was damaged leads")
    assert pair.wait_for_primary() is damaged
    assert damaged.topics()["t"]["depth"] == COUNT


def test_a_damaged_member_that_is_killed_before_it_gives_back_the_lead_does_not_keep_it(
    start_pair: StartPair, etcd_server: EtcdServer
) -> None:
    """It has won, and recovers. Its many topics make the recovery longer."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    for number in range(COUNT):
        primary.post("/pub", BODY % number, topic="t")
    for number in range(TOPICS):
        primary.post("/topic/create", topic=f"t{number}")
    damaged, other = lose_both(pair, etcd_server)
    change_a_body(damaged)
    damaged.start()
    wait_until(lambda: any(LEADS in line for line in damaged.log), "the member wins the lead")
    damaged.end(signal.SIGKILL)
    end_lease(pair, etcd_server)
    damaged.start()
    texts = ("its data path is damaged", MAY_NOT_LEAD)  # the second if it was killed too late
    wait_until(lambda: any(text in line for text in texts for line in damaged.log), "it gives back the lead")
    other.start()
    wait_until(lambda: pair.primary is other, "the other member leads")
    assert pair.wait_for_primary() is other
    assert other.topics()["t"]["depth"] == COUNT


def damage_journal(member: Member) -> None:
    """Overwrite a part of a change that the journal has."""
    [path] = member.data_path.glob("journal.*")
    content = path.read_bytes()
    assert content.count(CHANNEL) == 1
    path.write_bytes(content.replace(CHANNEL, b"\0" * len(CHANNEL)))


def lose_both_and_a_change(pair: Pair, etcd: EtcdServer) -> tuple[Member, Member]:
    """Kill a pair in sync with a channel, and damage the journal of the primary. Returns it and the other member."""
    primary = pair.wait_for_primary()
    primary.post("/topic/create", topic="t")
    primary.post("/channel/create", topic="t", channel=CHANNEL.decode())
    primary.post("/topic/create", topic="later")  # what is damaged is not the last change
    damaged, other = lose_both(pair, etcd)
    damage_journal(damaged)
    return damaged, other


def wait_until_it_stands_back(damaged: Member) -> None:
    said = "its data path is damaged"
    wait_until(lambda: any(said in line for line in damaged.log), "the member gives back the lead")


def test_a_member_whose_journal_is_damaged_lets_the_other_lead(start_pair: StartPair, etcd_server: EtcdServer) -> None:
    """A change is missing, no message. The damaged member starts first."""
    pair = start_pair(lease=LONG_LEASE)
    damaged, other = lose_both_and_a_change(pair, etcd_server)
    damaged.start()
    wait_until_it_stands_back(damaged)
    other.start()
    wait_until(lambda: pair.primary is other, "the other member leads")
    assert pair.wait_for_primary() is other
    pair.wait_until_in_sync()
    wait_until(lambda: other.request("POST", "/mirror/handover").status == 200, "it is in sync and is to lead")
    wait_until(lambda: pair.primary is damaged, "the member that was damaged leads")
    assert pair.wait_for_primary() is damaged
    assert [channel["channel_name"] for channel in damaged.topics()["t"]["channels"]] == [CHANNEL.decode()]


def test_a_member_whose_journal_is_damaged_leads_if_no_other_does(
    start_pair: StartPair, etcd_server: EtcdServer
) -> None:
    """Once it has led, it waits for nobody when it starts again."""
    pair = start_pair(lease="3s")
    damaged, _ = lose_both_and_a_change(pair, etcd_server)
    damaged.start()
    wait_until_it_stands_back(damaged)
    assert pair.wait_for_primary() is damaged
    assert set(damaged.topics()) == {"t", "later"}
    assert not MirrorState.read(damaged.data_path).has_stood_back


def test_a_member_that_was_repaired_gets_the_files_of_the_other_one(
    start_pair: StartPair, etcd_server: EtcdServer
) -> None:
    """The repair leaves out what was damaged, and nothing shows it any more. The member starts first, and waits."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    for number in range(COUNT):
        primary.post("/pub", BODY % number, topic="t")
    repaired, other = lose_both(pair, etcd_server)
    change_a_body(repaired)
    repair = nsq("repair", "--rebuild", str(repaired.data_path))
    assert "damage:" in repair.stdout
    assert "it counts as a new member" in repair.stdout
    repaired.start()
    wait_until(lambda: any(MAY_NOT_LEAD in line for line in repaired.log), "the member waits for the other one")
    other.start()
    wait_until(lambda: pair.primary is other, "the other member leads")
    assert pair.wait_for_primary() is other
    assert other.topics()["t"]["depth"] == COUNT
    pair.wait_until_in_sync()
    other.end(signal.SIGKILL)
    end_lease(pair, etcd_server)
    wait_until(lambda: pair.primary is repaired, "the repaired member leads")
    assert pair.wait_for_primary() is repaired
    assert repaired.topics()["t"]["depth"] == COUNT
