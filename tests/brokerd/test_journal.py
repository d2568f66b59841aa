"""The journal: what it was told comes back, whatever happened to its files."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd.journal import journal as journal_module
from brokerd.journal import records
from brokerd.journal.journal import CorruptState, Journal, recover
from brokerd.journal.state import ChannelState, NodeState, TopicState


def node() -> NodeState:
    """One topic with one channel of which nothing was delivered yet."""
    state = NodeState()
    state.topics[3] = TopicState(3, "t", 0)
    state.channels[7] = ChannelState(7, 3, "c", 0)
    return state


def fail(error: OSError) -> None:
    raise AssertionError(error)


def written(directory: Path) -> Journal:
    """A journal in which 100 messages were delivered, one by one, and every second one finished."""
    journal = Journal(directory, 0, node, fail)
    for seq in range(100):
        journal.append(records.delivered(7, seq + 1))
        if seq % 2:
            journal.append(records.finished(7, [(seq, 1)]))
    return journal


def test_changes_survive_without_a_checkpoint(tmp_path: Path) -> None:
    """Nothing was closed, as after a kill: the messages that were not finished are owed again, after one attempt."""
    written(tmp_path)
    state, _, oddities = recover(tmp_path)
    assert not oddities
    assert state.channels[7].unfinished() == dict.fromkeys(range(0, 100, 2), (1, 0))


def test_ranges_of_waiting_messages_keep_attempts_and_due_times(tmp_path: Path) -> None:
    """Many ranges take several records; a message's last record decides."""
    journal = written(tmp_path)
    journal.append(records.waiting(7, 0, 9, 0))
    ranges = [(seq, 1, 2 + seq % 3, 50 + seq) for seq in range(0, 500, 2)] + [(1000, 300, 4, 0)]
    kept = list(records.waiting_ranges(7, b"".join(records.WAITING_RANGE.pack(*each) for each in ranges)))
    assert len(kept) == 3
    for record in kept:
        journal.append(record)
    journal.append(records.finished(7, [(1100, 100)]))
    unfinished = recover(tmp_path)[0].channels[7].unfinished()
    expected = {seq + at: (attempts, due) for seq, count, attempts, due in ranges for at in range(count)}
    assert unfinished == {seq: state for seq, state in expected.items() if not 1100 <= seq < 1200}


def test_waiting_messages_keep_attempts_and_due_time(tmp_path: Path) -> None:
    """The last word on a message holds, also across a checkpoint."""
    journal = written(tmp_path)
    journal.append(records.waiting(7, 4, 3, 0))
    journal.append(records.waiting(7, 6, 2, 123_456))
    journal.append(records.waiting(7, 8, 2, 99))
    journal.append(records.finished(7, [(8, 1)]))
    state, generation, _ = recover(tmp_path)
    again = Journal(tmp_path, generation, lambda: state, fail)
    again.append(records.waiting(7, 4, 4, 0))
    unfinished = recover(tmp_path)[0].channels[7].unfinished()
    assert (unfinished[4], unfinished[6], 8 in unfinished) == ((4, 0), (2, 123_456), False)


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_costs_the_changes_it_is_in(tmp_path: Path, seed: int) -> None:
    """All other records are applied; a message is delivered again rather than forgotten."""
    written(tmp_path)
    [file] = (path for path in tmp_path.glob("journal.*") if path.read_bytes().strip(b"\0"))
    data = bytearray(file.read_bytes())
    chance = random.Random(seed)
    at = chance.randrange(len(data.rstrip(b"\0")))
    data[at] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    state, _, oddities = recover(tmp_path)
    assert len(oddities) == 1
    owed = set(range(0, 100, 2))
    unfinished = set(state.channels[7].unfinished())
    assert owed - {98} <= unfinished
    assert len(unfinished - owed) <= 1


def test_records_of_what_is_not_there_are_passed_over_and_counted(tmp_path: Path) -> None:
    """Whatever the record says of an unknown topic or channel: recovery says so in one line, and the rest holds."""
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
    state, _, [oddity] = recover(tmp_path)
    assert f"damaged in 0 places; {len(strays)} records cannot be applied" in oddity
    assert state.channels[7].unfinished() == dict.fromkeys(range(0, 100, 2), (1, 0))


def test_a_topic_that_is_made_again_replaces_one_whose_deletion_was_lost(tmp_path: Path) -> None:
    """Of two topics with one name, or one number, the later is the one that is there; channels likewise."""
    journal = Journal(tmp_path, 0, NodeState, fail)
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
    state, _, _ = recover(tmp_path)
    assert {number: topic.name for number, topic in state.topics.items()} == {1: "t", 2: "v"}
    assert {number: (each.topic, each.head) for number, each in state.channels.items()} == {2: (1, 5)}


def test_a_damaged_checkpoint_is_told_and_nothing_is_touched(tmp_path: Path) -> None:
    """The error names the file; a second look finds everything as it was."""
    written(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b'"t"', b'"u"'))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CorruptState, match="checkpoint is damaged"):
        recover(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_journal_goes_on_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generations change over without a record being lost, and old files go."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    state = node()
    journal = Journal(tmp_path, 0, lambda: state, fail)
    for seq in range(1000):
        record = records.delivered(7, seq + 1)
        state.apply(record)
        journal.append(record)
    assert recover(tmp_path)[0].channels[7].head == 1000
    assert len(list(tmp_path.glob("journal.*"))) == 2


def test_a_checkpoint_in_the_background_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes go on into the next journals while it is written; killed at any of these points, none is missing."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    state = node()
    journal = Journal(tmp_path, 0, lambda: state, fail)
    works: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
    journal.write_in_background(lambda work, done: works.append((work, done)))
    head = 0
    for finished in (0, 1, 2):
        for _ in range(700):
            head += 1
            state.channels[7].head = head
            journal.append(records.delivered(7, head))
        assert recover(tmp_path)[0].channels[7].head == head
        assert len(works) == 1, "one at a time"
        work, done = works.pop()
        work()
        assert recover(tmp_path)[0].channels[7].head == head
        done(None)
        assert recover(tmp_path)[0].channels[7].head == head, finished
    journal.close()
    assert recover(tmp_path)[0].channels[7].head == head


def test_a_full_disk_costs_no_record_until_the_spare_journal_is_full_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints fail, the spare takes the changes, and recovery reads one journal after the other."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    errors: list[OSError] = []
    state = node()
    journal = Journal(tmp_path, 0, lambda: state, errors.append)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "_replace_checkpoint", refuse)
    head = 0
    while not errors:
        head += 1
        state.channels[7].head = head
        journal.append(records.delivered(7, head))
    for later in range(head + 1, head + 100):
        journal.append(records.delivered(7, later))
    assert recover(tmp_path)[0].channels[7].head == head + 99
    monkeypatch.undo()
    journal.checkpoint()
    assert not [path for path in tmp_path.glob("journal.*") if path.read_bytes().strip(b"\0")]


def test_a_full_journal_on_a_full_disk_has_room_for_a_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads and FINs do not fit any more; what is made, paused or deleted is still kept, and survives a kill."""
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", 4096)
    errors: list[OSError] = []
    journal = Journal(tmp_path, 0, node, errors.append)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "_allocate", refuse)
    monkeypatch.setattr(Journal, "_replace_checkpoint", refuse)
    for head in range(1000):
        journal.append(records.delivered(7, head))
    assert errors
    journal.append(records.channel_created(3, 8, 0, "new"))
    journal.append(records.channel_paused(7, True))
    journal.append(records.finished(7, [(0, 1)]))
    state, _, oddities = recover(tmp_path)
    assert not oddities
    assert state.channels[8].name == "new"
    assert state.channels[7].paused
    assert state.channels[7].head < 1000, "the journal was never full"
