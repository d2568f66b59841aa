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

ROOT = Path(__file__).parents[2]
START_S = 150
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEFAULTS = f"""
spark.driver.extraJavaOptions   {QUICK}
spark.executor.extraJavaOptions {QUICK}
spark.sql.shuffle.partitions    8
spark.sql.codegen.wholeStage    false
spark.sql.codegen.factoryMode   NO_CODEGEN
spark.shuffle.io.maxRetries     1
spark.shuffle.io.retryWait      1s
"""
"""As an operator would set them in spark-defaults.conf: expressions on few rows are not compiled, and what a dead
worker held is given up after a second."""


class Daemons:
    """Starts Spark's own masters and workers, on loopback and free ports. Each leads a process group."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.started: list[Process] = []

    def start(self, expected: str, *arguments: str) -> tuple[Process, str]:
        """Start a process; returns it with the log text that matches ``expected``."""
        program = str(Path(self.environment["SPARK_HOME"]) / "bin" / "spark-class")
        command = [program, *arguments, "--host", "127.0.0.1", "--webui-port", "0"]
        process = Process(command, merged=True, env=self.environment, start_new_session=True).start()
        self.started.append(process)
        return process, process.wait_for_log(expected, within_s=START_S)[0]

    def master(self) -> str:
        """Start a master; returns its address."""
        class_ = "org.apache.spark.deploy.master.Master"
        return self.start(r"spark://127\.0\.0\.1:\d+", class_, "--port", "0")[1]

    def worker(self, master: str) -> Process:
        class_ = "org.apache.spark.deploy.worker.Worker"
        size = ("--cores", "1", "--memory", "1200m")
        return self.start("registered with master", class_, *size, master)[0]

    def kill(self, process: Process) -> None:
        """Kill a worker with its executors, or a master."""
        if process.is_running:
            os.killpg(process.process.pid, signal.SIGKILL)
        process.close()


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """They are stopped after the last test."""
    import pyspark

    folder = tmp_path_factory.mktemp("cluster")
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    environment = os.environ | {
        "JAVA_HOME": str(find_java(os.environ).spark_home(folder / "java")),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    made = Daemons(environment)
    yield made
    for process in made.started:
        made.kill(process)


@pytest.fixture(scope="module")
def master(daemons: Daemons) -> str:
    """A master without workers."""
    return daemons.master()


@pytest.fixture
def workers(daemons: Daemons, master: str) -> Iterator[list[Process]]:
    """Two workers of the master, for one test."""
    found = [daemons.worker(master) for _ in range(2)]
    yield found
    for process in found:
        daemons.kill(process)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_master_without_workers_is_reported_within_a_minute(daemons, master, archive, write, make_broker, midnight):
    """Spark alone waits for ever."""
    broker = make_broker()
    broker.finish("t", "c", 1_000_000, midnight)
    write(broker.sample(midnight))
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
    spark, daemons, master, workers, archive, write, make_broker, midnight
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
    job.run(spark, Locations(str(archive), str(here)), job.checked(given), midnight, Progress(io.StringIO()))
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
    environment = daemons.environment | {"SPARK_MASTER": master, "PYTHONPATH": str(ROOT)}
    killed = False
    with Process(command, env=environment) as run:
        assert run.process.stdout is not None
        for line in run.process.stdout:
            if not killed and re.search(r"\([1-9]\d* of", str(json.loads(line).get("stage"))):
                os.killpg(workers[0].process.pid, signal.SIGKILL)
                killed = True
        assert run.wait_for_exit() == 0, run.output[-3000:]

    assert killed
    assert workers[0].wait_for_exit() == -signal.SIGKILL
    expected = Result(here).page(0, 10_000)
    assert Result(there).page(0, 10_000) == expected
    assert len(expected) == 6 * 20
