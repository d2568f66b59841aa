"""A standalone cluster from the pip distribution: the same rows as with a local master, although a worker dies."""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from nsqanalytics.java import find_java
from nsqanalytics.jobs import JOBS
from nsqanalytics.places import Place
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result

ROOT = Path(__file__).parents[2]
START_S = 150
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEFAULTS = f"""
spark.driver.extraJavaOptions   {QUICK}
spark.executor.extraJavaOptions {QUICK}
spark.sql.shuffle.partitions    8
spark.shuffle.io.maxRetries     1
spark.shuffle.io.retryWait      1s
"""
"""As an operator would set them in spark-defaults.conf: what a dead worker held is given up after a second."""


@dataclass
class Cluster:
    master: str
    workers: list[subprocess.Popen[bytes]]
    environment: dict[str, str]


@dataclass
class Daemons:
    """Starts Spark's own masters and workers, on loopback and free ports."""

    folder: Path
    environment: dict[str, str]
    started: list[subprocess.Popen[bytes]]

    def start(self, name: str, expected: str, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
        """Start a process; returns it with the log text that matches ``expected``."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            program = str(Path(self.environment["SPARK_HOME"]) / "bin" / "spark-class")
            command = [program, *arguments, "--host", "127.0.0.1", "--webui-port", "0"]
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environment,
                start_new_session=True,
            )
        self.started.append(process)
        deadline = time.monotonic() + START_S
        while (found := re.search(expected, log.read_text(errors="replace"))) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        return process, found[0]

    def master(self) -> str:
        """Start a master; returns its address."""
        class_ = "org.apache.spark.deploy.master.Master"
        return self.start("master", r"spark://127\.0\.0\.1:\d+", class_, "--port", "0")[1]

    def worker(self, name: str, master: str) -> subprocess.Popen[bytes]:
        class_ = "org.apache.spark.deploy.worker.Worker"
        size = ("--cores", "1", "--memory", "1200m")
        return self.start(name, "registered with master", class_, *size, master)[0]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    """They are stopped after the test."""
    import pyspark

    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    environment = os.environ | {
        "JAVA_HOME": str(find_java(os.environ).spark_home(tmp_path / "java")),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    made = Daemons(tmp_path, environment, [])
    yield made
    for process in made.started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def cluster(daemons: Daemons) -> Cluster:
    """One master and two workers."""
    master = daemons.master()
    return Cluster(master, [daemons.worker(f"worker{n}", master) for n in range(2)], daemons.environment)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_master_without_workers_is_reported_within_a_minute(daemons, archive, write, make_broker, midnight):
    """Spark alone waits for ever."""
    broker = make_broker()
    broker.finish("t", "c", 1_000_000, midnight)
    write(broker.sample(midnight))
    master = daemons.master()
    command = [sys.executable, "-m", "nsqanalytics", "run", "latency", "--archive", str(archive)]
    environment = daemons.environment | {"SPARK_MASTER": master, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [*command, "--output", str(archive.parent / "result")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=600,
    )

    failed = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, failed["event"], failed["kind"]) == (1, "failed", "master"), done.stderr[-3000:]
    assert failed["message"].startswith(f"no worker of the Spark master {master} took a task within 35 s: start one")


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_cluster_that_loses_a_worker_gives_the_rows_of_a_local_master(
    spark, cluster, archive, write, make_broker, midnight
):
    """The worker is killed while its tasks run; the run goes on, and its rows are those of local[*]."""
    rng, brokers = random.Random(11), [make_broker("10.0.0.1:4151"), make_broker("10.0.0.2:4151")]
    for step in range(1, 25):
        at = midnight + timedelta(minutes=15 * step, seconds=-10)
        for broker in brokers:
            for number in range(20):
                broker.finish("t", f"c{number}", int(1e6 * rng.lognormvariate(0, 2)), at)
            write(broker.sample(at))
    there, here = archive.parent / "there", archive.parent / "here"
    given = {"until": "2026-03-14T06:00Z", "period": "6h"}

    job = JOBS["latency"]
    job.run(spark, Place(str(archive), str(here)), job.checked(given), midnight, Progress(io.StringIO()))
    command = [
        sys.executable,
        "-m",
        "nsqanalytics",
        "run",
        "latency",
        "--archive",
        str(archive),
        "--output",
        str(there),
    ]
    command += [part for name, value in given.items() for part in ("--parameter", f"{name}={value}")]
    log = archive.parent / "there.log"
    environment = cluster.environment | {"SPARK_MASTER": cluster.master, "PYTHONPATH": str(ROOT)}
    killed = False
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, env=environment) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if not killed and re.search(r"\([1-9]\d* of", str(json.loads(line).get("stage"))):
                os.killpg(cluster.workers[0].pid, signal.SIGKILL)
                killed = True

    assert process.wait() == 0, log.read_text()[-3000:]
    assert killed
    assert cluster.workers[0].wait(30) == -signal.SIGKILL
    expected = Result(here).page(0, 10_000)
    assert Result(there).page(0, 10_000) == expected
    assert len(expected) == 6 * 20
