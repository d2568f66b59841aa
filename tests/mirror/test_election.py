"""The rules of the election: who asks for the lead, how long a lease counts, and how a recovery keeps or regains it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerd.mirror.election import (
    LEASES_TO_RECOVER,
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
from brokerd.mirror.pair import DURABLE_BOOT, PairRecord
from tests.mirror.state_machines import BOTH, RECORD

LEASE = 10.0
LED = BOTH.led_by("b", "boot-b")
"""The record of the term that member b has won."""


def election(
    member: str = "b",
    boot: str = "boot-b",
    *,
    pair: str = "p",
    has_data: bool = True,
    epoch: int = 3,
    has_stood_back: bool = False,
) -> Election:
    new = PairRecord(pair="new", node_id=7, epoch=0, leader="")
    return Election(
        member, boot, LEASE, new, pair=pair, has_data=has_data, epoch=epoch, now=0.0, has_stood_back=has_stood_back
    )


def decisions(subject: Election) -> list[object]:
    found, subject.decisions = list(subject.decisions), []
    return found


def winner() -> Election:
    """A member that has won the lead at 0 s and recovers its data path."""
    subject = election()
    subject.read_answered(ArbiterAnswer(BOTH, 5, None), 0.0)
    subject.won(LED, 6, sent_at=0.0)
    assert [type(each) for each in decisions(subject)] == [Campaign, Lead]
    return subject


def primary() -> Election:
    subject = winner()
    subject.recovered(0.1)
    return subject


def test_a_member_in_sync_asks_for_the_lead_when_nobody_has_it() -> None:
    subject = election()
    subject.tick(0.0)
    assert decisions(subject) == [ReadArbiter()]
    subject.read_answered(ArbiterAnswer(BOTH, 5, "a"), 0.1)
    assert decisions(subject) == []
    subject.read_answered(ArbiterAnswer(BOTH, 5, None), 0.2)
    [campaign] = decisions(subject)
    assert campaign == Campaign(BOTH.led_by("b", "boot-b"), 5)
    assert campaign.record.epoch == 4
    assert campaign.record.in_sync == {"a": "boot-a", "b": "boot-b"}  # until it has recovered


@pytest.mark.parametrize(
    ("record", "boot", "why"),
    [
        (RECORD, "boot-b", "it is not in sync; a may lead"),
        (BOTH, "boot-b2", "its machine was restarted since it was in sync"),
        (BOTH.with_stamp("s9"), "boot-b", "its data path, or the arbiter's record, is an older copy"),
    ],
)
def test_a_member_that_may_lack_something_does_not_ask(record: PairRecord, boot: str, why: str) -> None:
    subject = election(boot=boot)
    subject.read_answered(ArbiterAnswer(record, 5, None), 0.0)
    assert decisions(subject) == []
    assert subject.waits_because == why


def test_a_restart_of_the_machine_does_not_matter_if_every_message_was_synced() -> None:
    subject = election(boot=DURABLE_BOOT)
    subject.read_answered(ArbiterAnswer(RECORD.with_in_sync({"b": DURABLE_BOOT}), 5, None), 0.0)
    assert [type(each) for each in decisions(subject)] == [Campaign]


def test_a_member_that_lacks_changes_leads_if_no_other_one_has_led_for_two_leases() -> None:
    """Unless it has joined another one meanwhile, and lacks nothing any more."""
    subject = election(has_stood_back=True)
    subject.read_answered(ArbiterAnswer(BOTH, 5, None), 1.9 * LEASE)
    assert decisions(subject) == []
    subject.read_answered(ArbiterAnswer(BOTH, 5, None), 2 * LEASE)
    assert [type(each) for each in decisions(subject)] == [Campaign]
    joined = election(has_stood_back=True)
    joined.joined("p", 4)
    joined.read_answered(ArbiterAnswer(BOTH, 5, None), 0.1 * LEASE)
    assert [type(each) for each in decisions(joined)] == [Campaign]


def test_a_winner_that_has_not_served_yet_is_left_time_to_recover() -> None:
    """Its lease may end during a long recovery. The time doubles with each term that nobody has served."""
    won = BOTH.led_by("a", "boot-a")
    for record, leases in ((won, LEASES_TO_RECOVER), (won.led_by("a", "boot-a"), 2 * LEASES_TO_RECOVER)):
        subject = election()
        for at in (1.0, leases * LEASE):
            subject.read_answered(ArbiterAnswer(record, 5, None), at)
            assert decisions(subject) == []
            assert subject.waits_because == "member a has won the lead, and may be recovering"
        subject.read_answered(ArbiterAnswer(record, 5, None), leases * LEASE + 1.0)
        assert decisions(subject) == [Campaign(record.led_by("b", "boot-b"), 5)]


def test_a_member_that_was_killed_while_it_recovered_goes_on_at_once() -> None:
    record = BOTH.led_by("b", "boot-b")
    subject = election()
    subject.read_answered(ArbiterAnswer(record, 5, None), 0.0)
    assert decisions(subject) == [Campaign(record.led_by("b", "boot-b"), 5)]


def test_a_lead_that_was_given_back_is_taken_at_once() -> None:
    record = BOTH.led_by("a", "boot-a").with_in_sync({"b": "boot-b"})
    subject = election()
    subject.read_answered(ArbiterAnswer(record, 5, None), 0.0)
    assert [type(each) for each in decisions(subject)] == [Campaign]


def test_an_empty_member_lets_one_with_messages_found_the_pair() -> None:
    subject = election(pair="", has_data=False, epoch=0)
    subject.read_answered(ArbiterAnswer(None, 0, None), LEASE)
    assert decisions(subject) == []
    subject.read_answered(ArbiterAnswer(None, 0, None), 2 * LEASE)
    [campaign] = decisions(subject)
    assert isinstance(campaign, Campaign)
    assert (campaign.record.pair, campaign.record.epoch) == ("new", 1)


def test_a_pair_whose_record_is_gone_is_not_founded_again() -> None:
    subject = election()
    subject.read_answered(ArbiterAnswer(None, 0, None), 9 * LEASE)
    assert decisions(subject) == []
    assert subject.waits_because == "the arbiter has no record of its pair"


def test_a_record_of_another_pair_is_named() -> None:
    subject = election()
    subject.read_answered(ArbiterAnswer(replace(RECORD, pair="other"), 5, None), 9 * LEASE)
    assert decisions(subject) == []
    assert subject.waits_because == "the arbiter's record is that of another pair"


def test_a_member_that_founded_a_pair_without_an_answer_may_lead_it() -> None:
    subject = election(pair="", epoch=0)
    subject.read_answered(ArbiterAnswer(None, 0, None), 0.0)
    [campaign] = decisions(subject)
    assert isinstance(campaign, Campaign)
    subject.not_won()
    subject.read_answered(ArbiterAnswer(campaign.record, 1, None), LEASE)
    assert [type(each) for each in decisions(subject)] == [Campaign]


def test_a_lease_counts_from_before_the_request() -> None:
    subject = primary()
    assert subject.may_answer(8.9)
    assert not subject.may_answer(9.0)  # a tenth before the arbiter may end the lease
    subject.tick(3.0)
    assert decisions(subject) == [CheckDisk()]
    subject.disk_answered(4.0)
    assert decisions(subject) == [Renew(sent_at=4.0)]
    subject.renewed(True, 4.0)
    assert subject.may_answer(12.9)
    assert not subject.may_answer(13.0)


def test_a_disk_that_hangs_loses_the_lead() -> None:
    subject = primary()
    for now in (3.0, 6.0, 8.9):
        subject.tick(now)
    assert decisions(subject) == [CheckDisk()]
    subject.tick(9.0)
    assert decisions(subject) == [EndTerm("the lease could not be renewed in time")]
    subject.disk_answered(9.1)
    assert decisions(subject) == []


def test_a_lease_that_the_arbiter_has_ended_ends_the_term() -> None:
    subject = primary()
    subject.tick(3.0)
    subject.disk_answered(3.0)
    decisions(subject)
    subject.renewed(False, 3.0)
    assert decisions(subject) == [EndTerm("the arbiter has ended the lease")]
    assert not subject.may_answer(3.1)


def test_without_an_answer_the_lease_is_renewed_again() -> None:
    subject = primary()
    subject.tick(3.0)
    subject.disk_answered(3.0)
    subject.renewed(None, 3.0)
    decisions(subject)
    subject.tick(5.9)
    assert decisions(subject) == [CheckDisk()]


def test_a_recovery_that_takes_longer_than_the_lease_is_not_repeated() -> None:
    """Nobody has led since, so that the lead is taken again with what was recovered."""
    subject = winner()
    subject.tick(20.0)
    assert decisions(subject) == []  # it serves nobody, and cannot do anything else
    subject.recovered(25.0)
    assert subject.is_recovering
    subject.tick(25.0)
    assert decisions(subject) == [RegainLead(LED, 6)]
    subject.tick(25.1)
    assert decisions(subject) == []  # one request at a time
    subject.regained(7, 25.0, 26.0)
    assert not subject.is_recovering
    assert subject.may_answer(33.9)
    assert not subject.may_answer(34.0)


def test_a_lead_that_was_granted_too_late_is_asked_for_again() -> None:
    subject = winner()
    subject.recovered(25.0)
    subject.tick(25.0)
    decisions(subject)
    subject.regained(7, 25.0, 34.0)
    assert subject.is_recovering
    subject.tick(34.0)
    assert decisions(subject) == [RegainLead(LED, 7)]


@pytest.mark.parametrize(
    ("found", "asks_again_with"),
    [(None, 6), (ArbiterAnswer(LED, 6, None), 6), (ArbiterAnswer(LED, 8, "b"), 8)],
    ids=["no answer", "nobody leads", "its own request whose answer was lost"],
)
def test_a_lead_that_was_not_regained_is_asked_for_again(found: ArbiterAnswer | None, asks_again_with: int) -> None:
    subject = winner()
    subject.recovered(25.0)
    subject.tick(25.0)
    decisions(subject)
    subject.not_regained(found)
    subject.tick(25.1)
    assert decisions(subject) == [RegainLead(LED, asks_again_with)]


@pytest.mark.parametrize(
    "found",
    [
        ArbiterAnswer(LED.led_by("a", "boot-a"), 7, "a"),
        ArbiterAnswer(LED.led_by("a", "boot-a"), 7, None),
        ArbiterAnswer(LED, 6, "a"),
    ],
    ids=["another one leads", "another one has led", "another one has taken the key"],
)
def test_a_lead_that_another_member_has_taken_is_not_regained(found: ArbiterAnswer) -> None:
    subject = winner()
    subject.recovered(25.0)
    subject.tick(25.0)
    decisions(subject)
    subject.not_regained(found)
    assert [type(each) for each in decisions(subject)] == [EndTerm]
    assert not subject.is_recovering


def test_a_member_that_did_not_win_follows() -> None:
    subject = election()
    subject.read_answered(ArbiterAnswer(BOTH, 5, None), 0.0)
    decisions(subject)
    subject.not_won()
    subject.won(BOTH, 6, 0.0)  # an answer that came too late
    assert decisions(subject) == []
    assert not subject.may_answer(0.0)
