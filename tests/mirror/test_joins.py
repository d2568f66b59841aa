"""A follower joins with real files and threads, is dropped and killed at any moment, and ends with the same bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mirror.joins import Story, small_journals

SEEDS = (1, 2, 3, 4)


def test_checkpoints_are_never_damaged_and_files_end_equal(tmp_path: Path) -> None:
    """``python -m tests.mirror.joins`` tells more stories."""
    counts = Counter[str]()
    for seed in SEEDS:
        directory = tmp_path / str(seed)
        directory.mkdir()
        with small_journals():
            story = Story(seed, directory)
            story.tell()
        counts.update(story.counts)
    assert all(counts[end] for end in ("completed", "dropped", "killed", "killed at a call", "takeovers")), counts


def test_a_story_of_joins_can_go_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With checkpoints that are prepared as other files are, one is damaged as long as the copy is under way."""
    monkeypatch.setattr("brokerd.replica.is_replaced", lambda path: False)
    with small_journals(), pytest.raises(AssertionError, match="its checksum does not match"):
        Story(1, tmp_path).tell()
