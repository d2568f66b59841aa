"""The size of the archive over HTTP: a task lists it, and a request returns the last listing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.iceberg.registration import register
from nsqanalytics.schema import Sample
from nsqplatform.reports import tasks
from nsqplatform.reports.archive_size import LISTED

DAY = timedelta(days=1)


@pytest.fixture
def root(settings: Any, tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def list_requests(redis, settings):
    """Returns the clusters whose archives the platform has asked the dispatcher to list."""

    def found() -> list[str]:
        requests = [json.loads(each) for each in redis.lrange("dispatch", 0, -1)]
        return [each["headers"]["argsrepr"] for each in requests if each["headers"]["task"] == "reports.list_archive"]

    return found


def put(root: Path, start: datetime, size: int, part: str = "samples") -> None:
    path = root / f"{part}/date={start:%Y-%m-%d}/hour={start:%H}/0000-a.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_a_request_asks_for_a_listing_and_a_later_one_has_it(caller, root, list_requests):
    """The web process itself lists nothing, and asks once, however many requests there are."""
    ask = caller("viewer")
    put(root, datetime(2026, 3, 14, 5, tzinfo=UTC), 100)
    for _ in range(3):
        status, found = ask("GET", "reports/archive")
        assert (status, found["listed_at"], found["datasets"]) == (200, None, [])
    assert list_requests() == ["('default',)"]

    tasks.list_archive("default")
    status, found = ask("GET", "reports/archive")
    assert status == 200
    assert found["listed_at"] is not None
    assert found["place"] == str(root)
    samples, *others = found["datasets"]
    assert (samples["title"], samples["files"], samples["bytes"]) == ("Samples", 1, 100)
    assert samples["oldest"] == samples["newest"] == 1_773_464_400_000
    assert {each["files"] for each in others} == {0}
    assert [each["name"] for each in found["datasets"] if each["grows"]] == ["samples", "lives", "hourly", "daily"]
    assert found["free_bytes"] <= found["disk_bytes"]
    assert len(list_requests()) == 1


def test_a_listing_that_is_old_is_returned_and_made_anew(caller, root, redis, list_requests):
    ask = caller("viewer")
    put(root, datetime(2026, 3, 14, 5, tzinfo=UTC), 100)
    tasks.list_archive("default")
    assert ask("GET", "reports/archive")[1]["bytes"] == 100
    assert list_requests() == []
    redis.expire(LISTED(), 1_000)
    assert ask("GET", "reports/archive")[1]["bytes"] == 100
    assert len(list_requests()) == 1
    redis.set(LISTED(), b'{"place": 5}')  # of another version
    assert ask("GET", "reports/archive")[1]["listed_at"] is None


def test_the_forecast_uses_the_retention_of_the_schedule(caller, root):
    """Ten days with a megabyte each, of which samples are kept for twelve."""
    ask = caller("admin")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day in range(10):
        put(root, today - (10 - day) * DAY, 1_000_000)
    tasks.list_archive("default")
    _, found = ask("GET", "reports/archive")
    assert (found["schedule"], found["datasets"][0]["kept_days"]) == (None, None)
    assert found["growth_bytes_per_day"] == 1_000_000
    assert found["bytes_in_30_days"] == pytest.approx(40_000_000)
    assert found["bytes_at_retention"] is None

    body = {"name": "Tidy", "job": "retain", "parameters": {"samples": "12d"}, "cron": "0 1 * * *"}
    _, schedule = ask("POST", "reports/schedules", body)
    tasks.list_archive("default")
    _, found = ask("GET", "reports/archive")
    assert found["schedule"] == {"id": schedule["id"], "name": "Tidy"}
    assert found["datasets"][0]["kept_days"] == 12
    assert found["bytes_in_30_days"] == found["bytes_in_90_days"] == found["bytes_at_retention"] == 12_000_000
    assert found["retention_reached_at"] == (today + 2 * DAY).timestamp() * 1000
    assert [each["bytes"] for each in found["days"]] == [1_000_000] * 10

    ask("PATCH", f"reports/schedules/{schedule['id']}", {"enabled": False})
    tasks.list_archive("default")
    assert ask("GET", "reports/archive")[1]["schedule"] is None


def test_an_archive_of_a_day_says_what_is_not_known(caller, root):
    ask = caller("viewer")
    yesterday = (datetime.now(UTC) - DAY).replace(minute=0, second=0, microsecond=0)
    put(root, yesterday, 1_000_000)
    tasks.list_archive("default")
    _, found = ask("GET", "reports/archive")
    samples = found["datasets"][0]
    assert samples["growth_bytes_per_day"] is samples["bytes_in_30_days"] is found["bytes_in_30_days"] is None
    assert found["full_at"] is None
    assert samples["growth_known_at"] == (yesterday.replace(hour=0) + 2 * DAY + timedelta(hours=4)).timestamp() * 1000


def test_events_since_today_do_not_make_the_size_unknown(caller, root):
    """Their growth is known after a whole day; until then, the sizes are those without it."""
    ask = caller("viewer")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day in range(10):
        put(root, today - (10 - day) * DAY, 1_000_000)
    put(root, today, 1_000, part="lives")
    tasks.list_archive("default")
    _, found = ask("GET", "reports/archive")
    samples, lives, *_ = found["datasets"]
    assert lives["growth_bytes_per_day"] is lives["bytes_in_30_days"] is None
    assert lives["growth_known_at"] == (today + 2 * DAY + timedelta(hours=4)).timestamp() * 1000
    assert found["growth_bytes_per_day"] == samples["growth_bytes_per_day"] == 1_000_000
    assert found["bytes_in_30_days"] == samples["bytes_in_30_days"] + 1_000


def test_what_is_registered_in_a_catalog_and_why_it_failed(caller, root, tmp_path):
    ask = caller("viewer")
    at = datetime(2026, 3, 14, tzinfo=UTC)
    ArchiveWriter(str(root)).write([Sample(taken_at=at, node="n", boot_id="b", started_at=at, topic="t")])
    register(str(root), f"sqlite:///{tmp_path}/catalog.sqlite3", "nsq", at + DAY)
    tasks.list_archive("default")
    iceberg = ask("GET", "reports/archive")[1]["iceberg"]
    assert iceberg["error"] == ""
    [table] = iceberg["tables"]
    assert (table["name"], table["files"], table["rows"]) == ("nsq.stats", 1, 1)
    register(str(root), f"sqlite:///{tmp_path}/nowhere/catalog.sqlite3", "nsq", at + DAY)
    tasks.list_archive("default")
    iceberg = ask("GET", "reports/archive")[1]["iceberg"]
    assert iceberg["error"].endswith("cannot be used: unable to open database file")
    assert iceberg["tables"] == [table]


@pytest.mark.parametrize(("place", "reason"), [("file", "file is not a folder"), ("file/archive", "Not a directory")])
def test_an_archive_that_cannot_be_listed_says_why(caller, settings, tmp_path, place, reason):
    ask = caller("viewer")
    (tmp_path / "file").write_text("")
    settings.NSQ_ARCHIVE = str(tmp_path / place)
    tasks.list_archive("default")
    _, found = ask("GET", "reports/archive")
    assert found["listed_at"] is None
    assert reason in found["error"]


def test_a_damaged_state_of_the_registration_is_an_error_and_no_listing_for_ever(caller, root):
    ask = caller("viewer")
    (root / "iceberg").mkdir(parents=True)
    (root / "iceberg" / "state.json").write_text(
        '{"catalog": 5, "tried_at": "2026-03-14T00:00:00+00:00", "error": "", "tables": []}'
    )
    tasks.list_archive("default")
    _, found = ask("GET", "reports/archive")
    assert (found["listed_at"], found["datasets"]) == (None, [])
    assert "catalog" in found["error"]


def test_nobody_sees_it_without_signing_in(caller):
    ask = caller("viewer")
    ask("DELETE", "session")
    assert ask("GET", "reports/archive")[0] == 401
