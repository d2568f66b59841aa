"""Reading the newest samples of an archive without Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.files import Folder
from nsqanalytics.recent import samples_since
from tests.analytics.conftest import MIDNIGHT


def test_files_that_compaction_replaces_meanwhile_are_read_again(
    make_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listed file that has gone is not an error: the folder is listed again."""
    broker = make_broker()
    broker.finish("t", "c", 1000, MIDNIGHT)
    for minute in range(3):
        ArchiveWriter(str(tmp_path)).write(broker.sample(MIDNIGHT + timedelta(minutes=minute)))
    listings: list[Any] = []

    def partitions(self: Folder) -> Any:
        found = original(self)
        listings.append(found)
        if len(listings) == 1:
            [files] = found.values()
            Path(files[0].path).unlink()
        return found

    original = Folder.partitions
    monkeypatch.setattr(Folder, "partitions", partitions)
    rows = samples_since(str(tmp_path), MIDNIGHT)
    assert len(listings) == 2
    assert sorted(rows["taken_at"].to_pylist()) == [MIDNIGHT + timedelta(minutes=minute) for minute in (1, 2)]
