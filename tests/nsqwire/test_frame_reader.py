"""Splitting a stream into frames, for any division of the stream into reads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqwire.frame import FrameError, FrameReader, encode_frame

FRAMES = st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=80)), max_size=20)
CUTS = st.lists(st.integers(0, 2000), max_size=20)


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


def read(reader: FrameReader, pieces: list[bytes]) -> list[tuple[int, bytes]]:
    """The frames returned by iteration."""
    frames = []
    for piece in pieces:
        reader.feed(piece)
        frames += list(reader)
    return frames


def take(reader: FrameReader, pieces: list[bytes]) -> list[tuple[int, bytes]]:
    """The frames found by ``take``."""
    frames = []
    for piece in pieces:
        data, spans = reader.take(piece)
        frames += [(frame_type, data[start:end]) for frame_type, start, end in spans]
    return frames


@given(FRAMES, CUTS)
def test_frames_are_read_as_they_were_written(frames, cuts):
    """All frames, in order and complete, in both ways of reading; bytes after them are left over."""
    stream = b"".join(encode_frame(frame_type, data) for frame_type, data in frames)
    iterated, taken = FrameReader(), FrameReader()
    pieces = pieces_of(stream + b"\0\0\0", cuts)
    assert read(iterated, pieces) == frames
    assert take(taken, pieces) == frames
    assert iterated.take_rest() == taken.take_rest() == b"\0\0\0"


@given(FRAMES, CUTS, st.one_of(st.integers(-(2**31), 3), st.integers(1001, 2**31 - 1)))
def test_a_size_that_cannot_be_ends_the_reading(frames, cuts, size):
    """At any position, and even if only the size has arrived, it is an error."""
    stream = b"".join(encode_frame(frame_type, data) for frame_type, data in frames)
    stream += size.to_bytes(4, "big", signed=True) + bytes(4)
    iterated, taken = FrameReader(1000), FrameReader(1000)
    pieces = pieces_of(stream, cuts)
    with pytest.raises(FrameError):
        read(iterated, pieces)
    with pytest.raises(FrameError):
        take(taken, pieces)
