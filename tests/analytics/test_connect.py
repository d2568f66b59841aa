"""Reports on a Spark Connect server: no local JVM, and the same rows."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from nsqanalytics.java import find_java
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from tests.harness.process import Process

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
START_S = 150
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
PARTITIONS = "spark.sql.shuffle.partitions"
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Expressions on few rows are not compiled.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    # Spark's default, which is kept because it is set. Adaptive execution joins those of few rows.
    PARTITIONS: "200",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, class_options: str) -> Iterator[str]:
    """The address of a Spark Connect server on this machine, from the pip distribution."""
    import pyspark

    home, tmp_path = Path(pyspark.__file__).parent, tmp_path_factory.mktemp("connect")
    environment = os.environ | {
        "JAVA_HOME": str(find_java(os.environ).spark_home(tmp_path / "java")),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [home / "bin" / "spark-submit", "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    settings = {**SETTINGS, JAVA_OPTIONS: f"{SETTINGS[JAVA_OPTIONS]} {class_options}"}
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    process = Process([*command, "spark-internal"], merged=True, env=environment, start_new_session=True).start()
    try:
        found = process.wait_for_log(r"Spark Connect server started at: \S+?:(\d+)", within_s=START_S)
        yield f"sc://127.0.0.1:{found[1]}"
    finally:
        if process.is_running:
            os.killpg(process.process.pid, signal.SIGKILL)
        process.close()


def analytics(remote: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m nsqanalytics`` without Java, and with no other master than the server's."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_REMOTE": remote, "JAVA_HOME": "/nowhere"}
    command = [sys.executable, "-m", "nsqanalytics", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)


def test_a_connect_server_gives_the_rows_of_a_local_master(spark, server, archive, write, make_broker, midnight):
    """The rows of the report, and of SQL over the views."""
    rng, broker = random.Random(5), make_broker()
    for step in range(1, 13):
        at = midnight + timedelta(minutes=15 * step, seconds=-10)
        for number in range(3):
            broker.finish("t", f"c{number}", int(1e6 * rng.lognormvariate(0, 2)), at)
        write(broker.sample(at))
    there, here = archive.parent / "there", archive.parent / "here"
    given = {"until": "2026-03-14T03:00Z", "period": "3h"}
    job = JOBS["latency"]
    job.run(spark, Locations(str(archive), str(here)), job.checked(given), midnight, Progress(io.StringIO()))
    words = [part for name, value in given.items() for part in ("--parameter", f"{name}={value}")]

    done = analytics(server, "run", "latency", "--archive", str(archive), "--output", str(there), *words)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"event": "done", "rows": 9}
    assert Result(there).page(0, 100) == Result(here).page(0, 100)
    assert not [path for path in archive.parent.iterdir() if "writing" in path.name]

    query = "select channel, sum(message_count) from samples where channel != '' group by 1 order by 1"
    done = analytics(server, "sql", "--archive", str(archive), "--period", "3650d", "--csv", query)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == ["c0", "c1", "c2"]


def test_a_number_of_partitions_that_the_server_sets_is_kept(server, archive, write, make_broker, midnight):
    broker = make_broker()
    broker.finish("t", "c", 1_000_000, midnight)
    write(broker.sample(midnight))

    done = analytics(server, "sql", "--archive", str(archive), "--csv", f"set {PARTITIONS}")

    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, [f"{PARTITIONS},200"]), done.stderr[-3000:]


def test_a_report_of_four_hundred_windows(spark, server, archive, write, make_broker, midnight):
    """A server and a local master give the same rows: each window needs the histograms of its own last readings."""
    broker, windows = make_broker(started_at=midnight), 400
    samples = []
    for number in range(windows):
        at = midnight + timedelta(minutes=5 * number, seconds=100)
        broker.finish("t", "c", 1_000_000 * (1 + number % 7), at)
        samples += broker.sample(at)
    write(samples)
    there, here = archive.parent / "there", archive.parent / "here"
    given = {"until": "2026-03-15T09:20Z", "period": "34h", "window": "5m"}
    job = JOBS["latency"]
    job.run(spark, Locations(str(archive), str(here)), job.checked(given), midnight, Progress(io.StringIO()))
    words = [part for name, value in given.items() for part in ("--parameter", f"{name}={value}")]

    done = analytics(server, "run", "latency", "--archive", str(archive), "--output", str(there), *words)

    assert done.returncode == 0, done.stderr[-3000:]
    page = Result(here).page(0, 1000)
    assert Result(there).page(0, 1000) == page
    assert json.loads(done.stdout.splitlines()[-1]) == {"event": "done", "rows": windows}


@pytest.mark.parametrize(
    ("remote", "complaint"),
    [
        ("127.0.0.1:15002", "SPARK_REMOTE=127.0.0.1:15002 is not of the form sc://host:port"),
        ("sc://127.0.0.1:{closed}", "the Spark Connect server sc://127.0.0.1:{closed} cannot be reached ("),
    ],
)
def test_a_server_that_is_not_there_is_one_line(archive, write, make_broker, midnight, remote, complaint):
    """Without a delay; so is an invalid address."""
    broker = make_broker()
    broker.finish("t", "c", 1_000_000, midnight)
    write(broker.sample(midnight))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        closed = taken.getsockname()[1]
        place = ["--archive", str(archive), "--output", str(archive.parent / "result")]
        done = analytics(remote.format(closed=closed), "run", "latency", *place)
    assert done.returncode == 1
    assert done.stderr.startswith(f"analytics: {complaint.format(closed=closed)}")
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout.splitlines()[-1])["kind"] == "master"
