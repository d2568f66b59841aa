"""Figures of the last days, weeks and months: kept in files, read by scripts and charts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from redis import Redis

from nsqplatform.cluster import tasks
from nsqplatform.cluster.history import files, rollup
from nsqplatform.cluster.history.records import Recorder
from nsqplatform.cluster.store import HISTORY_EXPIRES_S, KEEP_HISTORY
from tests.platform.test_history import snapshot

pytestmark = pytest.mark.django_db

MINUTE, HOUR, DAY = 60, 3600, 86_400
SELDOM = 120
"""Seconds between the polls of a test that polls for days, and for which fewer are as good as one every 30 s."""


class Days:
    """A platform whose collector polled every 30 s, and whose maintenance ran every 40 minutes, nearly the maximum."""

    def __init__(self, redis: Redis, root: Path, days: dict[str, int]) -> None:
        self.redis, self.kept, self._recorder = redis, rollup.HistoryFolder(root, days), Recorder()

    def poll(self, at: int, depth: int, rate: float | None = 2.0, topics: int = 1) -> None:
        records = self._recorder.record(snapshot(at, depth=depth, rate=rate, topics=topics))
        arguments = [part for _, offset, record in records for part in (offset, record)]
        self.redis.eval(KEEP_HISTORY, len(records), *(key for key, _, _ in records), HISTORY_EXPIRES_S, *arguments)

    def keep(self, now: int) -> None:
        rollup.keep(self.redis, self.kept, now)

    def pass_by(self, seconds: Iterable[int], depth: Any) -> None:
        """Poll at these times, with the depth that ``depth`` returns for each, and run the maintenance in between."""
        for at in seconds:
            self.poll(at, depth(at))
            if at % 2400 < 30:
                self.keep(at)


@pytest.fixture
def days(redis: Redis, settings: Any, tmp_path: Path) -> Days:
    settings.NSQ_HISTORY = tmp_path / "history"
    return Days(redis, settings.NSQ_HISTORY, settings.NSQ_HISTORY_DAYS)


@pytest.fixture
def ask(browser: Any, account: Any) -> Any:
    account("viewer")
    page = browser()
    page.sign_in("viewer")

    def history(question: str = "", **window: int) -> Any:
        words = "".join(f"&{name.rstrip('_')}={value}" for name, value in window.items())
        answer = page.request("GET", f"history?scope=topic&topic=t0&series=depth{question}{words}")
        assert answer.status_code == 200, answer.json()
        return answer.json()

    return history


def pairs(answer: Any, metric: str = "depth") -> dict[int, float | None]:
    return dict(zip(answer["times"], answer["metrics"][metric], strict=True))


def depth_of(at: int) -> int:
    """A depth that grows with every poll."""
    return at // 30 - 59_000_000


def test_the_depth_of_yesterday_at_three_is_what_it_was(days, ask):
    """In steps of ten seconds and by minute with each maximum; it is still there after Redis lost everything."""
    now = int(time.time()) // 30 * 30
    days.pass_by(range(now - 52 * HOUR, now + 1, 30), depth_of)
    midnight = int(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp())
    three = midnight - DAY + 3 * HOUR
    fine = ask(from_=three, to=three + 600, step=10)
    assert fine["step_s"] == 10
    polled = {at // 10 * 10: float(depth_of(at)) for at in range(three, three + 600, 30)}
    assert {at: value for at, value in pairs(fine).items() if value is not None} == polled
    by_minute = pairs(ask(from_=three, to=three + 600, step=60))
    assert by_minute == {at: float(max(depth_of(at), depth_of(at + 30))) for at in range(three, three + 600, 60)}
    days.redis.flushall()
    assert pairs(ask(from_=three, to=three + 600, step=60)) == by_minute
    everything = ask(from_=now - 60 * HOUR, to=now)
    assert len(everything["times"]) <= 1000
    assert everything["times"][0] >= now - 53 * HOUR
    assert None not in everything["metrics"]["depth"]
    by_hour = pairs(ask(from_=now - 450 * DAY, to=now))
    assert depth_of(now - 3000) <= max(by_hour.values()) <= depth_of(now)


def test_an_hour_nobody_recorded_is_a_gap(days, ask):
    """The hours in which the collector was down are nulls, at every step; neither zeros nor interpolated."""
    now = int(time.time()) // 30 * 30
    gap = range((now - 30 * HOUR) // HOUR * HOUR, (now - 28 * HOUR) // HOUR * HOUR)
    days.pass_by((at for at in range(now - 33 * HOUR, now - 26 * HOUR, 30) if at not in gap), lambda _: 0)
    for step in (10, 60, 600, 3600):
        known = pairs(ask(from_=gap.start - HOUR, to=gap.stop + HOUR, step=step))
        inside = [value for at, value in known.items() if at in gap]
        assert len(inside) == len(gap) // step
        assert set(inside) == {None}
        assert {value for at, value in known.items() if at not in gap} - {None} == {0.0}


def test_a_peak_of_one_poll_is_seen_in_a_year(days, ask):
    """Of an hour or a day the highest depth is kept; a rate is averaged."""
    now = int(time.time()) // SELDOM * SELDOM
    peak = now - 40 * HOUR
    days.pass_by(range(now - 50 * HOUR, now + 1, SELDOM), lambda at: 9_000 if at == peak else 3)
    for span in (DAY * 3, DAY * 30, DAY * 400):
        answer = ask(from_=now - span, to=now)
        assert max(value for value in answer["metrics"]["depth"] if value is not None) == 9_000
        assert len(answer["times"]) <= 1_000


def test_old_figures_are_kept_by_minute_then_by_hour_then_not_at_all(days, ask, settings):
    """Files are removed after the configured time, and the answer has the remaining step."""
    settings.NSQ_HISTORY_DAYS = {"10s": 2, "1m": 4, "1h": 40}
    days.kept = rollup.HistoryFolder(settings.NSQ_HISTORY, settings.NSQ_HISTORY_DAYS)
    now = int(time.time()) // SELDOM * SELDOM
    days.pass_by(range(now - 75 * HOUR, now - 24 * HOUR, SELDOM), depth_of)
    days.keep(now)
    root = settings.NSQ_HISTORY
    names = sorted(datetime.strptime(path.stem, "%Y-%m-%dT%H").replace(tzinfo=UTC) for path in root.glob("10s/*"))
    assert names[0] > datetime.fromtimestamp(now, UTC) - timedelta(days=2, hours=1)
    assert ask(from_=now - 3 * DAY, to=now, step=10)["step_s"] == 60
    assert ask(from_=now - 5 * DAY, to=now, step=10)["step_s"] == 3600
    days.redis.flushall()
    days.keep(now + 5 * DAY)
    assert [*root.glob("10s/*")] == [*root.glob("1m/*")] == []
    assert [*root.glob("1h/*")]
    days.keep(now + 80 * DAY)
    assert [*root.glob("1h/*")] == []


def test_a_damaged_file_is_a_gap_and_hides_no_other(days, ask, settings):
    """The hours beside it are shown, and the next maintenance continues."""
    now = int(time.time()) // 30 * 30
    days.pass_by(range(now - 6 * HOUR, now + 1, 30), lambda _: 5)
    hour = (now - 3 * HOUR) // HOUR * HOUR
    path = settings.NSQ_HISTORY / "10s" / f"{datetime.fromtimestamp(hour, UTC):%Y-%m-%dT%H}.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    for rolled_up in settings.NSQ_HISTORY.glob("1m/*"):  # shortly after midnight, that of yesterday has the hour
        rolled_up.unlink()
    known = pairs(ask(from_=hour - HOUR, to=hour + 2 * HOUR, step=60))
    assert {value for at, value in known.items() if hour <= at < hour + HOUR} == {None}
    assert {value for at, value in known.items() if not hour <= at < hour + HOUR} == {5.0}
    days.keep(now)


def overwrite(path: Path, column: str, *, group: int = 0) -> None:
    """Overwrite the values of one column in one row group; names and footer stay readable."""
    with pq.ParquetFile(path) as file:
        (chunk,) = [
            each
            for place in range(file.metadata.num_columns)
            if (each := file.metadata.row_group(group).column(place)).path_in_schema.split(".")[0] == column
        ]
    with open(path, "r+b") as out:
        out.seek(chunk.data_page_offset + 4)
        out.write(b"\xff" * (chunk.total_compressed_size - 8))


def test_a_damaged_hour_is_missing_from_its_day_alone(days, ask, settings, caplog):
    """The rest of the day is rolled up, and so are later days. One log line names the file."""
    now = int(time.time()) // 30 * 30
    midnight = now // DAY * DAY
    days.pass_by(range(midnight - 27 * HOUR, midnight - DAY + 5 * HOUR, 30), lambda _: 5)
    hour = midnight - DAY + 2 * HOUR
    path = settings.NSQ_HISTORY / "10s" / f"{datetime.fromtimestamp(hour, UTC):%Y-%m-%dT%H}.parquet"
    overwrite(path, "publish_rate")
    days.keep(midnight + HOUR)
    assert [record.file for record in caplog.records if record.levelname == "ERROR"] == [str(path)]
    days.redis.flushall()
    known = pairs(ask(from_=midnight - 27 * HOUR, to=midnight - DAY + 5 * HOUR, step=60))
    assert {at for at, value in known.items() if value is None} == {*range(hour, hour + HOUR, 60)}
    assert set(known.values()) == {5.0, None}


def test_a_damaged_row_group_hides_no_other_series(days, ask, settings):
    """The hour that is being recorded keeps its records, as long as Redis has them, and those of all other series."""
    now = int(time.time()) // HOUR * HOUR + 50 * MINUTE
    root = settings.NSQ_HISTORY
    for at in range(now - 40 * MINUTE, now, 30):
        days.poll(at, 4, topics=80)
    days.keep(now)
    path = max(root.glob("10s/*"))
    overwrite(path, "depth", group=0)
    days.redis.flushall()
    for at in range(now, now + 5 * MINUTE, 30):
        days.poll(at, 6, topics=80)
    days.keep(now + 5 * MINUTE)
    with pq.ParquetFile(path) as file:
        kept = {row["series"]: {value for value in row["depth"] if value == value} for row in file.read().to_pylist()}
    assert {frozenset(values) for values in kept.values()} >= {frozenset({4.0, 6.0}), frozenset({6.0})}
    assert kept["topic:t9"] == {4.0, 6.0}
    assert kept["topic:t0"] == {6.0}


def test_no_damaged_byte_ends_the_maintenance(days, settings):
    """Wherever a file is damaged, the run continues, and figures are missing or right."""
    now = int(time.time()) // DAY * DAY + 6 * HOUR
    for at in range(now - HOUR, now + 1, 300):
        days.poll(at, 4)
    days.keep(now)
    path = sorted(settings.NSQ_HISTORY.glob("10s/*"))[0]
    sound = path.read_bytes()
    for place in range(4, len(sound), max(1, len(sound) // 150)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x55]) + sound[place + 1 :])
        with suppress(files.DamagedFile), files.HistoryFile(path, 360) as file:
            found = file.read("topic:t0", ["depth"]) if "topic:t0" in file.series else {}
            assert {value for values in found.values() for value in values.tolist() if value == value} <= {4.0}
        rollup.keep(days.redis, days.kept, now + 1)


def test_maintenance_is_a_task_that_keeps_the_last_hour(days, ask, settings):
    """Celery beat starts it; afterwards the contents of the rings are in files."""
    now = int(time.time()) // 30 * 30
    for at in range(now - HOUR + 60, now + 1, 30):
        days.poll(at, 4)
    tasks.keep_history()
    days.redis.flushall()
    known = pairs(ask(from_=now - 40 * MINUTE, to=now, step=60))
    assert set(known.values()) == {4.0}
    assert len(known) >= 40


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ("from=2026-11-22T03:00:00", "from"),
        ("from=yesterday", "from"),
        (
            "from=2026-11-22T03:00:00Z&to=2026-11-22T02:00:00Z",
            "from: 2026-11-22 03:00:00+00:00 is after to",
        ),
        ("from=1900-01-01T00:00:00Z", "between 1970"),
        ("step=5", "step"),
        ("step=100000", "step"),
        ("series=depth,shoe_size", "shoe_size"),
        ("from=2026-10-22T03:00:00Z&to=2026-10-22T04:00:00Z&series=p99_ms", "p99_ms"),
    ],
)
def test_an_invalid_window_is_refused_by_name(browser, account, days, question, complaint):
    """With the field or the reason, as in every other request."""
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    answer = page.request("GET", f"history?scope=topic&topic=t0&{question}")
    assert answer.status_code == 422
    assert complaint in answer.json()["message"]


def test_more_points_than_fit_are_refused_with_the_step_that_fits(browser, account, days):
    """The error for two days by second has the step to request."""
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    now = int(time.time())
    answer = page.request("GET", f"history?scope=cluster&from={now - 39 * DAY}&to={now}&step=60")
    assert answer.status_code == 422
    assert "step of at least" in answer.json()["message"]


@pytest.mark.parametrize(
    "path", ["history/recent", "history?scope=topic&topic=orders", "snapshot", "diagnosis?topic=orders&channel=billing"]
)
def test_a_redis_that_hangs_is_named(browser, account, redis, path):
    """As one that is gone: the answer says what does not answer."""
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    server = int(redis.info("server")["process_id"])
    os.kill(server, signal.SIGSTOP)
    try:
        answer = page.request("GET", path)
    finally:
        os.kill(server, signal.SIGCONT)
    assert (answer.status_code, answer.json()["message"][:23]) == (503, "Redis does not answer: ")


def test_a_window_for_which_no_step_is_large_enough_is_refused_as_too_long(browser, account, days):
    """The advice is one that can be followed."""
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    answer = page.request("GET", "history?scope=cluster&from=0&to=4000000000&step=86400")
    assert (answer.status_code, answer.json()["message"]) == (
        422,
        "more than 11,000 points: choose a shorter time",
    )


def test_reading_a_file_does_not_import_pandas(tmp_path):
    """The import takes half a second or more, and the first answer of a web process would wait for it."""
    path = tmp_path / "2026-11-28.parquet"
    depths = np.array([[1.0, np.nan]], np.float32)
    files.write(path, 2, [files.Rows(["topic:orders"], {"depth": depths})], at=0)
    code = (
        "import sys; from pathlib import Path; from nsqplatform.cluster.history.files import HistoryFile; "
        "print(HistoryFile(Path(sys.argv[1]), 2).read('topic:orders', ['depth']), 'pandas' in sys.modules)"
    )
    read = subprocess.run([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert read == "{'depth': array([ 1., nan], dtype=float32)} False\n"


def test_a_file_with_nulls_is_damaged(tmp_path):
    """What is unknown is NaN in these files; values without their places would be those of other times."""
    path = tmp_path / "2026-11-28.parquet"
    files.write(path, 2, [files.Rows(["topic:orders"], {"depth": np.ones((1, 2), np.float32)})], at=0)
    table = pq.read_table(path)
    nulls = pa.FixedSizeListArray.from_arrays(pa.array([1.0, None], pa.float32()), 2)
    table = table.set_column(table.schema.get_field_index("depth"), table.schema.field("depth"), nulls)
    with open(path, "w+b") as file:
        pq.write_table(table, file)
        files._add_check(file)
    with files.HistoryFile(path, 2) as file, pytest.raises(files.DamagedFile):
        file.read("topic:orders", ["depth"])
