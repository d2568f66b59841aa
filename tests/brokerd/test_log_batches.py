"""Small batches are copied into the segment's map, larger ones are written to its file; the resulting log is the
same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerd.log.batch import BodyBatch
from brokerd.log.log import Log
from nsqwire.frame import MESSAGE_HEAD_BYTES

ID_HEAD = b"9a4001"

batches = st.lists(
    st.lists(st.tuples(st.integers(0, 255), st.sampled_from([1, 30, 4000, 9000])), min_size=1, max_size=150),
    min_size=1,
    max_size=12,
)


def append(log: Log, bodies: list[bytes]) -> None:
    log.append(BodyBatch(bodies, ID_HEAD, 5))


@settings(max_examples=25, deadline=None)
@given(batches)
def test_batches_of_any_size_are_read_back(shapes: list[list[tuple[int, int]]]) -> None:
    """The messages are in order, for the writer and after opening the files anew, and nothing needs a repair."""
    published = [[bytes([value]) * size for value, size in shape] for shape in shapes]
    bodies = [body for batch in published for body in batch]
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory))
        for batch in published:
            append(log, batch)
        again, repairs = Log.recover(Path(directory), ID_HEAD)
        for held in (log, again):
            frames = [held.frame(seq) for seq in range(len(bodies))]
            assert [frame and bytes(frame[MESSAGE_HEAD_BYTES:]) for frame in frames] == bodies
        assert repairs == []
        log.close()


def test_only_the_newest_segments_file_is_open_for_writing(tmp_path: Path) -> None:
    """A file kept open would occupy the disk after its removal; a closed log has no file open."""
    log = Log(tmp_path)
    batch = [b"x" * 1000] * 100
    while len(log.segments) < 3:
        append(log, batch)
    append(log, batch)
    paths = [str(segment.path) for segment in log.segments]

    def written() -> list[str]:
        return [file.path for file in psutil.Process().open_files() if file.mode == "w" and file.path in paths]

    assert written() == paths[-1:]
    log.close()
    assert written() == []
