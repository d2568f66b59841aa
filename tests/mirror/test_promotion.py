"""``nsq promote``: a member that may lack messages leads, if somebody accepts the loss."""

from __future__ import annotations

import asyncio
import signal
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from brokerd.mirror.pair import PairRecord
from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.arbiters import arbiter_at
from brokerd.promotion import main
from brokerd.replica import MirrorState
from tests.harness.pair import Member, Pair
from tests.harness.waiting import DEADLINE_S, wait_until

if TYPE_CHECKING:
    from tests.harness.etcd import EtcdServer
    from tests.mirror.conftest import StartPair


NODE_ID = "--node-id=77"


def promote(member: Member, arbiter: str, *flags: str) -> int:
    return main([f"--data-path={member.data_path}", f"--arbiter={arbiter}", *flags])


def arbiter_of(pair: Pair) -> str:
    [flag] = [word for word in pair.members[0].command if word.startswith("--arbiter=")]
    return flag.removeprefix("--arbiter=")


def test_a_member_that_was_not_in_sync_leads_once_the_loss_is_accepted(
    start_pair: StartPair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = start_pair(lease="8s")
    arbiter = arbiter_of(pair)
    lost = pair.wait_for_primary()
    kept = pair.other(lost)
    lost.post("/pub", b"both have it", topic="t")
    kept.end(signal.SIGKILL)
    wait_until(lambda: lost.request("GET", "/ping").text == "OK - under_replicated", "the primary is alone")
    lost.post("/pub", b"only one has it", topic="t")
    assert promote(kept, arbiter, "--accept-loss") == 1
    assert capsys.readouterr().err.endswith(" leads\n")
    lost.end(signal.SIGKILL)
    kept.start()
    kept.wait_for_log("MIRROR: cannot lead: it is not in sync")
    assert promote(kept, arbiter) == 1
    assert "--accept-loss" in capsys.readouterr().err
    assert promote(kept, arbiter, "--accept-loss") == 0
    assert capsys.readouterr().out.endswith("may lead\n")
    assert pair.wait_for_primary() is kept
    assert kept.topics()["t"]["depth"] == 1
    lost.start()
    pair.wait_until_in_sync()
    assert lost.topics()["t"]["depth"] == 1


def test_a_pair_whose_record_is_lost_leads_again_once_the_loss_is_accepted(
    start_pair: StartPair, etcd_server: EtcdServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log says why nobody leads, and the pair keeps its messages and its node id."""
    pair = start_pair(NODE_ID, lease="5s")
    arbiter = arbiter_of(pair)
    primary = pair.wait_for_primary()
    primary.post("/pub", b"both have it", topic="t")
    for member in pair.members:
        member.end(signal.SIGKILL)
    name = arbiter.rpartition("/")[2]
    keys = {"key": f"/nsq/{name}/", "range_end": f"/nsq/{name}0"}
    etcd_server.post("/v3/kv/deleterange", **{each: b64encode(key.encode()).decode() for each, key in keys.items()})
    for member in pair.members:
        member.command.remove(NODE_ID)
        member.start()
        member.wait_for_log("MIRROR: cannot lead: the arbiter has no record of its pair")
    assert promote(primary, arbiter) == 1
    assert "the arbiter has no record of the pair" in capsys.readouterr().err
    assert promote(primary, arbiter, "--accept-loss") == 0
    told = capsys.readouterr().out
    assert told.startswith("the arbiter had no record of the pair, and has a new one now; member ")
    assert pair.wait_for_primary() is primary
    pair.wait_until_in_sync()
    assert primary.topics()["t"]["depth"] == 1
    assert record_of(arbiter).node_id == 77


def test_a_pair_whose_arbiter_was_restored_from_a_backup_leads_again_once_the_loss_is_accepted(
    start_pair: StartPair, etcd_server: EtcdServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record is of an earlier term than the members have seen, and has an earlier stamp."""
    pair = start_pair(lease="5s")
    arbiter = arbiter_of(pair)
    before = record_of(arbiter)
    for _ in range(2):
        hand_over(pair)
    primary = pair.wait_for_primary()
    pair.wait_until_in_sync()
    primary.post("/pub", b"x", topic="t")
    for member in (primary, pair.other(primary)):
        member.end(signal.SIGKILL)
    seen = max(MirrorState.read(member.data_path).epoch for member in pair.members)
    assert seen > before.epoch
    old = replace(before, in_sync=dict.fromkeys(before.in_sync, MirrorState.read(primary.data_path).boot))
    key = b64encode(f"/nsq/{arbiter.rpartition('/')[2]}/record".encode()).decode()
    etcd_server.post("/v3/kv/put", key=key, value=b64encode(old.to_bytes()).decode())
    primary.start()
    primary.wait_for_log("MIRROR: cannot lead: its data path, or the arbiter's record, is an older copy")
    assert promote(primary, arbiter, "--accept-loss") == 0
    assert pair.wait_for_primary() is primary
    assert record_of(arbiter).epoch > seen
    pair.other(primary).start()
    pair.wait_until_in_sync()
    assert primary.topics()["t"]["depth"] == 1
    assert not [line for line in primary.log if "has seen term" in line]


def hand_over(pair: Pair) -> None:
    """Let the other member lead."""
    primary = pair.wait_for_primary()
    pair.wait_until_in_sync()
    wait_until(lambda: primary.request("POST", "/mirror/handover").status == 200, "the follower is to lead")
    wait_until(lambda: pair.primary is pair.other(primary), "the other member leads")


def record_of(arbiter: str) -> PairRecord:
    """The record that the arbiter has."""
    found = asyncio.run(arbiter_at(arbiter, timeout_s=DEADLINE_S, access=ArbiterAccess()).read())
    assert found.record is not None
    return found.record


def test_a_member_in_sync_needs_no_promotion(start_pair: StartPair, capsys: pytest.CaptureFixture[str]) -> None:
    pair = start_pair(lease="5s")
    arbiter = arbiter_of(pair)
    pair.wait_until_in_sync()
    primary = pair.wait_for_primary()
    for member in pair.members:
        member.signal(signal.SIGSTOP)

    def refused() -> str:
        assert promote(primary, arbiter, "--accept-loss") == 1
        return capsys.readouterr().err

    wait_until(lambda: "is in sync and leads by itself" in refused(), "the lease has ended")
    for member in pair.members:
        member.signal(signal.SIGCONT)


@pytest.mark.parametrize("arbiter", ["etcd://127.0.0.1:1", "etcd://127.0.0.1:1/my orders", "consul://127.0.0.1:1/x"])
def test_a_wrong_arbiter_is_a_usage_error(tmp_path: Path, arbiter: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([f"--data-path={tmp_path}", f"--arbiter={arbiter}"])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"nsq promote: --arbiter: '{arbiter}' is not etcd://")
    assert said.endswith("; at etcd, it has the characters .a-zA-Z0-9_-\n")


def test_a_data_path_of_no_pair_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--data-path={tmp_path}", "--arbiter=etcd://127.0.0.1:1/x", "--accept-loss"]) == 1
    assert "is not of a pair" in capsys.readouterr().err
