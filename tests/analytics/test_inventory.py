"""The size of an archive by dataset, its growth and what is expected of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nsqanalytics.inventory import SETTLED, Dataset, Inventory, inventory

MIDNIGHT = datetime(2026, 3, 14, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MB = 1_000_000


def dataset(days: list[int], since: datetime = MIDNIGHT, name: str = "samples") -> Dataset:
    """A dataset with these bytes by day."""
    by_day = {since + n * DAY: size for n, size in enumerate(days)}
    return Dataset(name, len(days), sum(days), min(by_day), max(by_day), by_day)


def put(root: Path, place: str, size: int) -> None:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_files_are_counted_by_dataset(tmp_path):
    """Unfinished files and those in other folders belong to none."""
    put(tmp_path, "samples/date=2026-03-14/hour=05/0000-a.parquet", 100)
    put(tmp_path, "samples/date=2026-03-14/hour=06/0000-a.parquet", 200)
    put(tmp_path, "samples/date=2026-03-15/hour=00/0000-a.parquet", 50)
    put(tmp_path, "lives/date=2026-03-14/hour=05/0000-d.parquet", 9)
    put(tmp_path, "samples/_writing/0000-b.parquet", 1_000)
    put(tmp_path, "samples/_damaged/date=2026-03-14/hour=05/0000-c.parquet", 7)
    put(tmp_path, "rollups/hourly/date=2026-03-14/hour=05/a-b-c.parquet", 20)
    put(tmp_path, "rollups/daily/date=2026-03-14/a.parquet", 30)
    put(tmp_path, "rollups/daily/_damaged/date=2026-03-14/b.parquet", 5)
    put(tmp_path, "iceberg/stats/metadata/00000.metadata.json", 40)
    found = {each.name: each for each in inventory(str(tmp_path)).datasets}
    assert {name: (each.files, each.bytes) for name, each in found.items()} == {
        "samples": (3, 350),
        "lives": (1, 9),
        "hourly": (1, 20),
        "daily": (1, 30),
        "damaged": (2, 12),
        "iceberg": (1, 40),
    }
    assert found["samples"].days == {MIDNIGHT: 300, MIDNIGHT + DAY: 50}
    assert (found["samples"].oldest, found["samples"].newest) == (MIDNIGHT + 5 * HOUR, MIDNIGHT + DAY)


def test_there_is_no_archive_yet(tmp_path):
    found = inventory(str(tmp_path / "archive"))
    assert [(each.files, each.oldest) for each in found.datasets] == [(0, None)] * 6
    assert found.size_at(found.listed_at + DAY, {"samples": None, "hourly": None, "daily": None}) == 0


def test_the_growth_is_known_after_the_first_whole_day():
    """The archive's first day does not count, nor a day whose hours may not have been compacted."""
    found = dataset([10 * MB, 100 * MB, 60 * MB])
    settled = MIDNIGHT + 2 * DAY + SETTLED
    assert found.growth(settled - timedelta(seconds=1)) is None
    assert found.size_at(settled + DAY, settled - timedelta(seconds=1), None) is None
    assert found.growth(settled) == 100 * MB


def test_the_growth_is_the_mean_of_seven_days_also_of_those_without_readings():
    found = dataset([1, 900, 10, 20, 30, 40, 50, 60, 70, 5])
    now = MIDNIGHT + 9 * DAY + 12 * HOUR
    assert found.counted_days(now) == [MIDNIGHT + n * DAY for n in range(2, 9)]
    assert found.growth(now) == 40
    gap = Dataset("samples", 2, 90, MIDNIGHT, MIDNIGHT, {MIDNIGHT: 1, MIDNIGHT + DAY: 60, MIDNIGHT + 3 * DAY: 30})
    assert gap.growth(now) == 30


@pytest.mark.parametrize(
    ("days", "expected"),
    [(0, 5 * MB), (1, 6 * MB), (5, 10 * MB), (6, 10 * MB), (400, 10 * MB)],
)
def test_retention_ends_the_growth(days, expected):
    """Five days of 1 MB, of which ten are kept: it grows for five more, and then stays."""
    now = MIDNIGHT + 5 * DAY
    assert dataset([MB] * 5).size_at(now + days * DAY, now, 10 * DAY) == pytest.approx(expected)


def test_without_retention_it_grows_for_ever():
    now = MIDNIGHT + 5 * DAY
    assert dataset([MB] * 5).size_at(now + 365 * DAY, now, None) == pytest.approx(370 * MB)


def test_the_disk_is_full_when_all_datasets_together_have_grown_by_the_free_space():
    """Damaged files stay as they are."""
    now = MIDNIGHT + 5 * DAY
    parts = (dataset([MB] * 5), dataset([MB] * 5, name="hourly"), Dataset("damaged", 1, 3 * MB))
    found = Inventory(now, parts)
    ten = {"samples": 10 * DAY, "hourly": 10 * DAY}
    assert found.size_at(now + 30 * DAY, ten) == pytest.approx(23 * MB)
    assert found.full_at(10 * MB, ten) == now + 5 * DAY
    assert found.full_at(11 * MB, ten) is None
    assert found.full_at(200 * MB, {"samples": None, "hourly": None}) == now + 100 * DAY
    assert found.full_at(0, ten) == now


def test_a_part_whose_growth_is_not_known_yet_stays_as_it_is():
    """Such as the events of sampled messages on the first day of a policy. If no growth is known, no size is."""
    now = MIDNIGHT + 5 * DAY
    new = dataset([MB], since=MIDNIGHT + 4 * DAY, name="lives")
    kept = {"samples": None, "lives": None}
    found = Inventory(now, (dataset([MB] * 5), new))
    assert found.size_at(now + DAY, kept) == pytest.approx(7 * MB)
    assert found.full_at(10 * MB, kept) == now + 10 * DAY
    assert Inventory(now, (new,)).size_at(now + DAY, kept) is None
    assert Inventory(now, (new,)).full_at(1, kept) is None
