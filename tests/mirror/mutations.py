"""Rules of the mirror, each left out: stories must go wrong without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final
from unittest.mock import patch

from brokerd.mirror.election import Election, Role
from brokerd.mirror.leader import Leader, WriteRecord
from brokerd.mirror.pair import PairRecord
from tests.mirror.world import LEASE, Arbiter

Mutation = Callable[[], AbstractContextManager[None]]


@contextmanager
def ok_before_the_follower_applied() -> Iterator[None]:
    """OK leaves as soon as the primary has the messages."""
    with patch.object(Leader, "acknowledged", property(lambda self: self.group, lambda self, value: None), create=True):
        yield


@contextmanager
def ok_before_the_arbiter_knows_that_the_follower_left() -> Iterator[None]:
    """A follower whose link is closed is not waited for, although the arbiter may let it lead."""
    settle = Leader._settle

    def settle_at_once(self: Leader) -> None:
        self._believed = {self.member} | {link.member for link in self._links.values() if link.is_caught_up}
        settle(self)

    with patch.object(Leader, "_settle", settle_at_once):
        yield


@contextmanager
def a_new_follower_is_not_waited_for_before_the_answer() -> Iterator[None]:
    """A follower is required only once the arbiter has answered that it is in sync."""
    review = Leader._review

    def review_late(self: Leader) -> None:
        believed = set(self._believed)
        for link in self._links.values():
            link.is_awaited = False
        review(self)
        for link in self._links.values():
            link.is_awaited = False
        if any(isinstance(effect, WriteRecord) for effect in self.effects):
            self._believed = believed

    with patch.object(Leader, "_review", review_late):
        yield


@contextmanager
def a_new_follower_lacks_what_was_acknowledged_without_it() -> Iterator[None]:
    """A follower is in sync by the record as soon as nothing is held back for it, though it has not applied it."""
    review = Leader._review

    def review_early(self: Leader) -> None:
        acknowledged, self.acknowledged = self.acknowledged, -1
        review(self)
        self.acknowledged = max(acknowledged, self.acknowledged)

    with patch.object(Leader, "_review", review_early):
        yield


@contextmanager
def a_lease_counts_from_the_answer() -> Iterator[None]:
    """A renewed lease counts from when the arbiter's answer arrived."""
    with patch.object(Election, "_end_of_lease", lambda self, sent_at: world_now(self) + LEASE):
        yield


def world_now(election: Election) -> float:
    return election.clock()  # type: ignore[attr-defined, no-any-return]


@contextmanager
def a_paused_primary_answers() -> Iterator[None]:
    """Whether the lease has expired is not checked when an OK leaves."""
    with patch.object(Election, "may_answer", lambda self, now: self.role is Role.PRIMARY):
        yield


@contextmanager
def whoever_wins_leads() -> Iterator[None]:
    """A member leads although it is not in sync."""
    with patch.object(PairRecord, "may_lead", lambda self, member, boot, stamps: True):
        yield


@contextmanager
def a_machine_that_was_restarted_leads() -> Iterator[None]:
    """A member leads although its machine was restarted since it was in sync."""
    with patch.object(PairRecord, "may_lead", lambda self, member, boot, stamps: member in self.in_sync):
        yield


@contextmanager
def an_older_copy_leads() -> Iterator[None]:
    """A member leads although its data path was replaced by an older copy since it was in sync."""
    with patch.object(PairRecord, "may_lead", lambda self, member, boot, stamps: self.in_sync.get(member) == boot):
        yield


def stamp_of_the_primary(leader: Leader, followers: object) -> str:
    return leader._stamps.next if leader._stamps is not None else leader.record.stamp


@contextmanager
def the_record_has_a_stamp_before_the_follower_stored_it() -> Iterator[None]:
    """A stamp is recorded once the primary has stored it."""
    with patch.object(Leader, "_stamp_of", stamp_of_the_primary):
        yield


@contextmanager
def a_follower_is_in_sync_before_it_has_the_stamps() -> Iterator[None]:
    """Whether it has stored them is not checked."""
    with patch.object(Leader, "_has_stamps", lambda self, link: True):
        yield


@contextmanager
def records_are_written_whatever_the_revision() -> Iterator[None]:
    """A record that arrives late replaces a later one."""

    def write(self: Arbiter, now: float, lease: int, record: PairRecord, revision: int) -> int | None:
        self.expire(now)
        if self.holder is None or self.holder[1] != lease:
            return None
        self.record, self.revision = record, self.revision + 1
        return self.revision

    with patch.object(Arbiter, "write", write):
        yield


@contextmanager
def records_are_written_by_whoever_led() -> Iterator[None]:
    """A record is written although another member holds the election key."""

    def write(self: Arbiter, now: float, lease: int, record: PairRecord, revision: int) -> int | None:
        self.record, self.revision = record, self.revision + 1
        return self.revision

    with patch.object(Arbiter, "write", write):
        yield


@contextmanager
def commits_are_not_checked() -> Iterator[None]:
    """A follower acknowledges what its disk has altered."""
    with patch("brokerd.mirror.follower.check_commits", lambda write, read: None):
        yield


@contextmanager
def actions_are_sent_before_the_copy() -> Iterator[None]:
    """What happened since the cut is sent while the copy is not."""
    applied = Leader._applied

    def applied_and_pumped(self: Leader, link: object, frame: object, now: float) -> None:
        applied(self, link, frame, now)  # type: ignore[arg-type]
        self._pump(link)  # type: ignore[arg-type]

    with patch.object(Leader, "_applied", applied_and_pumped):
        yield


@contextmanager
def a_file_that_cannot_be_read_is_left_out() -> Iterator[None]:
    """What was taken for the frame is lost, and the follower gets what comes after it."""

    def pump(self: Leader, link: object) -> None:
        with suppress(OSError):
            self._send_waiting(link)  # type: ignore[arg-type]

    with patch.object(Leader, "_pump", pump):
        yield


MUTATIONS: Final[dict[Mutation, int]] = {
    ok_before_the_follower_applied: 0,
    ok_before_the_arbiter_knows_that_the_follower_left: 68,
    a_new_follower_is_not_waited_for_before_the_answer: 263,
    a_new_follower_lacks_what_was_acknowledged_without_it: 250,
    a_lease_counts_from_the_answer: 368,
    a_paused_primary_answers: 90,
    whoever_wins_leads: 11,
    a_machine_that_was_restarted_leads: 19,
    an_older_copy_leads: 3,
    the_record_has_a_stamp_before_the_follower_stored_it: 973,
    a_follower_is_in_sync_before_it_has_the_stamps: 1897,
    records_are_written_whatever_the_revision: 1385,
    records_are_written_by_whoever_led: 794,
    commits_are_not_checked: 26,
    actions_are_sent_before_the_copy: 430,
    a_file_that_cannot_be_read_is_left_out: 6,
}
"""Each with the seed of a story that goes wrong.

Four rules are missing, because no story is known that goes wrong without them: a follower refuses an earlier term; a
candidate stops following; a member that is in sync and joins anew changes no file before the arbiter knows; a member
goes on with a recovery that took longer than its lease. Tests of ``test_follower.py``, ``test_leader.py`` and
``test_election.py`` fail without the first, the third and the fourth.
"""
