"""Checkpoints: whatever happened to the newest file, the next checkpoint is written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd.journal.checkpoint import CHECKPOINT, NEW, PREVIOUS, Position, position_of
from brokerd.journal.journal import Journal
from brokerd.journal.recovery import journal_files, recover
from brokerd.journal.state import ChannelState, NodeState, TopicState


def node(head: int) -> NodeState:
    """One topic with one channel, whose messages below ``head`` were delivered."""
    state = NodeState()
    state.topics[3] = TopicState(3, "t", 0)
    state.channels[7] = ChannelState(7, 3, "c", head)
    return state


def fail(error: OSError) -> None:
    raise AssertionError(error)


class Running:
    """A journal, and the heads that its checkpoints have."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.head = directory, 0
        self.journal = Journal(
            directory,
            recover(directory),
            lambda: node(self.head),
            fail,
            call_soon=lambda run: None,
            call_later=lambda delay, run: None,
        )

    def checkpoint(self) -> None:
        """Begin a generation, and write a checkpoint in it."""
        self.head += 1
        self.journal._switch()
        self.journal.checkpoint()


def renames_fail(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new checkpoint cannot be renamed after the newest one was."""
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.name == NEW:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", failing)
        with pytest.raises(OSError, match="Input/output error"):
            running.checkpoint()


def deleted(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest checkpoint is deleted."""
    (running.directory / CHECKPOINT).unlink()


def both_deleted(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous one is deleted too."""
    (running.directory / CHECKPOINT).unlink()
    (running.directory / PREVIOUS).unlink()


@pytest.mark.parametrize("lose", [renames_fail, deleted, both_deleted])
def test_a_checkpoint_is_written_although_the_newest_is_gone(
    lose: Callable[[Running, pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older journals are removed; those that the previous checkpoint needs stay until the next one."""
    running = Running(tmp_path)
    for _ in range(3):
        running.checkpoint()
    lose(running, monkeypatch)
    if lose is not both_deleted:
        found = recover(tmp_path)
        assert found.losses == []
        assert [line.endswith("nothing is lost by it") for line in found.warnings] == [True]
    running.checkpoint()
    assert recover(tmp_path).warnings == []
    previous = position_of(tmp_path / PREVIOUS)
    if previous is not None:
        assert min(journal_files(tmp_path)) <= previous.generation
    running.checkpoint()
    assert (recover(tmp_path).warnings, recover(tmp_path).state.channels[7].head) == ([], running.head)
    previous = position_of(tmp_path / PREVIOUS)
    assert isinstance(previous, Position)
    assert min(journal_files(tmp_path)) == previous.generation
    (tmp_path / CHECKPOINT).write_bytes(b"damaged")
    assert recover(tmp_path).losses == []
    running.journal.close()
