"""The requests of a member to the arbiter of its pair, the same for all arbiters."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from brokerd.mirror.election import ArbiterAnswer
from brokerd.mirror.pair import InvalidRecord, PairRecord
from nsqwire.units import Seconds

TRIES: Final = 3
PAUSE_S: Final = 0.2
"""Time between two tries."""
logger = logging.getLogger("brokerd")


class ArbiterFailed(Exception):
    """The arbiter did not answer, or not as expected. Whether it did what was asked is unknown."""


class Leadership(NamedTuple):
    """A lead that was granted: the lease, and the revision of the record."""

    lease: str
    revision: int


class Arbiter(Protocol):
    """Keeps the record of a pair, and who leads as long as its lease is renewed. All calls raise ArbiterFailed."""

    async def read(self) -> ArbiterAnswer:
        """Read in one step which member leads, and the record. Raises InvalidRecord too."""

    async def read_settled(self) -> ArbiterAnswer:
        """Read, for a process that has just started: wait, if need be, until it is known whether a lease has ended."""

    async def campaign(self, member: str, record: PairRecord, revision: int, lease_s: int) -> Leadership | None:
        """Take the lead and write the record, if nobody leads and the present record has this revision, 0 for none.

        Returns None if the lead was not taken. If the arbiter's answer is lost, the lease is ended, so that nobody
        waits for its end.
        """

    async def renew(self, lease: str) -> bool:
        """Renew the lease; False if it has ended."""

    async def write(self, lease: str, record: PairRecord, revision: int) -> int | None:
        """Write the record if the lease holds the lead and the record has this revision.

        Returns the new revision; None if it was not written.
        """

    async def write_without_lead(self, record: PairRecord, revision: int) -> int | None:
        """Write the record if nobody leads and it has this revision. Returns as ``write``."""

    async def resign(self, lease: str) -> None:
        """End a lease, and with it the lead."""


async def give_up_lead(arbiter: Arbiter, member: str, lease: str, *, within_s: Seconds) -> None:
    """End a lease, and with it the lead. An arbiter that fails is asked again as long as ``member`` leads.

    ``within_s`` is the longest time. A lease that was not ended by then ends by itself.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        try:
            await arbiter.resign(lease)
        except ArbiterFailed as failure:
            if loop.time() + PAUSE_S >= deadline:
                logger.warning("MIRROR: the lead could not be given up, and ends with its lease: %s", failure)
                return
        else:
            return
        await asyncio.sleep(PAUSE_S)
        with suppress(ArbiterFailed, InvalidRecord):
            if (await arbiter.read()).leader != member:  # the answer was lost
                return


async def give_back_lead(arbiter: Arbiter, lease: str, record: PairRecord, revision: int) -> bool:
    """Write a record of the members that may lead from now on, and give up the lead. Returns False if the arbiter
    refuses the record.

    After True the member must not lead on. An arbiter that does not answer is asked again: without the record, the
    others would wait as long as this member might be recovering. An arbiter that has not answered may have the record,
    and let others lead, which would lack what this member then acknowledged. A lease that was not given up ends by
    itself.
    """
    may_have_record = False
    for number in range(TRIES):
        if number:
            await asyncio.sleep(PAUSE_S)
        try:
            is_written = await arbiter.write(lease, record, revision) is not None
            if not is_written and (not may_have_record or (await arbiter.read()).record != record):
                return may_have_record
            await arbiter.resign(lease)
        except (ArbiterFailed, InvalidRecord) as failure:
            logger.warning("MIRROR: the arbiter did not answer when the lead was given back: %s", failure)
            may_have_record = True
        else:
            return True
    return True
