"""The rules of the leader: when groups are acknowledged, who is in sync, how a follower joins, who is refused."""

from __future__ import annotations

from functools import partial

import pytest

from brokerd.mirror.actions import Action, Create, Delete, Rename, Write, decode_actions
from brokerd.mirror.follower import Follower
from brokerd.mirror.frames import MAX_HELLO_BYTES, MAX_PAYLOAD_BYTES, Frame, Kind
from brokerd.mirror.hello import Welcome
from brokerd.mirror.leader import MAX_STRANGERS, Appended, Close, CompareFiles, Leader, StepDown, TakeCut, WriteRecord
from brokerd.mirror.manifest import Copy, File
from tests.mirror.state_machines import (
    BOTH,
    HEADERS,
    INDEX,
    LOG,
    PATIENCE,
    RECORD,
    Files,
    acknowledge,
    frames,
    greet,
    hello,
    join,
    leader,
    taken,
)


def test_alone_a_primary_acknowledges_at_once() -> None:
    subject = leader()
    assert subject.is_under_replicated
    assert subject.group_changed([Appended(LOG, 48, 100)]) == 1
    assert subject.acknowledged == 1


def test_a_follower_in_sync_is_waited_for() -> None:
    subject = leader(BOTH)
    subject.group_changed([Appended(LOG, 48, 100)])
    assert subject.acknowledged == 0


def test_nothing_is_acknowledged_before_the_record_says_that_the_primary_of_a_new_term_is_alone() -> None:
    """The members that were in sync before may lead until then."""
    subject = leader(BOTH.led_by("a", "boot-a"), min_in_sync=1)
    subject.group_changed([Appended(LOG, 48, 100)])
    subject.tick(0.0)
    alone = BOTH.led_by("a", "boot-a").with_in_sync({"a": "boot-a"})
    assert taken(subject) == [WriteRecord(alone)]
    assert (subject.acknowledged, subject.in_sync) == (0, ["a"])
    assert subject.is_under_replicated
    subject.record_written(alone)
    assert subject.acknowledged == 1


def test_a_follower_that_has_caught_up_is_waited_for_before_the_arbiter_knows() -> None:
    subject = leader()
    subject.group_changed([Appended(LOG, 48, 100)])
    join(subject)
    subject.group_changed([Appended(LOG, 100, 200)])
    assert subject.acknowledged == 2  # its copy is not applied
    acknowledge(subject, 1)  # the end of the copy
    subject.group_changed([Appended(LOG, 200, 300)])
    assert subject.acknowledged == 2
    assert WriteRecord not in map(type, taken(subject))  # it lacks group 2, which was acknowledged without it
    acknowledge(subject, 2)
    assert taken(subject) == [WriteRecord(BOTH)]
    acknowledge(subject, 3)
    assert subject.acknowledged == 3


def test_a_follower_learns_the_lease_of_the_primary() -> None:
    subject = leader(lease_s=10)
    greet(subject)
    subject.cut_taken(1, [])
    [welcome] = [frame for frame in frames(subject) if frame.kind is Kind.WELCOME]
    assert Welcome.from_bytes(bytes(welcome.payload)).lease_s == 10


def test_after_a_follower_is_lost_publishes_wait_until_the_arbiter_has_recorded_it() -> None:
    subject = leader()
    join(subject)
    acknowledge(subject, 1)
    assert taken(subject)[-1] == WriteRecord(BOTH)
    subject.record_written(BOTH)
    assert not subject.is_under_replicated
    subject.group_changed([Appended(LOG, 48, 100)])
    subject.disconnected(1)
    assert (subject.acknowledged, taken(subject)) == (0, [WriteRecord(RECORD)])
    subject.record_not_written()
    subject.tick(0.1)
    assert (subject.acknowledged, taken(subject)) == (0, [WriteRecord(RECORD)])
    subject.record_written(RECORD)
    assert subject.acknowledged == 1


def test_a_member_in_sync_that_connects_again_changes_no_file_before_the_arbiter_knows() -> None:
    subject = leader(BOTH)
    greet(subject)
    assert taken(subject) == [WriteRecord(RECORD)]
    subject.record_written(RECORD)
    assert taken(subject) == [TakeCut(1)]


def test_actions_since_the_cut_follow_the_copy() -> None:
    subject = leader()
    greet(subject)
    subject.cut_taken(1, [File(LOG, 1024, 100), File("checkpoint", 5, 5)])
    subject.group_changed([Appended(LOG, 100, 200), Appended(INDEX, 48, 96)])
    subject.group_changed([Appended(LOG, 200, 300)])
    subject.received(1, Frame(Kind.SUMS_END, 3, 0).to_bytes(), 0.0)
    acknowledge(subject, 0)
    kinds = [frame.kind for frame in frames(subject)]
    assert kinds == [Kind.WELCOME, Kind.MANIFEST, Kind.MANIFEST_END]
    assert isinstance(taken(subject)[-1], CompareFiles)
    subject.compared(1, [Copy(LOG, 0, 100)])
    copy, cut, tail = frames(subject)
    assert cut.kind is Kind.CUT
    assert decode_actions(copy.payload) == [
        Write(LOG, 0, bytes(100)),
        Create("checkpoint.new", 0),
        Write("checkpoint.new", 0, bytes(5)),
        Rename("checkpoint.new", "checkpoint"),
    ]
    assert [
        (each.path, each.offset, len(each.data)) for each in decode_actions(tail.payload) if isinstance(each, Write)
    ] == [
        (LOG, 100, 200),
        (INDEX, 48, 48),
    ]


def test_publishes_during_a_copy_are_sent_as_one_range_after_it() -> None:
    """However long a copy takes, it is followed by one action for each file, not by one for each publish."""
    subject = leader()
    join(subject, copies=[Copy(LOG, 0, 10 * MAX_PAYLOAD_BYTES)])
    end, groups = 10 * MAX_PAYLOAD_BYTES, 1000
    for number in range(groups):
        subject.group_changed(
            [Appended(LOG, end + 10 * number, end + 10 * number + 10), Appended(INDEX, 48 * number, 48 * number + 48)]
        )
    tail, is_copied = list[Action](), False
    while sent := frames(subject):
        for frame in sent:
            tail += decode_actions(frame.payload) if is_copied else []
            is_copied = is_copied or frame.kind is Kind.CUT
        assert subject.acknowledged == groups  # nobody waits for the follower
        acknowledge(subject, sent[-1].number)
    [record] = [effect.record for effect in taken(subject) if isinstance(effect, WriteRecord)]
    assert sorted(record.in_sync) == ["a", "b"]
    assert [(each.path, each.offset, len(each.data)) for each in tail if isinstance(each, Write)] == [
        (LOG, end, 10 * groups),
        (INDEX, 0, 48 * groups),
    ]


def test_actions_collected_during_a_copy_have_messages_before_their_commit_records() -> None:
    """Otherwise the follower would take the records for damaged. The journal comes after both."""
    subject = leader()
    greet(subject)
    subject.cut_taken(1, [File(LOG, 1024, 100)])
    subject.group_changed([Create(HEADERS, 0), Appended(INDEX, 48, 96), Appended("journal.1", 0, 10)])
    subject.group_changed([Appended(LOG, 100, 200), Appended(INDEX, 96, 144), Appended("journal.1", 10, 20)])
    subject.received(1, Frame(Kind.SUMS_END, 3, 0).to_bytes(), 0.0)
    frames(subject)
    subject.compared(1, [])
    tail = decode_actions(frames(subject)[-1].payload)
    assert [(each.path, len(each.data)) for each in tail if isinstance(each, Write)] == [
        (LOG, 100),
        (INDEX, 96),
        ("journal.1", 20),
    ]


def test_a_link_is_closed_if_a_file_cannot_be_read() -> None:
    """The actions taken for the frame are lost: a follower that got the rest would be in sync without them."""

    def read(unreadable: str, path: str, start: int, end: int) -> bytes:
        if path == unreadable:
            raise OSError("an input/output error")
        return bytes(end - start)

    for unreadable in ("checkpoint", INDEX, LOG):
        subject = Leader("a", RECORD, partial(read, unreadable), patience=PATIENCE)
        greet(subject)
        subject.cut_taken(1, [File(LOG, 1024, 100), File(INDEX, 1024, 100), File("checkpoint", 5, 5)])
        subject.received(1, Frame(Kind.SUMS_END, 3, 0).to_bytes(), 0.0)
        subject.compared(1, [Copy(LOG, 0, 100), Copy(INDEX, 0, 100)])
        subject.group_changed([Appended(LOG, 100, 200)])
        acknowledge(subject, 0)
        assert not [frame for frame in frames(subject) if frame.kind in (Kind.ACTIONS, Kind.CUT)]
        reasons = [effect.reason for effect in taken(subject) if isinstance(effect, Close)]
        assert reasons == ["a file cannot be read: an input/output error"]
        assert subject.acknowledged == subject.group == 1


def test_a_primary_goes_on_if_what_a_follower_in_sync_lacks_cannot_be_read() -> None:
    """Nothing is acknowledged before the arbiter has confirmed that the follower is not in sync."""
    is_readable = True

    def read(path: str, start: int, end: int) -> bytes:
        if not is_readable:
            raise OSError("an input/output error")
        return bytes(end - start)

    subject = Leader("a", RECORD, read, patience=PATIENCE)
    join(subject)
    acknowledge(subject, 1)
    [record] = [effect.record for effect in taken(subject) if isinstance(effect, WriteRecord)]
    subject.record_written(record)
    is_readable = False
    assert subject.group_changed([Appended(LOG, 100, 200)]) == 1
    [closed, written] = taken(subject)
    assert isinstance(closed, Close)
    assert written == WriteRecord(RECORD)
    assert subject.acknowledged == 0
    subject.record_written(RECORD)
    assert subject.acknowledged == 1


def test_a_large_checkpoint_is_sent_in_frames_of_bounded_size() -> None:
    subject = leader()
    greet(subject)
    size = 3 * MAX_PAYLOAD_BYTES
    subject.cut_taken(1, [File("checkpoint", size, size)])
    frames(subject)
    subject.compared(1, [])
    sent, number = 0, 0
    while sent < size:
        for frame in frames(subject):
            sent += sum(len(each.data) for each in decode_actions(frame.payload) if isinstance(each, Write))
            number = frame.number
        acknowledge(subject, number)
    assert sent == size


def test_a_silent_follower_is_dropped_and_a_stuck_one_too() -> None:
    subject = leader()
    join(subject)
    acknowledge(subject, 1)
    taken(subject)
    subject.tick(PATIENCE / 2)
    assert [frame.kind for frame in frames(subject)] == [Kind.PING]
    subject.group_changed([Appended(LOG, 48, 100)])
    for now in (0.9, 1.4):
        subject.received(1, Frame(Kind.ACK, 3, 1).to_bytes(), now)  # it answers, and applies nothing
    subject.tick(1.45)
    assert not [effect for effect in taken(subject) if isinstance(effect, Close)]
    subject.tick(1.6)
    assert [effect.reason for effect in taken(subject) if isinstance(effect, Close)] == ["nothing was applied for 1 s"]
    greet(subject, link=2, now=2.0)
    subject.tick(2.0 + PATIENCE + 0.1)
    assert [effect.reason for effect in taken(subject) if isinstance(effect, Close)] == ["nothing was received for 1 s"]


def test_a_primary_steps_down_when_a_member_has_seen_a_later_term() -> None:
    subject = leader()
    greet(subject, epoch=4)
    assert [type(effect) for effect in taken(subject)] == [StepDown]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [("other", "its data path or its arbiter is that of another pair"), ("", "it has seen term 4, and this is term 3")],
)
def test_a_later_term_of_another_pair_does_not_end_the_lead(pair: str, reason: str) -> None:
    subject = leader()
    greet(subject, epoch=4, pair=pair, has_data=False)
    assert [frame.payload.decode() for frame in frames(subject)] == [reason]
    assert taken(subject) == [Close(1, f"refused: {reason}")]


def test_connections_that_do_not_greet_make_room_for_others() -> None:
    subject = leader()
    join(subject)
    taken(subject)
    for link in range(2, 2 + MAX_STRANGERS + 2):
        subject.connected(link, 0.0)
    assert [effect.link for effect in taken(subject) if isinstance(effect, Close)] == [2, 3]


def test_a_stranger_cannot_announce_a_large_frame() -> None:
    """It is closed when the head of the frame arrives. A follower that has greeted may send such a frame."""
    subject = leader()
    join(subject)
    subject.connected(2, 0.0)
    taken(subject)
    for link in (1, 2):
        subject.received(link, (MAX_HELLO_BYTES + 1).to_bytes(4) + bytes(25), 0.0)
    assert taken(subject) == [Close(2, "a frame of 65,537 bytes is too large")]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"member": "a"}, "both members of the pair are called a"),
        ({"pair": "other"}, "its data path or its arbiter is that of another pair"),
        ({"pair": "", "has_data": True}, "its data path has messages and was never a mirror; empty it"),
    ],
)
def test_a_member_that_may_not_join_gets_the_reason(fields: dict[str, object], reason: str) -> None:
    subject = leader()
    greet(subject, **fields)  # type: ignore[arg-type]
    [frame] = frames(subject)
    assert (frame.kind, frame.payload.decode()) == (Kind.REFUSED, reason)
    assert taken(subject) == [Close(1, f"refused: {reason}")]


def test_with_min_in_sync_2_nothing_is_acknowledged_alone() -> None:
    subject = leader(min_in_sync=2)
    assert not subject.accepts_publishes
    subject.group_changed([Appended(LOG, 48, 100)])
    assert subject.acknowledged == 0


def test_a_file_that_was_deleted_before_it_was_sent_is_left_out() -> None:
    subject = Leader("a", RECORD, lambda path, start, end: None, patience=PATIENCE)
    join(subject)
    frames(subject)
    subject.group_changed([Appended(LOG, 48, 100), Delete(LOG)])
    [frame] = frames(subject)
    assert decode_actions(frame.payload) == [Delete(LOG)]


def test_a_follower_that_is_not_welcomed_yet_may_have_seen_an_earlier_term_only() -> None:
    """It answers a ping while the arbiter is slow to record that it is not in sync, and is not closed for it."""
    subject, follower = leader(BOTH), Follower(hello(), RECORD.epoch - 1, Files())
    subject.connected(1, 0.0)
    subject.received(1, follower.take_output(), 0.0)
    assert taken(subject) == [WriteRecord(RECORD)]
    subject.tick(PATIENCE / 2)
    [ping] = frames(subject)
    follower.received(ping.to_bytes())
    subject.received(1, follower.take_output(), PATIENCE / 2)
    assert taken(subject) == []
    subject.record_written(RECORD)
    assert taken(subject) == [TakeCut(1)]
