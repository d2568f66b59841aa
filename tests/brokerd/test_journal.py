"""The journal: recorded changes are recovered, whatever happened to its files."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from brokerd.dead import DeadMessage, Reason
from brokerd.file_header import HEADER_BYTES, JOURNAL, WRITTEN
from brokerd.journal import journal as journal_module
from brokerd.journal import records
from brokerd.journal.journal import Journal, NotCheckpointed
from brokerd.journal.recovery import CorruptState, recover
from brokerd.journal.state import ChannelState, Inapplicable, NodeState, TopicState
from brokerd.kernel.waiting import WAITING_RANGE


def node() -> NodeState:
    """One topic with one channel that has delivered nothing yet."""
    state = NodeState()
    state.topics[3] = TopicState(3, "t", 0)
    state.channels[7] = ChannelState(7, 3, "c", 0)
    return state


def fail(error: OSError) -> None:
    raise AssertionError(error)


class Loop:
    """The event loop as a journal needs it: callbacks, delayed or not, run when the test says so."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []

    def call_soon(self, run: Callable[[], None]) -> None:
        self.soon.append(run)

    def call_later(self, _seconds: float, run: Callable[[], None]) -> None:
        self.later.append(run)

    def turn(self) -> None:
        """End this iteration of the loop."""
        soon, self.soon = self.soon, []
        for run in soon:
            run()

    def wait(self) -> None:
        """Let all delays pass."""
        later, self.later = self.later, []
        for run in later:
            run()
        self.turn()


def opened(
    directory: Path,
    snapshot: Callable[[], NodeState],
    failed: Callable[[OSError], None] = fail,
    loop: Loop | None = None,
) -> Journal:
    """Open a journal over the contents of the directory."""
    loop = loop or Loop()
    found = recover(directory)
    return Journal(directory, found, snapshot, failed, call_soon=loop.call_soon, call_later=loop.call_later)


def written(directory: Path) -> Journal:
    """A journal in which 100 messages were delivered, one by one, and every second one was finished."""
    journal = opened(directory, node)
    for seq in range(100):
        journal.append(records.delivered(7, seq + 1))
        if seq % 2:
            journal.append(records.finished(7, [(seq, 1)]))
    return journal


def refuse(*_: object, **__: object) -> None:
    """The disk is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_changes_survive_without_a_checkpoint(tmp_path: Path) -> None:
    """As after a kill, nothing was closed: unfinished messages are redelivered, after one attempt."""
    written(tmp_path)
    found = recover(tmp_path)
    assert not found.warnings
    assert found.state.channels[7].unfinished() == dict.fromkeys(range(0, 100, 2), (1, 0))


def test_a_number_of_a_topic_that_left_nothing_else_is_not_given_again(tmp_path: Path) -> None:
    """The records are applied twice, as after a checkpoint that contains the first of them, without an effect."""
    journal = opened(tmp_path, node)
    written = [records.topic_number_taken(4), records.topic_number_taken(5), records.topic_created(6, 0, "later")]
    for record in written:
        journal.append(record)
        state = recover(tmp_path).state
        assert state.next_topic == int.from_bytes(record[1:3]) + 1
    for record in written:
        state.apply(record)
    assert (state.next_topic, sorted(state.topics)) == (7, [3, 6])


def test_a_number_that_any_record_mentions_is_known_to_be_taken(tmp_path: Path) -> None:
    """If the topic's files are lost, no later message gets an id that a consumer has received."""
    journal = written(tmp_path)

    def known_end() -> int:
        state = recover(tmp_path).state
        return max([state.topics[3].next_seq, *(channel.known_end for channel in state.channels.values())])

    journal.append(records.finished(7, [(500, 3)]))
    assert known_end() == 503
    journal.append(records.channel_rewound(7, 20, [(20, 500)]))
    assert known_end() == 503
    journal.append(records.skipped(7, 600, 10))
    journal.append(records.channel_deleted(7, 50))
    assert known_end() == 610


def test_ranges_of_waiting_messages_keep_attempts_and_due_times(tmp_path: Path) -> None:
    """Many ranges take several records; a message's last record counts."""
    journal = written(tmp_path)
    journal.append(records.waiting(7, 0, 9, 0))
    ranges = [(seq, 1, 2 + seq % 3, 50 + seq) for seq in range(0, 500, 2)] + [(1000, 300, 4, 0)]
    kept = list(records.waiting_ranges(7, b"".join(WAITING_RANGE.pack(*each) for each in ranges)))
    assert len(kept) == 3
    for record in kept:
        journal.append(record)
    journal.append(records.finished(7, [(1100, 100)]))
    unfinished = recover(tmp_path)[0].channels[7].unfinished()
    expected = {seq + at: (attempts, due) for seq, count, attempts, due in ranges for at in range(count)}
    assert unfinished == {seq: state for seq, state in expected.items() if not 1100 <= seq < 1200}


def test_waiting_messages_keep_attempts_and_due_time(tmp_path: Path) -> None:
    """A message's last record counts, also across a checkpoint."""
    journal = written(tmp_path)
    journal.append(records.waiting(7, 4, 3, 0))
    journal.append(records.waiting(7, 6, 2, 123_456))
    journal.append(records.waiting(7, 8, 2, 99))
    journal.append(records.finished(7, [(8, 1)]))
    state = recover(tmp_path).state
    again = opened(tmp_path, lambda: state)
    again.append(records.waiting(7, 4, 4, 0))
    unfinished = recover(tmp_path).state.channels[7].unfinished()
    assert (unfinished[4], unfinished[6], 8 in unfinished) == ((4, 0), (2, 123_456), False)


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_loses_the_changes_it_is_in(tmp_path: Path, seed: int) -> None:
    """All other records are applied; messages are redelivered rather than lost."""
    written(tmp_path)
    [file] = (path for path in tmp_path.glob("journal.*") if path.read_bytes().strip(b"\0"))
    data = bytearray(file.read_bytes())
    chance, newest = random.Random(seed), recover(tmp_path).newest
    assert newest is not None
    # the changes that are read
    at = chance.choice([*range(HEADER_BYTES), *range(newest.offset, len(data.rstrip(b"\0")))])
    data[at] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    state, warnings = recover(tmp_path).state, recover(tmp_path).warnings
    assert len(warnings) == 1
    owed = set(range(0, 100, 2))
    unfinished = set(state.channels[7].unfinished())
    assert owed - {98} <= unfinished
    assert len(unfinished - owed) <= 1


def test_records_of_unknown_topics_are_skipped_and_counted(tmp_path: Path) -> None:
    """Recovery logs records about unknown topics and channels in one line, and applies the others."""
    journal = written(tmp_path)
    strays = [
        records.topic_paused(5, True, 1),
        records.topic_routed(5, 1),
        records.topic_emptied(5, 0, 1),
        records.channel_paused(50, True),
        records.channel_emptied(50, 1),
        records.channel_rewound(50, 0, []),
        records.delivered(50, 1),
        records.finished(50, [(0, 1)]),
        records.waiting(50, 0, 1, 0),
        records.skipped(50, 0, 1),
        bytes([records.TOPIC_PAUSED]),
    ]
    for stray in strays:
        journal.append(stray)
    harmless = [records.topic_deleted(5), records.channel_deleted(50, 1)]
    for record in harmless:
        journal.append(record)
    found = recover(tmp_path)
    [warning] = found.warnings
    assert f": {len(strays)} records cannot be applied" in warning
    assert "damaged" not in warning
    assert found.state.channels[7].unfinished() == dict.fromkeys(range(0, 100, 2), (1, 0))


def test_a_record_of_which_a_part_cannot_be_read_changes_nothing() -> None:
    """As one of a later release, with another reason for a death."""
    state = node()
    [record] = records.dead(7, [DeadMessage(seq, 1, 0, Reason.OPERATOR, 0, 5, "") for seq in range(2)])
    later = bytearray(record)
    later[records.CHANNEL.size + records.DEATH.size + 12] = 200
    with pytest.raises(Inapplicable):
        state.apply(bytes(later))
    assert not state.channels[7].dead


def test_a_topic_that_is_created_again_replaces_one_whose_deletion_was_lost(tmp_path: Path) -> None:
    """Of two topics with one name or one number, the later one exists; so with channels."""
    journal = opened(tmp_path, NodeState)
    for record in (
        records.topic_created(0, 0, "t"),
        records.channel_created(0, 0, 0, "c"),
        records.topic_created(1, 0, "t"),
        records.channel_created(1, 1, 0, "c"),
        records.channel_created(1, 2, 5, "c"),
        records.topic_created(2, 0, "u"),
        records.topic_created(2, 0, "v"),
    ):
        journal.append(record)
    state = recover(tmp_path).state
    assert {number: topic.name for number, topic in state.topics.items()} == {1: "t", 2: "v"}
    assert {number: (each.topic, each.head) for number, each in state.channels.items()} == {2: (1, 5)}


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_in_the_checkpoint_loses_nothing(tmp_path: Path, seed: int) -> None:
    """The previous checkpoint and the journals since have the same changes; it is kept until two more are written."""
    journal = written(tmp_path)
    journal.checkpoint()
    journal.append(records.delivered(7, 110))
    journal.append(records.finished(7, [(100, 1)]))
    owed = dict.fromkeys(range(110), (1, 0))  # its snapshot has a channel that has delivered nothing
    checkpoint = tmp_path / "checkpoint"
    data = bytearray(checkpoint.read_bytes())
    chance = random.Random(seed)
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    checkpoint.write_bytes(data)
    found = recover(tmp_path)
    if found.newest is None:
        [warning] = found.warnings
        assert f"{checkpoint} is damaged" in warning
        owed = {seq: entry for seq, entry in owed.items() if seq >= 100 or not seq % 2}
    del owed[100]
    assert found.state.channels[7].unfinished() == owed
    again = opened(tmp_path, lambda: found.state)
    assert recover(tmp_path).warnings == []
    (tmp_path / "checkpoint").write_bytes(b"")
    assert recover(tmp_path).state.channels[7].unfinished() == owed
    again.close()


def test_two_damaged_checkpoints_are_named_and_nothing_is_touched(tmp_path: Path) -> None:
    """The error names the files; a second start finds all of them unchanged."""
    written(tmp_path)
    for name in ("checkpoint", "checkpoint.previous"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes().replace(b'"t"', b'"u"'))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CorruptState, match=r"checkpoint is damaged.*checkpoint\.previous is damaged.*nsq repair"):
        recover(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_checkpoint_of_a_version_that_cannot_be_read_is_named_as_such(tmp_path: Path) -> None:
    """It is not damaged, so the logs beside it are not read as if they were, and neither is an older checkpoint."""
    written(tmp_path)
    newest, previous = tmp_path / "checkpoint", tmp_path / "checkpoint.previous"
    previous.write_bytes(newest.read_bytes())
    text = "".join(node().to_lines()).replace('"imports":0,', "").encode()
    newest.write_bytes(xxh3_64_hexdigest(text).encode() + b" 4\n" + text)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CorruptState) as refused:
        recover(tmp_path)
    assert str(refused.value) == (
        f"{newest} was written by a version that this release cannot read (it has no 'imports'); nothing was changed. "
        "Start that version on it, or this one on an empty data path"
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_journal_continues_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is lost when the next generation begins, and files that no checkpoint needs are removed."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    state, loop = node(), Loop()
    journal = opened(tmp_path, lambda: state, loop=loop)
    for seq in range(1000):
        record = records.delivered(7, seq + 1)
        state.apply(record)
        journal.append(record)
        loop.turn()
    assert recover(tmp_path).state.channels[7].head == 1000
    assert len(list(tmp_path.glob("journal.*"))) <= 3


def test_a_checkpoint_waits_until_the_change_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One change may take many records and fill journals: a checkpoint contains all of it or nothing."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    state, loop, snapshots = node(), Loop(), 0

    def snapshot() -> NodeState:
        nonlocal snapshots
        snapshots += 1
        return state

    journal = opened(tmp_path, snapshot, loop=loop)
    at_start = snapshots
    for seq in range(1000):
        journal.append(records.delivered(7, seq + 1))
    assert snapshots == at_start
    state.channels[7].head = 1000
    loop.turn()
    assert snapshots == at_start + 1
    assert recover(tmp_path).state.channels[7].head == 1000


def test_changes_do_not_wait_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are recorded in the next journals while it is written; after a kill at any of these points, all are
    recovered."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    state, loop = node(), Loop()
    journal = opened(tmp_path, lambda: state, loop=loop)
    works: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
    journal.write_in_background(lambda work, done: works.append((work, done)))
    head = 0
    for finished in (0, 1, 2):
        for _ in range(700):
            head += 1
            state.channels[7].head = head
            journal.append(records.delivered(7, head))
            loop.turn()
        assert recover(tmp_path).state.channels[7].head == head
        assert len(works) == 1, "one at a time"
        work, done = works.pop()
        work()
        assert recover(tmp_path).state.channels[7].head == head
        done(None)
        assert recover(tmp_path).state.channels[7].head == head, finished
    journal.close()
    assert recover(tmp_path).state.channels[7].head == head


def fill(journal: Journal, state: NodeState, loop: Loop) -> int:
    """Append deliveries until one is dropped; return the head in the journal."""
    head = 0
    while not journal.error:
        head += 1
        state.channels[7].head = head
        journal.append(records.delivered(7, head))
        loop.turn()
    return head - 1


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Journal, NodeState, Loop]:
    """A journal that is full, on a full disk."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    state, loop, errors = node(), Loop(), list[OSError]()
    journal = opened(tmp_path, lambda: state, errors.append, loop)
    monkeypatch.setattr(Journal, "_allocate", refuse)
    monkeypatch.setattr(journal_module, "write_checkpoint", refuse)
    kept = fill(journal, state, loop)
    assert kept > 50
    assert errors
    assert recover(tmp_path).state.channels[7].head == kept
    return journal, state, loop


def test_a_full_journal_on_a_full_disk_has_room_for_a_channel(full: Any, tmp_path: Path) -> None:
    """Heads and FINs do not fit any more; creations, pauses and deletions are still recorded, and survive a kill."""
    journal, _, _ = full
    head = recover(tmp_path).state.channels[7].head
    for change in (records.channel_created(3, 8, 0, "new"), records.channel_paused(7, True)):
        journal.require(100)
        journal.append(change)
    journal.append(records.finished(7, [(0, 1)]))
    journal.append(records.topic_routed(3, 5))
    found = recover(tmp_path)
    assert not found.warnings
    assert found.state.channels[8].name == "new"
    assert found.state.channels[7].paused
    assert found.state.channels[7].head == head
    assert found.state.topics[3].deferred_end == 0, "what was routed is in no record"


def test_changes_beyond_the_journals_reserve_are_refused(full: Any) -> None:
    """It is refused before anything changes; so are changes that depend on records of messages."""
    journal, _, _ = full
    with pytest.raises(OSError, match="No space left"):
        journal.require(100, of_messages=True)
    changes = 0
    with contextlib.suppress(OSError):
        for changes in range(100):  # noqa: B007
            journal.require(100)
            journal.append(records.channel_created(3, 8, 0, "n" * 64))
    assert 0 < changes < 10


def test_a_full_journal_continues_once_there_is_space(
    full: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues by itself; nothing depends on dropped records before a checkpoint has replaced them."""
    journal, state, loop = full
    loop.wait()
    assert journal.error
    monkeypatch.setattr(Journal, "_allocate", original_allocate)
    loop.wait()
    assert journal.error, "the checkpoint cannot be written yet"
    journal.append(records.delivered(7, 5000))
    journal.append(records.topic_routed(3, 5000))
    found = recover(tmp_path)
    assert (found.state.channels[7].head, found.state.topics[3].deferred_end) == (5000, 0)
    with pytest.raises(OSError, match="no checkpoint was written since"):
        journal.require(100, of_messages=True)
    monkeypatch.setattr(journal_module, "write_checkpoint", original_write)
    loop.wait()
    assert journal.error is None
    journal.require(100, of_messages=True)
    assert recover(tmp_path).state.channels[7].head == state.channels[7].head


original_allocate, original_write = Journal._allocate, journal_module.write_checkpoint


def test_the_end_says_whether_the_journal_has_it_all(full: Any, tmp_path: Path) -> None:
    """A last checkpoint that cannot be written loses nothing, unless records were dropped before."""
    journal, _, _ = full
    with pytest.raises(NotCheckpointed, match=r"the journal is incomplete, and messages .* will be delivered again"):
        journal.close()


def test_a_journal_of_zeros_is_used_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start on a full disk needs no more space than there is, and records what happens next."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    state = node()
    loop = Loop()
    journal = opened(tmp_path, lambda: state, loop=loop)
    for head in range(1, 100):
        journal.append(records.delivered(7, head))
    assert (tmp_path / "journal.2").read_bytes() == WRITTEN[JOURNAL.kind].ljust(4096, b"\0"), "a spare one"
    errors: list[OSError] = []
    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(Journal, "_allocate", refuse)
        disk.setattr(journal_module, "write_checkpoint", refuse)
        loop = Loop()
        again = opened(tmp_path, lambda: state, errors.append, loop)
        assert errors
        for head in range(100, 150):
            again.append(records.delivered(7, head))
        assert recover(tmp_path).state.channels[7].head == 149
    state.channels[7].head = 149
    loop.wait()
    assert again.error is None
    assert recover(tmp_path).newest is not None


def test_a_full_journal_is_no_reason_not_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a byte can be written: later changes are lost, and the next start recovers the same state."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    state = node()
    journal = opened(tmp_path, lambda: state)
    monkeypatch.setattr(Journal, "_allocate", refuse)
    monkeypatch.setattr(journal_module, "write_checkpoint", refuse)
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    for head in range(1, 100):
        journal.append(records.delivered(7, head))
    found = recover(tmp_path)
    errors: list[OSError] = []
    again = opened(tmp_path, lambda: found.state, errors.append)
    again.append(records.delivered(7, 1000))
    assert again.error
    assert recover(tmp_path).state.channels[7].head == found.state.channels[7].head == 99


def test_a_start_on_a_full_disk_needs_no_byte_of_a_journal_whose_reserve_is_full(
    full: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the mark that records may be missing fits there."""
    journal, state, _ = full
    with contextlib.suppress(OSError):
        while True:
            journal.require(14)
            journal.append(records.channel_paused(7, True))
    head = recover(tmp_path).state.channels[7].head
    errors: list[OSError] = []
    again = opened(tmp_path, lambda: state, errors.append)
    again.append(records.delivered(7, 5000))
    assert errors
    assert not again.is_complete
    assert recover(tmp_path).state.channels[7].head == head


@pytest.mark.parametrize(
    "damage",
    [
        lambda journals: journals[1].unlink(),
        lambda journals: journals[1].write_bytes(bytes(4096)),
        lambda journals: journals[1].write_bytes(b""),
        lambda journals: os.truncate(journals[1], 2048),
        lambda journals: journals[1].write_bytes(journals[1].read_bytes()[:2048] + bytes(2048)),
    ],
    ids=["missing", "zeroed", "emptied", "cut", "zeroed at its end"],
)
def test_a_journal_that_is_lost_in_part_is_noticed(
    damage: Callable[[list[Path]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line reports it; deferred publishes whose routing may be lost count as not routed."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    journal = opened(tmp_path, node)
    monkeypatch.setattr(journal_module, "write_checkpoint", refuse)
    for head in range(1, 400):
        journal.append(records.delivered(7, head))
    journal.append(records.topic_routed(3, 399))
    assert recover(tmp_path).state.topics[3].deferred_end == 399
    journals = sorted(tmp_path.glob("journal.*"))
    damage(journals)
    found = recover(tmp_path)
    assert len(found.warnings) == 1
    assert found.state.channels[7].head == 399
    assert found.state.topics[3].deferred_end == 0


@pytest.mark.parametrize("at", [1, -2], ids=["old", "newest"])
def test_journals_that_changed_places_are_not_read(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their changes would be made in the wrong order. They count as lost, and the next start finds nothing wrong."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    journal = opened(tmp_path, node)
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "write_checkpoint", refuse)
        for head in range(1, 900):
            journal.append(records.delivered(7, head))
    journals = sorted(tmp_path.glob("journal.*"), key=lambda path: int(path.suffix[1:]))
    one, two, aside = journals[at], journals[at + 1], tmp_path / "aside"
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    found = recover(tmp_path)
    assert [line.partition(":")[0] for line in found.losses] == [
        f"{path} has the contents of {other.name}" for path, other in ((one, two), (two, one))
    ]
    head = found.state.channels[7].head
    assert head == 899 if at == 1 else 0 < head < 899
    assert not found.state.is_complete
    again = opened(tmp_path, lambda: found.state)
    again.append(records.delivered(7, 1000))
    assert (recover(tmp_path).warnings, recover(tmp_path).state.channels[7].head) == ([], 1000)


def test_a_partial_last_record_is_no_damage(tmp_path: Path) -> None:
    """The process was killed while writing it: recovery logs nothing, and the next record replaces it."""
    journal = written(tmp_path)
    path = tmp_path / "journal.1"
    data = bytearray(path.read_bytes())
    end = recover(tmp_path).end.offset
    record = records.delivered(7, 1000)
    data[end + 8 : end + 8 + len(record)] = record
    path.write_bytes(data)
    found = recover(tmp_path)
    assert (found.warnings, found.state.channels[7].head) == ([], 100)
    again = opened(tmp_path, lambda: found.state)
    again.append(records.clock(0))
    again.append(records.delivered(7, 101))
    found = recover(tmp_path)
    assert (found.warnings, found.state.channels[7].head) == ([], 101)
    journal.close()


def test_a_rewind_replaces_the_checkpoints_messages_in_flight(tmp_path: Path) -> None:
    """All of them are redelivered with the backlog, each once."""
    state = node()
    aside = {0: (3, 0), **dict.fromkeys(range(2, 10), (1, 0)), 5: (0, 99)}
    state.channels[7] = ChannelState(7, 3, "c", 10, aside=aside)
    journal = opened(tmp_path, lambda: state)
    journal.append(records.channel_rewound(7, 2, [(2, 3), (6, 4)]))
    channel = recover(tmp_path).state.channels[7]
    assert (channel.head, channel.unfinished()) == (2, {0: (3, 0), 5: (0, 99)})
    journal.append(records.delivered(7, 6))
    channel = recover(tmp_path).state.channels[7]
    assert channel.unfinished() == {0: (3, 0), **dict.fromkeys(range(2, 6), (1, 0)), 5: (0, 99)}


def test_a_checkpoint_of_an_older_version_is_read(tmp_path: Path) -> None:
    """Its first line has a generation and the checksum of the rest."""
    text = "".join(node().to_lines()).encode()
    (tmp_path / "checkpoint").write_bytes(xxh3_64_hexdigest(text).encode() + b" 4\n" + text)
    found = recover(tmp_path)
    assert (found.newest, found.state.channels[7].name) == ((4, 0), "c")
