"""The rules of stamps, by which an older copy of a data path is recognised: who stores one, and when it is recorded."""

from __future__ import annotations

from brokerd.mirror.follower import Follower
from brokerd.mirror.frames import Frame, FrameReader, Kind
from brokerd.mirror.hello import Welcome
from brokerd.mirror.leader import Close, Leader, StoreStamp, WriteRecord
from brokerd.mirror.stamps import Stamps
from tests.mirror.state_machines import PATIENCE, RECORD, Files, acknowledge, frames, hello, join, leader, taken

INTERVAL = 0.2 * PATIENCE


def store_stamps(subject: Leader, at: float, stamps: Stamps) -> None:
    """The next stamp is due, and the primary stores ``stamps``: the record's and the next one."""
    subject.tick(at)
    assert StoreStamp(stamps.last) in taken(subject)
    subject.stamps_stored(stamps)


def confirm_stamps(subject: Leader, stamps: Stamps, link: int = 1) -> None:
    """The follower confirms that it has stored ``stamps``."""
    subject.received(link, Frame(Kind.STAMPED, 3, 0, stamps.to_bytes()).to_bytes(), 0.0)


def test_a_stamp_is_recorded_once_every_member_in_sync_has_stored_it() -> None:
    subject = leader(stamp_interval=INTERVAL)
    store_stamps(subject, 0.0, Stamps("", "s1"))
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
    confirm_stamps(subject, Stamps("", "s1"))
    both = alone.with_in_sync({"a": "boot-a", "b": "boot-b"})
    assert taken(subject) == [WriteRecord(both)]
    subject.record_written(both)

    store_stamps(subject, INTERVAL, Stamps("s1", "s2"))
    assert taken(subject) == []
    subject.tick(2 * INTERVAL)
    assert StoreStamp("s1") not in taken(subject)  # nobody may lack the record's stamp
    confirm_stamps(subject, Stamps("s1", "s2"))
    assert taken(subject) == [WriteRecord(both.with_stamp("s2"))]


def test_a_stamp_whose_record_got_no_answer_is_written_again_before_the_next_one() -> None:
    """The arbiter may have it, or not."""
    subject = leader(stamp_interval=INTERVAL)
    store_stamps(subject, 0.0, Stamps("", "s1"))
    assert taken(subject) == [WriteRecord(RECORD.with_stamp("s1"))]
    subject.record_not_written()
    subject.tick(2 * INTERVAL)
    assert taken(subject) == [WriteRecord(RECORD.with_stamp("s1"))]


def test_the_record_has_no_stamp_while_a_member_of_a_version_without_stamps_is_in_sync() -> None:
    """It could not lead when it is updated."""
    record = RECORD.with_stamp("s0")
    subject = leader(record, stamp_interval=INTERVAL)
    store_stamps(subject, 0.0, Stamps("s0", "s1"))
    taken(subject)
    subject.record_written(record.with_stamp("s1"))
    join(subject)
    taken(subject)
    acknowledge(subject, 1)
    both = record.with_in_sync({"a": "boot-a", "b": "boot-b"}).with_stamp("")
    assert taken(subject) == [WriteRecord(both)]


def test_a_follower_that_stores_no_stamps_is_dropped() -> None:
    """Its disk may hang. Without new stamps, an older copy would not be recognised."""
    subject = leader(stamp_interval=INTERVAL)
    store_stamps(subject, 0.0, Stamps("", "s1"))
    subject.record_written(RECORD.with_stamp("s1"))
    join(subject, stores_stamps=True)
    for at in (0.1, 0.3):
        subject.tick(at)
    assert Close not in map(type, taken(subject))
    subject.tick(0.6)
    assert [effect.reason for effect in taken(subject) if isinstance(effect, Close)] == [
        "it has stored no stamps for 0.6 s"
    ]


def test_a_follower_confirms_stamps_once_they_are_stored() -> None:
    subject = Follower(hello(), 0, Files())
    subject.received(Frame(Kind.WELCOME, 3, 0, Welcome(pair="p", node_id=7).to_bytes()).to_bytes())
    subject.take_output()
    subject.received(Frame(Kind.STAMPS, 3, 0, Stamps("s1", "s2").to_bytes()).to_bytes())
    assert subject.stamps == Stamps("s1", "s2")
    subject.take_output()
    subject.stamps_stored(Stamps("s1", "s2"))
    [frame] = FrameReader().feed(subject.take_output())
    assert (frame.kind, Stamps.from_bytes(bytes(frame.payload))) == (Kind.STAMPED, Stamps("s1", "s2"))
