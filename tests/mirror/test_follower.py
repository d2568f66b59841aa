"""The rules of the follower: which primary it follows, what it acknowledges, and which damage it finds."""

from __future__ import annotations

import pytest

from brokerd.file_header import HEADER_BYTES
from brokerd.kernel.commit import RECORD_BYTES, pack_record
from brokerd.mirror.actions import Create, Rename, Write
from brokerd.mirror.errors import Fenced, InvalidStream, JoinRefused, MirrorDamaged
from brokerd.mirror.follower import Follower
from brokerd.mirror.frames import Frame, FrameReader, Kind
from brokerd.mirror.hello import Welcome
from tests.mirror.state_machines import INDEX, LOG, Files, encoded, hello


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
