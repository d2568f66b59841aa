"""What a primary reads of its files for the follower."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from brokerd.mirror.leader import Appended
from brokerd.recorder import Recorder
from tests.brokerd.clockwork import Node

SEGMENT_BYTES = 256 * 1024


@pytest.mark.parametrize("segments", [1, 4])
def test_a_segment_that_was_removed_since_it_was_recorded_is_not_read(tmp_path: Path, segments: int) -> None:
    """Until the next sweep it is recorded. Its file is deleted, or is that of the segment that was begun meanwhile."""
    node = Node(tmp_path)
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    recorder = Recorder(node.broker)
    for _ in range(segments * SEGMENT_BYTES // 50_000):
        topic.publish([os.urandom(50_000)])
        recorder.wrote(topic.log.segments[-1])
        appended = [entry for entry in recorder.take_group(sweep=True) if isinstance(entry, Appended)]
    of_log, of_index = (next(each for each in appended if each.path.endswith(end)) for end in (".log", ".idx"))
    assert recorder.read(*of_log)
    assert recorder.read(*of_index)
    topic.publish([os.urandom(topic.log.segments[-1].capacity)])
    channel.empty()
    topic.publish([os.urandom(topic.log.segments[-1].capacity)])
    assert not any(segment.path is not None and segment.path.name in of_log.path for segment in topic.log.segments)
    assert recorder.read(*of_log) is None
    assert recorder.read(*of_index) is None
    recorder.close()
    node.kill()
