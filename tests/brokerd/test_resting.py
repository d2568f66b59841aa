"""Topics that were quiet for a while: they hold no files open, and nobody can tell otherwise."""

from __future__ import annotations

from pathlib import Path

from brokerd.log.log import Log
from tests.brokerd.clockwork import START_S, Node


def open_below(directory: Path) -> list[str]:
    """What this process has open or mapped below ``directory``, the journal aside."""
    descriptors = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    maps = Path("/proc/self/maps").read_text().split()
    return [str(path) for path in [*descriptors, *maps] if str(path).startswith(f"{directory}/topics")]


def test_a_quiet_topic_lets_go_of_its_files_and_takes_them_up_again(tmp_path: Path) -> None:
    """Published to, read from and asked for its age, at rest and after it; what was in flight is still answered for."""
    node = Node(tmp_path)
    topic = node.broker.topic("t")
    got = node.consumer("t", "c", ready_count=2)
    topic.publish([b"a", b"b" * 20_000, b"c"])
    node.pass_until(START_S)
    topic.rest()
    assert open_below(tmp_path), "it is not quiet yet"
    topic.rest()
    assert open_below(tmp_path) == []
    for _ in range(3):
        assert topic.oldest_unfinished_age_ns(node.wall_ns()) is not None
        topic.rest()
    topic.rest()
    assert open_below(tmp_path) == []
    topic.publish([b"d", b"e" * 20_000])
    assert open_below(tmp_path)
    topic.rest()
    topic.rest()
    node.pass_until(START_S + 60)
    again = node.consumer("t", "c")
    node.pass_until(START_S + 60)
    assert sorted(body[:1] for _, _, body in got[2:] + again) == [b"a", b"b", b"c", b"d", b"e"]
    node.broker.close()


def test_what_a_socket_has_still_to_send_outlives_the_rest(tmp_path: Path) -> None:
    """A slice of the map keeps the map."""
    node = Node(tmp_path)
    node.broker.topic("t").publish([b"x" * 100])
    frame = node.broker.topic("t").log.frame(0)
    node.broker.topic("t").log.unmap()
    assert frame is not None
    assert bytes(frame[34:]) == b"x" * 100
    node.broker.close()


def test_a_log_in_memory_stays_where_it_is() -> None:
    """There is no file to read it from again."""
    log = Log(None)
    log.append(4, 1, 0, lambda buffer, offset, seq: (buffer.__setitem__(slice(offset, offset + 4), b"\0\0\0\0"), 4)[1])
    log.unmap()
    assert log.holds(0)
    assert bytes(log.segments[0].map[:4]) == b"\0\0\0\0"
