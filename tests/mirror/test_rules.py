"""The rules of leader, follower and election, each by itself: bytes, ticks and answers in, effects out."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from functools import partial

import pytest

from brokerd.file_header import HEADER_BYTES
from brokerd.kernel.commit import RECORD_BYTES, pack_record
from brokerd.mirror.actions import (
    Action,
    Create,
    Delete,
    MakeDirectory,
    Rename,
    Resize,
    Write,
    decode_actions,
    encode_actions,
)
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
from brokerd.mirror.errors import Fenced, InvalidStream, JoinRefused, MirrorDamaged
from brokerd.mirror.follower import Follower
from brokerd.mirror.frames import JOINED_BELOW, MAX_PAYLOAD_BYTES, Frame, FrameReader, Kind
from brokerd.mirror.hello import Hello, Welcome
from brokerd.mirror.leader import (
    MAX_STRANGERS,
    Appended,
    Close,
    CompareFiles,
    Leader,
    Send,
    StepDown,
    StoreStamp,
    TakeCut,
    WriteRecord,
)
from brokerd.mirror.manifest import Copy, File, block_sums, missing
from brokerd.mirror.pair import DURABLE_BOOT, InvalidRecord, PairRecord
from brokerd.mirror.stamps import Stamps

RECORD = PairRecord(pair="p", node_id=7, epoch=3, leader="a", in_sync={"a": "boot-a"})
LOG, INDEX, HEADERS = (f"topics/t.0/00000000000000000000.{suffix}" for suffix in ("log", "idx", "hdr"))
PATIENCE = 1.0


class Files:
    """A follower's files in memory."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.applied: list[Action] = []
        self.contents: dict[str, bytearray] = defaultdict(lambda: bytearray(1024))

    def begin(self, epoch: int, welcome: Welcome) -> None:
        self.begun.append(epoch)

    def apply(self, action: Action) -> None:
        self.applied.append(action)
        if isinstance(action, Write):
            self.contents[action.path][action.offset : action.offset + len(action.data)] = action.data

    def read(self, path: str, start: int, end: int) -> bytes:
        return bytes(self.contents[path][start:end])


def encoded(actions: list[Action]) -> bytes:
    return b"".join(encode_actions(actions))


def hello(member: str = "b", **fields: object) -> Hello:
    known: dict[str, object] = {"pair": "p", "boot": "boot-b", "has_data": True, **fields}
    return Hello(member=member, **known)  # type: ignore[arg-type]


def leader(record: PairRecord = RECORD, **more: float) -> Leader:
    return Leader("a", record, lambda path, start, end: bytes(end - start), patience=PATIENCE, **more)  # type: ignore[arg-type]


def frames(subject: Leader, link: int = 1) -> list[Frame]:
    """What was sent over a link, of the effects so far; the other effects stay."""
    reader, found, rest = FrameReader(), list[Frame](), []
    for effect in subject.effects:
        if isinstance(effect, Send) and effect.link == link:
            found += reader.feed(b"".join(effect.parts))
        else:
            rest.append(effect)
    subject.effects = rest
    return found


def taken(subject: Leader) -> list[object]:
    """The effects so far that send nothing."""
    effects = [effect for effect in subject.effects if not isinstance(effect, Send)]
    subject.effects = []
    return effects


def greet(subject: Leader, link: int = 1, epoch: int = 0, now: float = 0.0, **fields: object) -> None:
    subject.connected(link, now)
    subject.received(link, Frame(Kind.HELLO, epoch, 0, hello(**fields).to_bytes()).to_bytes(), now)  # type: ignore[arg-type]


def join(subject: Leader, link: int = 1, copies: list[Copy] | None = None, **fields: object) -> None:
    """Join a follower up to the end of its copy, which is sent and not applied."""
    greet(subject, link, **fields)  # type: ignore[arg-type]
    subject.cut_taken(link, [File(LOG, 1024, 100)])
    subject.received(link, Frame(Kind.SUMS_END, 3, 0).to_bytes(), 0.0)
    subject.compared(link, copies or [])


def acknowledge(subject: Leader, number: int, link: int = 1, now: float = 0.0) -> None:
    subject.received(link, Frame(Kind.ACK, 3, number).to_bytes(), now)


# -- actions and frames --------------------------------------------------------------------------------------------


def test_actions_are_decoded_as_they_were() -> None:
    actions: list[Action] = [
        MakeDirectory("topics"),
        Create(LOG, 1 << 40),
        Write(LOG, 48, b"frames"),
        Write("checkpoint.new", 0, b""),
        Resize(INDEX, 8192),
        Rename("checkpoint.new", "checkpoint"),
        Delete("topics/a.b-c_d.17.deleted-2"),
    ]
    assert decode_actions(encoded(actions)) == actions


@pytest.mark.parametrize(
    "path",
    ["../etc/passwd", "/etc/passwd", "mirror.json", "topics/t.0/../x", "topics/t", "", "journal.1/x", "topics//"],
)
def test_only_mirrored_files_can_be_changed(path: str) -> None:
    for action in (Create(path, 0), Rename("checkpoint", path)):
        with pytest.raises(InvalidStream, match="not the path of a mirrored file"):
            decode_actions(encoded([action]))


def test_incomplete_actions_are_refused() -> None:
    payload = encoded([Write(LOG, 1, b"abc"), Rename("checkpoint", "checkpoint.previous")])
    for end in range(1, len(payload)):
        if end != len(encoded([Write(LOG, 1, b"abc")])):
            with pytest.raises(InvalidStream):
                decode_actions(payload[:end])


def test_frames_arrive_whatever_the_pieces() -> None:
    sent = [Frame(Kind.ACTIONS, 3, 1, b"x" * 1000), Frame(Kind.PING, 3, 0), Frame(Kind.ACK, 3, 7)]
    data, reader, found = b"".join(frame.to_bytes() for frame in sent), FrameReader(), list[Frame]()
    for at in range(0, len(data), 7):
        found += reader.feed(data[at : at + 7])
    assert found == sent


def test_frames_are_taken_out_of_the_buffer_that_they_were_read_into() -> None:
    """Frames of all sizes, up to one that is larger than the buffer, read in pieces of all sizes."""
    chance = random.Random(7)
    sent = [
        Frame(Kind.ACTIONS, 3, number, chance.randbytes(chance.choice((0, 1, 40, 3000, JOINED_BELOW + 1, 100_000))))
        for number in range(200)
    ]
    data, reader, at = b"".join(frame.to_bytes() for frame in sent), FrameReader(4096), 0
    found = list[Frame]()
    while at < len(data):
        room = reader.get_buffer()
        nbytes = min(len(room), len(data) - at, chance.choice((1, 28, 500, 1 << 20)))
        room[:nbytes] = data[at : at + nbytes]
        at += nbytes
        found += [frame._replace(payload=bytes(frame.payload)) for frame in reader.read(nbytes)]
    assert found == sent


def test_a_frame_that_was_altered_is_refused() -> None:
    data = Frame(Kind.ACTIONS, 3, 1, b"payload").to_bytes()
    for at in range(4, len(data)):
        altered = bytearray(data)
        altered[at] ^= 4
        with pytest.raises(InvalidStream, match="altered"):
            FrameReader().feed(bytes(altered))


def test_a_frame_that_is_too_large_is_refused_before_it_is_kept() -> None:
    with pytest.raises(InvalidStream, match="too large"):
        FrameReader().feed((MAX_PAYLOAD_BYTES + 1).to_bytes(4) + bytes(25))


def test_a_copy_begins_with_the_first_block_that_differs() -> None:
    files = [File(LOG, 1024, 25), File(INDEX, 4096, 20), File("journal.1", 100, 0), File("checkpoint", 5, 5)]
    ours = {LOG: block_sums([b"a" * 10, b"b" * 10, b"c" * 5]), INDEX: block_sums([b"i", b"j"]), "journal.1": b""}
    theirs = {LOG: block_sums([b"a" * 10, b"x" * 10, b"c" * 5]), INDEX: ours[INDEX]}
    assert missing(files, theirs, ours, 10) == [Copy(LOG, 10, 25), Copy("checkpoint", 0, 5)]


def test_a_record_is_read_as_it_was_written() -> None:
    record = PairRecord(pair="p", node_id=7, epoch=4, leader="a", in_sync={"a": "1", "b": "2"})
    assert PairRecord.from_bytes(record.to_bytes()) == record
    for data in (b"", b"{}", b"[]", b'{"pair":1,"node_id":"x","epoch":1,"leader":"a","in_sync":{}}', b"\xff"):
        with pytest.raises(InvalidRecord):
            PairRecord.from_bytes(data)


# -- the leader ----------------------------------------------------------------------------------------------------


def test_alone_a_primary_acknowledges_at_once() -> None:
    subject = leader()
    assert subject.is_under_replicated
    assert subject.group_changed([Appended(LOG, 48, 100)]) == 1
    assert subject.acknowledged == 1


def test_a_follower_in_sync_is_waited_for() -> None:
    subject = leader(PairRecord(pair="p", node_id=7, epoch=3, leader="a", in_sync={"a": "boot-a", "b": "boot-b"}))
    subject.group_changed([Appended(LOG, 48, 100)])
    assert subject.acknowledged == 0


def test_nothing_is_acknowledged_before_the_record_says_that_the_primary_of_a_new_term_is_alone() -> None:
    """Who was in sync before may lead until then."""
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
    assert taken(subject) == [WriteRecord(RECORD.with_in_sync({"a": "boot-a", "b": "boot-b"}))]
    acknowledge(subject, 3)
    assert subject.acknowledged == 3


def test_a_follower_learns_the_lease_of_the_primary() -> None:
    subject = leader(lease_s=10)
    greet(subject)
    subject.cut_taken(1, [])
    [welcome] = [frame for frame in frames(subject) if frame.kind is Kind.WELCOME]
    assert Welcome.from_bytes(bytes(welcome.payload)).lease_s == 10


def test_a_primary_of_a_version_that_does_not_send_its_lease_is_understood() -> None:
    welcome = Welcome.from_bytes(b'{"pair": "p", "node_id": 7, "tcp_port": 4150, "http_port": 4151}')
    assert welcome == Welcome(pair="p", node_id=7, tcp_port=4150, http_port=4151, lease_s=0)


def test_what_depends_on_a_smaller_set_waits_until_the_arbiter_has_it() -> None:
    both = RECORD.with_in_sync({"a": "boot-a", "b": "boot-b"})
    subject = leader()
    join(subject)
    acknowledge(subject, 1)
    assert taken(subject)[-1] == WriteRecord(both)
    subject.record_written(both)
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
    both = RECORD.with_in_sync({"a": "boot-a", "b": "boot-b"})
    subject = leader(both)
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


def test_what_is_published_during_a_copy_is_sent_as_one_after_it() -> None:
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


def test_what_is_collected_during_a_copy_keeps_messages_before_their_commit_records() -> None:
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
    """What was taken for the frame is lost: a follower that got the rest would be in sync without it."""

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


def test_a_silent_follower_is_left_and_a_stuck_one_too() -> None:
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


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"member": "a"}, "both members of the pair are called a"),
        ({"pair": "other"}, "its data path or its arbiter is that of another pair"),
        ({"pair": "", "has_data": True}, "its data path has messages and was never a mirror; empty it"),
    ],
)
def test_who_may_not_join_gets_the_reason(fields: dict[str, object], reason: str) -> None:
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


# -- stamps --------------------------------------------------------------------------------------------------------


INTERVAL = 0.2 * PATIENCE


def stamp(subject: Leader, at: float, stamps: Stamps) -> None:
    """Let the next stamp become due, and be stored by the primary. ``stamps``: the record's and the next one."""
    subject.tick(at)
    assert StoreStamp(stamps.last) in taken(subject)
    subject.stamps_stored(stamps)


def stamped(subject: Leader, stamps: Stamps, link: int = 1) -> None:
    """Let a follower say that it has stored stamps."""
    subject.received(link, Frame(Kind.STAMPED, 3, 0, stamps.to_bytes()).to_bytes(), 0.0)


def test_a_stamp_is_recorded_once_every_member_in_sync_has_stored_it() -> None:
    subject = leader(stamp_interval=INTERVAL)
    stamp(subject, 0.0, Stamps("", "s1"))
    alone = RECORD.with_stamp("s1")
    assert taken(subject) == [WriteRecord(alone)]
    subject.record_written(alone)
    join(subject, stores_stamps=True)
    assert [Stamps.from_bytes(bytes(each.payload)) for each in frames(subject) if each.kind is Kind.STAMPS] == [
        Stamps("", "s1")
    ]
    taken(subject)
    acknowledge(subject, 1)
    assert taken(subject) == []  # it has everything, but not the stamps
    stamped(subject, Stamps("", "s1"))
    both = alone.with_in_sync({"a": "boot-a", "b": "boot-b"})
    assert taken(subject) == [WriteRecord(both)]
    subject.record_written(both)

    stamp(subject, INTERVAL, Stamps("s1", "s2"))
    assert taken(subject) == []
    subject.tick(2 * INTERVAL)
    assert StoreStamp("s1") not in taken(subject)  # nobody may lack the record's stamp
    stamped(subject, Stamps("s1", "s2"))
    assert taken(subject) == [WriteRecord(both.with_stamp("s2"))]


def test_a_stamp_whose_record_was_not_answered_is_written_again_before_there_is_another() -> None:
    """The arbiter may have it, or not."""
    subject = leader(stamp_interval=INTERVAL)
    stamp(subject, 0.0, Stamps("", "s1"))
    assert taken(subject) == [WriteRecord(RECORD.with_stamp("s1"))]
    subject.record_not_written()
    subject.tick(2 * INTERVAL)
    assert taken(subject) == [WriteRecord(RECORD.with_stamp("s1"))]


def test_the_record_has_no_stamp_while_a_member_of_a_version_without_stamps_is_in_sync() -> None:
    """It could not lead when it is updated."""
    record = RECORD.with_stamp("s0")
    subject = leader(record, stamp_interval=INTERVAL)
    stamp(subject, 0.0, Stamps("s0", "s1"))
    taken(subject)
    subject.record_written(record.with_stamp("s1"))
    join(subject)
    taken(subject)
    acknowledge(subject, 1)
    both = record.with_in_sync({"a": "boot-a", "b": "boot-b"}).with_stamp("")
    assert taken(subject) == [WriteRecord(both)]


def test_a_follower_that_stores_no_stamps_is_left() -> None:
    """Its disk may hang. Without new stamps, an older copy would not be recognised."""
    subject = leader(stamp_interval=INTERVAL)
    stamp(subject, 0.0, Stamps("", "s1"))
    subject.record_written(RECORD.with_stamp("s1"))
    join(subject, stores_stamps=True)
    for at in (0.1, 0.3):
        subject.tick(at)
    assert Close not in map(type, taken(subject))
    subject.tick(0.6)
    assert [effect.reason for effect in taken(subject) if isinstance(effect, Close)] == [
        "it has stored no stamps for 0.6 s"
    ]


def test_a_follower_says_that_it_has_stored_stamps() -> None:
    subject = Follower(hello(), 0, Files())
    subject.received(Frame(Kind.WELCOME, 3, 0, Welcome(pair="p", node_id=7).to_bytes()).to_bytes())
    subject.take_output()
    subject.received(Frame(Kind.STAMPS, 3, 0, Stamps("s1", "s2").to_bytes()).to_bytes())
    assert subject.stamps == Stamps("s1", "s2")
    subject.take_output()
    subject.stamps_stored(Stamps("s1", "s2"))
    [frame] = FrameReader().feed(subject.take_output())
    assert (frame.kind, Stamps.from_bytes(bytes(frame.payload))) == (Kind.STAMPED, Stamps("s1", "s2"))


# -- the follower --------------------------------------------------------------------------------------------------


def follower(epoch: int = 3) -> tuple[Follower, Files]:
    files = Files()
    subject = Follower(hello(), epoch, files)
    subject.take_output()
    return subject, files


def welcome(epoch: int = 3) -> bytes:
    return Frame(Kind.WELCOME, epoch, 0, Welcome(pair="p", node_id=7).to_bytes()).to_bytes()


def joined() -> tuple[Follower, Files]:
    subject, files = follower()
    subject.received(welcome() + Frame(Kind.MANIFEST_END, 3, 0).to_bytes())
    assert subject.awaits_sums
    subject.compared({})
    subject.received(Frame(Kind.CUT, 3, 1).to_bytes())
    subject.take_output()
    return subject, files


def test_a_follower_refuses_a_primary_of_an_earlier_term() -> None:
    subject, files = follower(epoch=4)
    with pytest.raises(Fenced, match="term 3, and term 4"):
        subject.received(welcome(3))
    assert not files.begun


def test_a_follower_that_is_refused_knows_why_although_it_has_seen_a_later_term() -> None:
    subject, _ = follower(epoch=4)
    with pytest.raises(JoinRefused, match="its data path or its arbiter is that of another pair"):
        subject.received(Frame(Kind.REFUSED, 3, 0, b"its data path or its arbiter is that of another pair").to_bytes())


def test_a_follower_records_the_term_before_it_changes_a_file() -> None:
    subject, files = follower(epoch=2)
    with pytest.raises(InvalidStream):
        subject.received(Frame(Kind.ACTIONS, 3, 1, encoded([Create(LOG, 1)])).to_bytes())
    assert not files.applied
    subject, files = follower(epoch=2)
    subject.received(welcome(3))
    assert (files.begun, subject.epoch) == ([3], 3)


def test_a_follower_acknowledges_after_it_has_applied() -> None:
    subject, files = joined()
    subject.received(Frame(Kind.ACTIONS, 3, 2, encoded([Create(LOG, 9)])).to_bytes())
    assert files.applied == [Create(LOG, 9)]
    assert FrameReader().feed(subject.take_output()) == [Frame(Kind.ACK, 3, 2)]


def test_a_follower_that_misses_a_frame_stops() -> None:
    subject, files = joined()
    with pytest.raises(InvalidStream, match="frame 3 follows frame 1"):
        subject.received(Frame(Kind.ACTIONS, 3, 3, encoded([Create(LOG, 9)])).to_bytes())
    assert not files.applied
    assert not subject.take_output()


def test_a_follower_does_not_replace_a_checkpoint_by_a_damaged_one() -> None:
    subject, files = joined()
    rename = Rename("checkpoint.new", "checkpoint")
    with pytest.raises(MirrorDamaged, match="a new checkpoint is damaged"):
        subject.received(Frame(Kind.ACTIONS, 3, 2, encoded([rename])).to_bytes())
    assert rename not in files.applied
    assert not subject.take_output()


@pytest.mark.parametrize("cut", [0, 1, 20, RECORD_BYTES - 1])
def test_a_follower_that_finds_damage_does_not_acknowledge(cut: int) -> None:
    """Whether the commit record comes at once or in two parts."""
    subject, _ = joined()
    batch = b"a batch of frames"
    record = pack_record(0, 100 + len(batch), 1, 12345, 1, 0, len(batch))
    parts = [Write(INDEX, HEADER_BYTES, record[:cut]), Write(INDEX, HEADER_BYTES + cut, record[cut:])]
    actions = [Write(LOG, 100, batch), *(part for part in parts if part.data)]
    with pytest.raises(MirrorDamaged, match="from number 0 on"):
        subject.received(Frame(Kind.ACTIONS, 3, 2, encoded(actions)).to_bytes())
    assert not subject.take_output()


def test_a_follower_that_may_not_join_says_why() -> None:
    subject, _ = follower()
    with pytest.raises(JoinRefused, match="empty it"):
        subject.received(Frame(Kind.REFUSED, 3, 0, b"empty it").to_bytes())


# -- the election --------------------------------------------------------------------------------------------------

LEASE = 10.0


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


BOTH = RECORD.with_in_sync({"a": "boot-a", "b": "boot-b"})


LED = BOTH.led_by("b", "boot-b")


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


def test_who_founded_a_pair_and_did_not_hear_the_answer_may_lead_it() -> None:
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
