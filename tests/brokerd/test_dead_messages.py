"""The dead messages of a channel, which are kept in sorted blocks, behave like a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import brokerd.dead
from brokerd.dead import ENTRY, REASONS, DeadMessage, DeadMessages

NUMBERS = st.integers(0, 60)


class DeadMachine(RuleBasedStateMachine):
    """Any order of deaths and removals, with checkpoints in between."""

    def __init__(self) -> None:
        super().__init__()
        self.dead = DeadMessages()
        self.expected: dict[int, DeadMessage] = {}

    @rule(seq=NUMBERS, count=st.sampled_from([1, 1, 12]), reason=st.sampled_from(REASONS), client=st.text(max_size=2))
    def die(self, seq: int, count: int, reason: brokerd.dead.Reason, client: str) -> None:
        for each in range(seq, seq + count):
            message = DeadMessage(each, each % 7, each % 5, reason, each * 10, each * 11, client)
            self.dead.add(message)
            self.expected[each] = message

    @rule(seqs=st.sets(NUMBERS))
    def remove(self, seqs: set[int]) -> None:
        """Also numbers that are not dead."""
        self.dead.remove(sorted(seqs))
        for seq in seqs:
            self.expected.pop(seq, None)

    @rule(first=NUMBERS, count=st.integers(0, 40))
    def remove_a_range(self, first: int, count: int) -> None:
        self.dead.remove(range(first, first + count))
        for seq in range(first, first + count):
            self.expected.pop(seq, None)

    @rule()
    def clear(self) -> None:
        self.dead.clear()
        self.expected.clear()

    @rule(seqs=st.sets(NUMBERS, min_size=1))
    def change_while_it_is_read(self, seqs: set[int]) -> None:
        """An iteration has the messages of its beginning."""
        before, reading, listed = self.messages, iter(self.dead), self.dead.portions()
        copy = self.dead.copy()
        found = [next(reading)] if before else []
        portions = [next(listed)] if before else []
        self.remove(seqs)
        assert found + list(reading) == before
        assert [each for portion in [*portions, *listed] for each in portion] == before
        assert list(copy) == before

    @rule()
    def restart(self) -> None:
        restarted = DeadMessages()
        for block, names in self.dead.packed():
            restarted.add_packed(block, names)
        self.dead = restarted

    @property
    def messages(self) -> list[DeadMessage]:
        return [self.expected[seq] for seq in sorted(self.expected)]

    @invariant()
    def is_as_expected(self) -> None:
        assert list(self.dead) == self.messages
        assert len(self.dead) == len(self.expected)
        assert {reason: count for reason, count in self.dead.counts.items() if count} == {
            reason: count
            for reason in REASONS
            if (count := sum(message.reason is reason for message in self.expected.values()))
        }
        assert self.dead.lowest == min(self.expected, default=None)
        assert self.dead.end == max(self.expected, default=-1) + 1
        for seq in range(0, 75, 7):
            assert self.dead.get(seq) == self.expected.get(seq)
            assert (seq in self.dead) == (seq in self.expected)
            assert list(self.dead.starting_at(seq)) == [each for each in self.messages if each.seq >= seq]
            assert list(self.dead.skipping(seq)) == self.messages[seq:]


def test_dead_messages_are_as_in_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of three, and with ids of clients forgotten as soon as possible."""
    monkeypatch.setattr(brokerd.dead, "ENTRIES_IN_A_BLOCK", 3)
    monkeypatch.setattr(brokerd.dead, "_UNUSED_NAMES", 0)
    run_state_machine_as_test(DeadMachine, settings=settings(deadline=None))


@pytest.mark.parametrize(
    "block",
    [
        b"",
        ENTRY.pack(1, 0, 0, 0, 0, 0, 0)[:-1],
        ENTRY.pack(1, 0, 0, len(REASONS), 0, 0, 0),
        ENTRY.pack(1, 0, 0, 0, 0, 0, 1),
        ENTRY.pack(2, 0, 0, 0, 0, 0, 0) + ENTRY.pack(1, 0, 0, 0, 0, 0, 0),
    ],
    ids=["empty", "half", "reason", "client", "order"],
)
def test_a_block_that_cannot_be_is_refused(block: bytes) -> None:
    """As a damaged checkpoint, so that the previous one is read."""
    with pytest.raises(ValueError, match="dead messages"):
        DeadMessages().add_packed(block, ["a client"])
