"""A member's part in the election of the primary: its requests to the arbiter, and the time until which it may lead.

The arbiter keeps an *election key*, which disappears with the lease of the member that holds it, and the pair's record.
A lease that was granted or renewed counts from before the request was sent, on a clock that goes on while the machine
sleeps. It is renewed only after a small write to the data path has reached the disk: a member that cannot write, or
that was paused, loses the lead although its network works.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final, NamedTuple

from brokerd.mirror.pair import PairRecord
from nsqwire.units import Seconds

READS_IN_A_LEASE: Final = 10
MAX_READ_INTERVAL_S: Final = 1.0
RENEWALS_IN_A_LEASE: Final = 4
MARGIN: Final = 0.1
"""A member stops leading this part of a lease before the arbiter ends the lease."""
LEASES_BEFORE_FOUNDING: Final = 2
"""Number of leases that an empty member waits before it founds a pair, so that a member with messages founds it."""
LEASES_TO_RECOVER: Final = 4
"""Number of leases, from the end of a winner's lease, that the other member leaves it to recover. It doubles with each
term in a row that nobody has served, so that two long recoveries do not take the lead from each other for ever."""
MOST_DOUBLINGS: Final = 6
"""How often ``LEASES_TO_RECOVER`` doubles at most."""
LEASES_AFTER_STANDING_BACK: Final = 2
"""Number of leases in which a member that lacks changes lets the other one lead. Then it leads nevertheless."""


class ArbiterAnswer(NamedTuple):
    """The arbiter's answer to a read. ``record`` is None if there is no pair, ``leader`` is None if nobody leads."""

    record: PairRecord | None
    revision: int
    """The revision of the record; 0 if there is none."""
    leader: str | None


class ReadArbiter(NamedTuple):
    """Read the election key and the record, and call ``read_answered`` if the arbiter answers."""


class Campaign(NamedTuple):
    """Ask for the lead. First stop following, so that nothing is acknowledged from now on, and store the pair of this
    record with the data path, because the answer may be lost. Then have the arbiter write this record and grant the
    lead, if its record still has this revision and nobody leads. Call ``won`` or ``not_won``."""

    record: PairRecord
    revision: int


class CheckDisk(NamedTuple):
    """Write a little to the data path, sync it, and call ``disk_answered``."""


class Renew(NamedTuple):
    """Renew the lease, and call ``renewed`` with ``sent_at``."""

    sent_at: Seconds


class Lead(NamedTuple):
    """Recover the data path and lead the term of this record."""

    record: PairRecord
    revision: int


class RegainLead(NamedTuple):
    """Renew the lease. If it has ended, ask the arbiter for the lead again with the same record, if the record still
    has this revision and nobody leads. Call ``regained`` or ``not_regained``."""

    record: PairRecord
    revision: int


class EndTerm(NamedTuple):
    """Answer nobody from now on, and follow."""

    reason: str


Decision = ReadArbiter | Campaign | CheckDisk | Renew | Lead | RegainLead | EndTerm


class Role(Enum):
    """What a member does."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    """It has asked for the lead and waits for the answer."""
    PRIMARY = "primary"


class Election:
    """``lease`` is in seconds; ``boot`` is the boot id of the machine. ``new_record`` is that of a pair to found.

    ``epoch`` is the number of the last term that the member has seen. ``stamps`` are those of the data path.
    ``has_stood_back``: the member has won the lead, lacked changes, and given up the lead so that the other one leads.
    """

    def __init__(
        self,
        member: str,
        boot: str,
        lease: Seconds,
        new_record: PairRecord,
        *,
        pair: str,
        has_data: bool,
        epoch: int,
        now: Seconds,
        stamps: Collection[str] = (),
        has_stood_back: bool = False,
    ) -> None:
        self.member = member
        self.boot = boot
        self.stamps = stamps
        self.role = Role.FOLLOWER
        self.expires: Seconds = 0.0
        """When this member stops leading, unless the lease is renewed."""
        self.last_answer: ArbiterAnswer | None = None
        """The arbiter's last answer to a read; None until there is one."""
        self._last_answer_at: Seconds = now
        self.decisions: list[Decision] = []
        """What is to be done, in order. The caller takes them after each call."""
        self.pair = pair
        """The pair of the data path; empty if it was never that of a pair.

        While ``epoch`` is 0, the member has only tried to found the pair.
        """
        self.epoch = epoch
        self._lease = lease
        self._new_record = new_record
        self._has_data = has_data
        self._may_found_at = now if has_data else now + LEASES_BEFORE_FOUNDING * lease
        self._unserved_since: tuple[int, Seconds] | None = None
        """The last term whose lease ended before its winner served, and when this member saw that it had ended."""
        self._may_lead_at = now + LEASES_AFTER_STANDING_BACK * lease if has_stood_back else now
        self.is_recovering = False
        """True from a win until the member serves. Meanwhile it may regain a lease that has ended."""
        self._led: Lead | None = None
        self._is_regain_due = False
        self._asked_at: Seconds | None = None
        self._renewal_began: Seconds = now
        self._is_renewing = False

    def may_answer(self, now: Seconds) -> bool:
        """Return whether this member leads: an ``OK`` may leave only then."""
        return now < self.expires and self.role is Role.PRIMARY

    @property
    def waits_because(self) -> str | None:
        """Why this member may not lead although nobody does; None if it may, or if somebody does."""
        answer = self.last_answer
        if answer is None or answer.leader is not None:
            return None
        record = answer.record
        if record is None:
            return "the arbiter has no record of its pair" if self.epoch else None
        if self.pair and self.pair != record.pair:
            return "the arbiter's record is that of another pair"
        if record.may_lead(self.member, self.boot, self.stamps):
            must_wait = self._other_may_be_recovering(record)
            return f"member {record.leader} has won the lead, and may be recovering" if must_wait else None
        if record.may_lead(self.member, self.boot, {record.stamp}):
            return "its data path, or the arbiter's record, is an older copy"
        if self.member in record.in_sync:
            return "its machine was restarted since it was in sync"
        return f"it is not in sync; {', '.join(sorted(record.in_sync))} may lead"

    # -- inputs ---------------------------------------------------------------------------------------------------

    def tick(self, now: Seconds) -> None:
        """Decide what is due. To be called several times in a tenth of a lease."""
        if self.role is Role.PRIMARY and self.is_recovering:
            if self._is_regain_due and self._led is not None:
                self._is_regain_due = False
                self.decisions.append(RegainLead(*self._led))
        elif self.role is Role.PRIMARY:
            if now >= self.expires:
                self.end_term("the lease could not be renewed in time")
            elif not self._is_renewing and now - self._renewal_began >= self._lease / RENEWALS_IN_A_LEASE:
                self._is_renewing, self._renewal_began = True, now
                self.decisions.append(CheckDisk())
        elif self.role is Role.FOLLOWER and self._is_read_due(now):
            self._asked_at = now
            self.decisions.append(ReadArbiter())

    def _is_read_due(self, now: Seconds) -> bool:
        return self._asked_at is None or now - self._asked_at >= min(
            self._lease / READS_IN_A_LEASE, MAX_READ_INTERVAL_S
        )

    def read_answered(self, answer: ArbiterAnswer, now: Seconds) -> None:
        """The arbiter answered a read."""
        self.last_answer, record = answer, answer.record
        if answer.leader is not None or record is None or not record.unserved:
            self._unserved_since = None
        elif self._unserved_since is None or self._unserved_since[0] != record.epoch:
            self._unserved_since = record.epoch, now
        self._last_answer_at = now
        if not self.epoch and record is not None and record.pair != self.pair:
            self.pair = ""  # the other member has founded a pair
        if self.role is not Role.FOLLOWER or answer.leader is not None:
            return
        next_record = self._record_to_lead(record, now)
        if next_record is not None:
            self.role = Role.CANDIDATE
            self.decisions.append(Campaign(next_record, answer.revision))

    def _record_to_lead(self, record: PairRecord | None, now: Seconds) -> PairRecord | None:
        """The record with which this member would lead; None if it may not ask for the lead."""
        if record is None:
            if self.epoch or now < self._may_found_at:  # a pair whose record is gone is not founded again by itself
                return None
            self.pair = self._new_record.pair
            return self._new_record.led_by(self.member, self.boot)
        if self.pair != record.pair or not record.may_lead(self.member, self.boot, self.stamps):
            return None
        if now < self._may_lead_at or self._other_may_be_recovering(record):
            return None
        return record.led_by(self.member, self.boot)

    def _other_may_be_recovering(self, record: PairRecord) -> bool:
        """Return whether the other member has won the term of this record, and may still be recovering."""
        if self._unserved_since is None or record.leader == self.member:
            return False
        leases = LEASES_TO_RECOVER << min(record.unserved - 1, MOST_DOUBLINGS)
        return self._last_answer_at - self._unserved_since[1] < leases * self._lease

    def joined(self, pair: str, epoch: int) -> None:
        """The member has joined the primary of a term. Once it is in sync it lacks nothing, and need not stand back."""
        self.pair, self.epoch, self._may_lead_at = pair, epoch, 0.0

    def won(self, record: PairRecord, revision: int, sent_at: Seconds) -> None:
        """The arbiter granted the lead; the request for the lease was sent at ``sent_at``, or later."""
        if self.role is not Role.CANDIDATE:
            return
        self.role, self.pair, self.epoch = Role.PRIMARY, record.pair, record.epoch
        self.expires = self._end_of_lease(sent_at)
        self._renewal_began, self._is_renewing = sent_at, False
        self.is_recovering, self._is_regain_due, self._led = True, False, Lead(record, revision)
        self.decisions.append(self._led)

    def lease_lost(self) -> None:
        """The arbiter has ended the lease during the recovery, maybe before its time: another member may lead."""
        self.expires = 0.0

    def recovered(self, now: Seconds) -> None:
        """The data path is recovered: the member serves, or regains the lead first if the lease has ended meanwhile.

        It does not recover again: it has served nobody, so if nobody has led since, the result would be the same.
        """
        if self.may_answer(now):
            self.is_recovering = False
        else:
            self._is_regain_due = True

    def regained(self, revision: int, sent_at: Seconds, now: Seconds) -> None:
        """The arbiter renewed the lease, or granted another one; the request was sent at ``sent_at``, or later."""
        if self.role is not Role.PRIMARY or self._led is None:
            return
        self._led = Lead(self._led.record, revision)
        self.expires, self._renewal_began = self._end_of_lease(sent_at), sent_at
        self.recovered(now)

    def not_regained(self, answer: ArbiterAnswer | None) -> None:
        """The lead was not regained. ``answer`` is that of a read since; None: the arbiter did not answer.

        The member asks again, unless another one has won the lead.
        """
        if self.role is not Role.PRIMARY or self._led is None:
            return
        if answer is None:
            self._is_regain_due = True
        elif answer.record == self._led.record and answer.leader in (None, self.member):
            self._is_regain_due, self._led = True, Lead(answer.record, answer.revision)
        else:
            self.end_term("the lease ended during the recovery, and another member leads")

    def not_won(self) -> None:
        """The arbiter refused, or its answer was lost: the election key, if it was taken, then expires by itself."""
        if self.role is Role.CANDIDATE:
            self.role = Role.FOLLOWER

    def disk_answered(self, now: Seconds) -> None:
        """The small write is on the disk."""
        if self.role is Role.PRIMARY and self._is_renewing:
            self.decisions.append(Renew(now))

    def renewed(self, is_held: bool | None, sent_at: Seconds) -> None:
        """The arbiter renewed the lease. ``is_held`` is False if the lease had ended, None if there was no answer."""
        if self.role is not Role.PRIMARY:
            return
        self._is_renewing = False
        if is_held:
            self.expires = self._end_of_lease(sent_at)
        elif is_held is False:
            self.end_term("the arbiter has ended the lease")

    def end_term(self, reason: str) -> None:
        """Stop leading."""
        if self.role is Role.PRIMARY:
            self.role, self.expires, self._asked_at, self.is_recovering = Role.FOLLOWER, 0.0, None, False
            self.decisions.append(EndTerm(reason))

    def _end_of_lease(self, sent_at: Seconds) -> Seconds:
        return sent_at + self._lease * (1 - MARGIN)
