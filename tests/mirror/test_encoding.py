"""Actions, frames, greetings, manifests and records are decoded as they were encoded; anything else is refused."""

from __future__ import annotations

import random

import pytest

from brokerd.mirror.actions import Action, Create, Delete, MakeDirectory, Rename, Resize, Write, decode_actions
from brokerd.mirror.errors import InvalidStream
from brokerd.mirror.frames import JOINED_BELOW, MAX_PAYLOAD_BYTES, Frame, FrameReader, Kind
from brokerd.mirror.hello import Welcome
from brokerd.mirror.manifest import Copy, File, block_sums, missing
from brokerd.mirror.pair import InvalidRecord, PairRecord
from tests.mirror.state_machines import INDEX, LOG, encoded


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


def test_a_primary_of_a_version_that_does_not_send_its_lease_is_understood() -> None:
    welcome = Welcome.from_bytes(b'{"pair": "p", "node_id": 7, "tcp_port": 4150, "http_port": 4151}')
    assert welcome == Welcome(pair="p", node_id=7, tcp_port=4150, http_port=4151, lease_s=0)
