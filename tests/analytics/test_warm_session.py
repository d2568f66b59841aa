"""``python -m nsqanalytics serve``: several jobs in one Spark session."""

from __future__ import annotations

import io
import json
import os
import queue
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from nsqanalytics.progress import Progress
from nsqanalytics.run import Declined
from nsqanalytics.warm_session import WarmSession, end_of_log
from tests.harness.processes import descendants, is_gone
from tests.harness.waiting import wait_until

# A JVM starts in seconds, or in minutes on a busy machine. The deadlines only end tests that fail.
PATIENCE_S = 300.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SMALL = 1000
LARGE = 300_000_000
PARAMETERS = {"until": "2026-03-14T01:00Z", "window": "5m", "period": "1h"}


class Serving:
    """A process ``serve`` with its answers."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nsqanalytics", "serve", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"TMPDIR": str(folder)},
            )
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put(None)

    def request(self, **request: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def run(self, run_id: int, archive: Path, **parameters: str) -> None:
        output = str(self.folder / "results" / str(run_id))
        given = PARAMETERS | parameters
        self.request(run=run_id, job="latency", archive=str(archive), output=output, parameters=given)

    def until(self, *events: str) -> list[Any]:
        """The answers up to one of these events; None stands for the end of the output."""
        found = []
        while True:
            found.append(self.answers.get(timeout=PATIENCE_S))
            if found[-1] is None or found[-1]["event"] in events:
                return found

    def java(self) -> psutil.Process:
        [java] = descendants(self.process.pid, name="java")
        return java


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of one node's first hour, with a reading every five minutes."""
    from nsqanalytics.archive import ArchiveWriter
    from tests.analytics.conftest import MIDNIGHT, Broker

    root = tmp_path_factory.mktemp("filled") / "archive"
    rng, broker = random.Random(3), Broker("10.0.0.1:4151", MIDNIGHT)
    for step in range(1, 12):
        at = MIDNIGHT + timedelta(minutes=5 * step, seconds=-10)
        for _ in range(4):
            broker.finish("t", "c", int(1e6 * rng.lognormvariate(0, 2)), at)
        ArchiveWriter(str(root)).write(broker.sample(at))
    return root


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """Starts processes; they are killed after the test."""
    started: list[Serving] = []

    def start(*arguments: str) -> Serving:
        started.append(Serving(tmp_path, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One process for the tests after which it still runs."""
    only = Serving(tmp_path_factory.mktemp("serving"))
    yield only
    only.process.kill()
    only.process.wait()


def test_reports_share_one_java_and_have_the_events_of_a_run(serving: Serving, filled: Path):
    """The second one does not start Spark; the log of each ends with a line of its own."""
    serving.run(1, filled)
    first = serving.until("ready")
    java = serving.java()
    serving.run(2, filled)
    second = serving.until("ready")

    for events in (first, second):
        assert [each["event"] for each in events if each["event"] != "progress"] == ["done", "ready"]
        assert events[-2]["rows"] == 11
        fractions = [each["fraction"] for each in events if each["event"] == "progress"]
        assert fractions == sorted(fractions)
    assert first[0]["stage"] == "starting Spark"
    assert second[0]["stage"] == "listing the archive"
    assert serving.java() == java
    ends = [line for line in serving.log.read_text().splitlines() if line.startswith("analytics: end of")]
    assert ends[:2] == [end_of_log(1), end_of_log(2)]
    results = [sorted(path.name for path in (serving.folder / "results" / n).glob("*.parquet")) for n in ("1", "2")]
    assert [len(names) for names in results] == [1, 1]


def test_a_cancelled_report_ends_and_the_session_serves_the_next(serving: Serving, filled: Path):
    """Java is stopped until the cancellation has been requested, so that it is in time."""
    serving.request(prepare=True)
    serving.until("ready")
    java = serving.java()
    java.suspend()
    serving.run(3, filled)
    serving.request(cancel=3)
    java.resume()
    end = serving.until("ready")[-2]
    serving.request(cancel=3)  # it has ended already
    serving.run(4, filled)

    assert (end["event"], end["kind"], end["message"]) == ("failed", "cancelled", "the run was cancelled")
    assert serving.until("ready")[-2] == {"event": "done", "rows": 11}


def test_a_failed_report_leaves_the_session_as_it_is(serving: Serving, filled: Path, tmp_path: Path):
    """So do lines that are no requests."""
    serving.run(5, tmp_path / "nothing")
    failed = serving.until("ready")[-2]
    serving.run(6, filled, window="7m")
    refused = serving.until("ready")[-2]
    serving.request(nonsense=1)
    serving.run(7, filled)

    assert (failed["event"], failed["kind"]) == ("failed", "archive")
    assert (refused["event"], refused["message"]) == ("failed", "window: '7m' is not one of 5m, 1h, 1d")
    assert serving.until("ready")[-2] == {"event": "done", "rows": 11}
    assert "analytics: not a request: '{\"nonsense\": 1}'" in serving.log.read_text()


def test_java_ends_with_the_other_side_of_standard_input(serve: Callable[..., Serving]):
    """A worker that is killed leaves nothing behind."""
    serving = serve()
    serving.request(prepare=True)
    serving.until("ready")
    java = serving.java()

    assert serving.process.stdin is not None
    serving.process.stdin.close()

    assert serving.process.wait(PATIENCE_S) == 1
    wait_until(lambda: is_gone(java), "Java has ended", within_s=PATIENCE_S)


def test_a_session_whose_java_was_killed_says_so_and_ends(serve: Callable[..., Serving], filled: Path):
    serving = serve()
    serving.run(1, filled)
    serving.until("progress")
    wait_until(
        lambda: descendants(serving.process.pid, name="java"),
        "Java has started",
        within_s=PATIENCE_S,
    )
    # Most of the job is still to come after its first stage.
    for line in iter(lambda: serving.answers.get(timeout=PATIENCE_S), None):
        if line.get("stage", "") != "starting Spark":
            serving.java().kill()
            break
    failed, ended = serving.until("ended")[-2:]

    assert (failed["event"], failed["kind"]) == ("failed", "java")
    assert failed["message"].startswith("the Java process that runs Spark was killed")
    assert ended == {"event": "ended", "reason": "Java has ended"}
    assert serving.process.wait(PATIENCE_S) == 0


def test_a_session_ends_after_its_jobs(serve: Callable[..., Serving], tmp_path: Path):
    """Failed ones count too."""
    serving = serve("--jobs=2")
    events = []
    for number in (1, 2):
        serving.run(number, tmp_path / "nowhere")
        events += serving.until("ready", "ended")
    assert [each["event"] for each in events] == ["failed", "ready", "failed", "ended"]
    assert events[-1]["reason"] == "it has run 2 jobs"


def test_an_idle_session_ends(serve: Callable[..., Serving]):
    serving = serve("--idle-s", "1")

    assert serving.until("ended") == [{"event": "ended", "reason": "no job for 1 s"}]
    assert serving.process.wait(PATIENCE_S) == 0


@pytest.fixture
def warm(spark) -> WarmSession:
    """A session in this process."""
    return WarmSession(io.StringIO(), 600, spark)


def test_jobs_have_their_own_views_and_settings(warm: WarmSession):
    """A job sees no temporary view of the job before it."""
    progress = Progress(io.StringIO())
    with warm.for_job(lambda: SMALL, 1, progress) as first:
        first.range(3).createTempView("left")
        first.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        assert first.table("left").count() == 3
    with warm.for_job(lambda: SMALL, 2, progress) as second:
        assert not second.catalog.tableExists("left")
        assert second.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_cancellation_ends_the_spark_jobs_of_its_run_only(warm: WarmSession, spark):
    """The query would take weeks."""
    progress = Progress(io.StringIO())
    threading.Timer(0.5, progress.cancelled.set).start()
    with (
        pytest.raises(Exception, match="cancelled"),
        warm.for_job(lambda: SMALL, 3, progress) as session,
    ):
        session.range(10**15).selectExpr("sum(sqrt(id))").collect()
    with warm.for_job(lambda: SMALL, 4, Progress(io.StringIO())) as session:
        assert session.range(10).count() == 10


def test_each_job_has_the_settings_of_its_size(warm: WarmSession):
    """Spark was started for less than 2 MB, and interprets expressions. For 8 MB, compiled code is faster."""
    names = ("spark.sql.shuffle.partitions", "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    found = []
    for size in (SMALL, 5_000_000, SMALL):
        with warm.for_job(lambda size=size: size, 6, Progress(io.StringIO())) as session:
            found.append([session.conf.get(name) for name in names])
    few = ["1", "false", "NO_CODEGEN"]
    assert found == [few, ["2", "true", "FALLBACK"], few]


def test_a_large_job_is_left_to_a_process_of_its_own(warm: WarmSession):
    with pytest.raises(Declined), warm.for_job(lambda: LARGE, 5, Progress(io.StringIO())):
        pass
