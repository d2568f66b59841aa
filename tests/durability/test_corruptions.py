"""A data folder with random damage: the node starts, reports the loss, and delivers all other messages unchanged.

``CORRUPTIONS`` is the number of cases, ``CORRUPTION_SEED`` the seed of the first; each next case has the next seed.
With ``CORRUPTION_RAISE``, the first failure ends the test, with its traceback.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
from pathlib import Path
from random import Random

import pytest

import brokerd.journal.journal as journal_module
import brokerd.log.log as log_module
from tests.durability.corruption import (
    AFTER,
    CHANNELS,
    TOPICS,
    Damage,
    Ledger,
    damage,
    damage_headers,
    damage_twice,
    older_copy,
)
from tests.failures import tally

CASES = int(os.environ.get("CORRUPTIONS", "100"))
LOST = re.compile(r"TOPIC\((\w+)\): ([\d,]+) (?:message is|messages are) lost: numbers \d+ to \d+ are \w+")
SEED = int(os.environ.get("CORRUPTION_SEED") or secrets.randbelow(10**9))


class Losses(logging.Handler):
    """Adds up the losses in the log, by topic."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.counts: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if found := LOST.match(record.getMessage()):
            self.counts[found[1]] = self.counts.get(found[1], 0) + int(found[2].replace(",", ""))


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 8192)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", 16384)
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 262_144)


@pytest.mark.timeout(180 + 2 * CASES)
@pytest.mark.parametrize("where", ["log", "state", "index and log", "headers"])
def test_any_damage_is_reported_and_loses_only_what_it_hit(where: str, tmp_path: Path) -> None:
    """Losses are logged and counted, no altered message is delivered, the others are delivered and finished, ids stay
    unique. Damaged headers cost no message, and no message gets those of another one."""
    cases = CASES // 4 if where == "state" else CASES
    print(f"CORRUPTION_SEED={SEED} CORRUPTIONS={CASES}")
    failures = []
    for seed in range(SEED, SEED + cases):
        folder = tmp_path / str(seed)
        folder.mkdir()
        what: list[str] = []
        try:
            play(folder, Random(seed), what, where)
        except Exception as error:  # whatever it is, it is reported with the seed
            failures.append(f"CORRUPTION_SEED={seed}: {what}: {error!r}")
            if os.environ.get("CORRUPTION_RAISE"):
                raise
        for each in (folder, older_copy(folder)):
            shutil.rmtree(each, ignore_errors=True)
    lost = sum("are missing" in failure for failure in failures)
    tally.record(f"damage to {where}", tries=cases, lost=lost, unexpected=len(failures) - lost, seed=SEED)
    assert not failures, "\n".join([f"{len(failures)} of {cases}", *failures[:20]])


def play(folder: Path, chance: Random, what: list[str], where: str) -> None:
    ledger = Ledger(folder, chance)
    ledger.write()
    if where == "index and log":
        done = damage_twice(folder, chance)
    elif where == "headers":
        done = damage_headers(folder, chance)
    else:
        done = damage(folder, chance, state_files=where == "state")
    what.append(done.what.replace(str(folder), ""))
    losses = Losses()
    logger = logging.getLogger("brokerd")
    logger.addHandler(losses)
    try:
        ledger.node.open()
        for name in TOPICS:
            check_topic(ledger, name, done, losses)
    finally:
        logger.removeHandler(losses)
    assert ledger.node.broker.storage.lost_message_count == sum(losses.counts.values())
    ledger.node.kill()
    ledger.node.open()
    assert ledger.node.broker.storage.lost_message_count == 0, "what is lost is counted once"
    for topic in ledger.node.broker.topics.values():
        assert (topic.depth, [channel.depth for channel in topic.channels.values()]) == (0, [0] * len(topic.channels))
    ledger.node.broker.close()


def check_topic(ledger: Ledger, name: str, done: Damage, losses: Losses) -> None:
    account, topic = ledger.accounts[name], ledger.node.broker.topic(name)
    missing, everything, unnoticed = set[bytes](), set[bytes](), set[bytes]()
    unfinished = account.unfinished if CHANNELS[name] else {AFTER: account.published}
    forgotten = [channel for channel in unfinished if channel not in topic.channels]
    for channel in unfinished:
        topic.channel(channel)
    for channel, bodies in unfinished.items():
        got = ledger.drain(name, channel)
        came = [each.body for each in got]
        assert len(came) == len(set(came)), f"{name}/{channel}: a message came twice"
        altered = set(came) - account.published
        assert len(altered) <= int(done.twice), f"{name}/{channel}: an altered message came"  # no hash reveals it
        unnoticed |= altered
        for each in got:
            block = account.blocks.get(each.body, b"")
            is_right = each.header_block == block or (done.headers and not each.header_block)
            assert is_right or each.body in altered, f"{name}/{channel}: {each.header_block!r} came, not {block!r}"
        if not done.state:
            assert set(came) - altered <= bodies, f"{name}/{channel}: a finished message came again"
        account.ids |= {each.message_id for each in got}
        everything |= set(came)
        if channel not in forgotten:
            missing |= bodies - set(came)
    if len(forgotten) == len(unfinished):  # the first of them received the topic's backlog
        missing = set().union(*unfinished.values()) - everything
    counted = topic.lost_message_count
    assert counted == losses.counts.get(name, 0), f"{name}: {counted} are counted, {losses.counts} are logged"
    if done.state:
        assert not missing, f"{name}: {len(missing)} are missing, and no log is damaged"
    elif done.twice:
        known = len(missing & account.shown)
        reported = counted + len(unnoticed)
        assert known <= reported <= len(missing), (
            f"{name}: {len(missing)} are missing, {reported} counted, {known} known"
        )
    elif done.hides:
        known = len(missing & account.shown)
        assert known <= counted <= len(missing), f"{name}: {len(missing)} are missing, {counted} counted, {known} known"
    else:
        assert counted == len(missing), f"{name}: {len(missing)} are missing, {counted} are counted"
    topic.publish([b"one more"])
    (last,) = ledger.drain(name, next(iter(unfinished)))
    assert last.body == b"one more"
    assert last.message_id not in account.ids, f"{name}: id {last.message_id!r} is given a second time"
    for channel in list(unfinished)[1:]:
        ledger.drain(name, channel)
