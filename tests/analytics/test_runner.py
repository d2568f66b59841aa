"""``python -m nsqanalytics run`` as a process."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from nsqanalytics.failures import explained
from nsqanalytics.results import Result

# Each starts a JVM of its own: the limit suits a busy machine.
pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
Ran = tuple[int, list[dict[str, Any]], str]


@pytest.fixture
def analytics(archive: Path, tmp_path: Path) -> Callable[..., Ran]:
    """Runs a job on the archive; returns exit status, events, standard error."""

    def run(
        *arguments: str,
        job: str = "latency",
        limit_file_size: int | None = None,
        output: str = str(tmp_path / "reports" / "1"),
        **environment: str,
    ) -> Ran:
        def limit() -> None:
            if limit_file_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit_file_size, limit_file_size))

        given = [part for argument in arguments for part in ("--parameter", argument)]
        done = subprocess.run(
            [*(sys.executable, "-m", "nsqanalytics", "run", job, "--archive", str(archive)),
             *("--output", output, *given)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT), **environment},
            preexec_fn=limit,
            timeout=500,
        )  # fmt: skip
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    return run


@pytest.fixture
def an_hour(make_broker, write, midnight):
    """An archive of one node's first hour, with a reading every five minutes: ``fill(channels)``."""

    def fill(channels: int = 1) -> None:
        from datetime import timedelta

        rng, broker = random.Random(3), make_broker()
        for step in range(1, 12):
            at = midnight + timedelta(minutes=5 * step, seconds=-10)
            for number in range(channels):
                for _ in range(4):
                    broker.finish("t", f"c{number}", int(1e6 * rng.lognormvariate(0, 2)), at)
            write(broker.sample(at))

    return fill


UNTIL = "until=2026-03-14T01:00Z"


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ("archive", "contains the archive or is a part of it"),
        ("archive/samples", "contains the archive or is a part of it"),
        ("archive/rollups/hourly", "contains the archive or is a part of it"),
        ("archive/lives/mine", "contains the archive or is a part of it"),
        ("linked", "contains the archive or is a part of it"),
        (".", "contains the archive or is a part of it"),
        ("a-file", "is not a folder"),
        ("a-home", "contains notes.txt, which is not part of a result"),
    ],
)
def test_a_result_replaces_only_a_result(analytics, an_hour, archive: Path, tmp_path: Path, output, complaint):
    """The run fails before it begins, and no file is removed."""
    an_hour()
    (tmp_path / "linked").symlink_to(archive)
    (tmp_path / "a-file").write_text("text")
    (tmp_path / "a-home").mkdir()
    (tmp_path / "a-home" / "notes.txt").write_text("text")
    before = sorted(path for path in tmp_path.rglob("*"))

    status, [event], log = analytics(job="compact", output=str(tmp_path / output))

    assert (status, event["event"]) == (1, "failed")
    assert event["message"] == f"the result cannot be written: {tmp_path / output} {complaint}"
    assert log == f"analytics: {event['message']}\n"
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_path_that_is_not_text_is_named_all_the_same(analytics, an_hour, tmp_path: Path):
    """One line and status 1, although JSON cannot contain such a byte."""
    an_hour()
    name = os.fsencode(tmp_path) + b"/file\xff"
    Path(os.fsdecode(name)).write_text("text")

    status, [event], log = analytics(job="compact", output=os.fsdecode(name))

    assert (status, event["event"]) == (1, "failed")
    assert event["message"].endswith("file\udcff is not a folder")
    assert r"file\udcff is not a folder" in log


@pytest.mark.parametrize(
    ("job", "argument", "complaint"),
    [
        ("latency", "window=7m", "window: '7m' is not one of 5m, 1h, 1d"),
        ("latency", "window", "--parameter 'window' is not of the form name=value"),
        (
            "latencies",
            UNTIL,
            "there is no job 'latencies'; there are latency, throughput, objectives, capacity, forecast, anomalies, "
            "dead, lives, compare, rollup, compact, retain",
        ),
    ],
)
def test_a_wrong_request_is_one_line_and_status_2(analytics, job: str, argument: str, complaint: str):
    """No JVM is started."""
    assert analytics(argument, job=job) == (2, [], f"analytics: {complaint}\n")


def test_a_parameter_given_twice_is_refused(analytics):
    complaint = "analytics: --parameter window is given twice: '5m' and '1h'\n"
    assert analytics("window=5m", "window=1h") == (2, [], complaint)


def test_the_list_shows_choices_and_ranges():
    """So nobody has to guess a value to learn the permitted ones."""
    command = [sys.executable, "-m", "nsqanalytics", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "  window=1h  Length of a window, aligned to UTC hours and days. One of 5m, 1h, 1d.\n" in listed
    percentile = "The latency percentile that the target applies to, by windows. One of p50, p90, p95, p99, p99.9."
    assert f"  percentile=p99  {percentile}\n" in listed
    assert "  utilisation_percent=70.0  How busy consumers may be in the busiest hour. From 1 to 100.\n" in listed
    assert "  minimum_count=1000  A window with fewer messages has no p99.9. At least 1.\n" in listed


def test_an_invalid_query_is_answered_with_spark_s_message_and_no_stack_trace(archive: Path, an_hour):
    an_hour()
    command = [sys.executable, "-m", "nsqanalytics", "sql", "--archive", str(archive), "select nonsense from latency"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)

    assert done.returncode == 1
    [answer] = [line for line in done.stderr.splitlines() if "nonsense" in line]
    assert answer.startswith("analytics: [UNRESOLVED_COLUMN.WITH_SUGGESTION]")
    assert "stacktrace" not in done.stderr


def test_an_archive_that_is_not_there_is_one_line_and_status_1(analytics, archive: Path):
    status, events, log = analytics(UNTIL)

    message = f"there is no archive at {archive}/samples: has the collector run?"
    assert (status, events, log) == (
        1,
        [{"event": "failed", "kind": "archive", "message": message}],
        f"analytics: {message}\n",
    )


def test_an_archive_that_is_a_file_is_one_line_and_status_1(analytics, archive: Path):
    """It is not taken for an archive without readings."""
    archive.write_text("")
    status, events, _ = analytics(UNTIL)
    message = f"the archive cannot be read: {archive} is not a folder"
    assert (status, events) == (1, [{"event": "failed", "kind": "archive", "message": message}])


def test_an_unreachable_master_is_named_at_once(analytics, an_hour):
    """Spark alone would try for a minute, and then give less information."""
    an_hour()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        status, events, _ = analytics(UNTIL, SPARK_MASTER=master)

    assert status == 1
    assert events[-1]["event"] == "failed"
    assert events[-1]["message"].startswith(f"the Spark master {master} cannot be reached (127.0.0.1:")


@pytest.mark.parametrize(
    ("master", "complaint"),
    [
        ("sparkk://10.0.0.1:7077", "SPARK_MASTER=sparkk://10.0.0.1:7077 is not a master's address; Spark knows local["),
        ("10.0.0.1:7077", "SPARK_MASTER=10.0.0.1:7077 is not a master's address"),
        ("spark://10.0.0.1", "SPARK_MASTER=spark://10.0.0.1 is not of the form spark://host:port"),
        ("yarn", "SPARK_MASTER=yarn needs HADOOP_CONF_DIR"),
    ],
)
def test_a_master_that_is_none_is_refused_before_java_is_started(analytics, an_hour, master: str, complaint: str):
    an_hour()
    status, events, _ = analytics(
        UNTIL, SPARK_MASTER=master, HADOOP_CONF_DIR="", YARN_CONF_DIR="", JAVA_HOME="/nowhere"
    )

    assert (status, events[-1]["event"], events[-1]["kind"]) == (1, "failed", "master")
    assert events[-1]["message"].startswith(complaint)


@pytest.mark.parametrize("memory", ["lots", "4", "0g", "-1g"])
def test_a_memory_that_is_no_size_is_refused_before_java_is_started(analytics, an_hour, memory: str):
    an_hour()
    status, events, _ = analytics(UNTIL, SPARK_DRIVER_MEMORY=memory, JAVA_HOME="/nowhere")

    assert (status, events[-1]["event"]) == (1, "failed")
    assert events[-1]["message"] == f"SPARK_DRIVER_MEMORY={memory} is not a size such as 4g or 1500m"


@pytest.mark.spark
def test_java_gets_the_memory_that_the_error_of_a_report_without_enough_names():
    message = explained(Exception("java.lang.OutOfMemoryError: Java heap space"))[1]
    assert "set SPARK_DRIVER_MEMORY to more" in message

    command = """
from nsqanalytics.session import spark_session
with spark_session("test", {**__import__("os").environ, "SPARK_DRIVER_MEMORY": "700m"}, size=0) as spark:
    print(spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory())
"""
    asked = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, timeout=500)
    assert 500 < int(asked.stdout) / 2**20 <= 700


@pytest.mark.spark
def test_a_port_of_another_program_is_not_mistaken_for_a_master(analytics, an_hour):
    """The port accepts connections and answers nothing; Spark alone reports a stopped context after a minute."""
    an_hour()
    with socket.create_server(("127.0.0.1", 0)) as other:
        master = f"spark://127.0.0.1:{other.getsockname()[1]}"
        status, events, _ = analytics(UNTIL, SPARK_MASTER=master)

    assert (status, events[-1]["event"], events[-1]["kind"]) == (1, "failed", "master")
    assert events[-1]["message"].startswith(f"{master} accepts connections and does not answer as a Spark master")


@pytest.mark.spark
def test_a_killed_java_process_is_reported_in_one_sentence(archive, an_hour, tmp_path: Path):
    """The kernel kills it so on a machine without memory; Python alone would report "Connection refused"."""
    an_hour(channels=30)
    output = tmp_path / "reports" / "1"
    command = [*(sys.executable, "-m", "nsqanalytics", "run", "latency", "--archive", str(archive))]
    command += [*("--output", str(output), "--parameter", UNTIL, "--parameter", "window=5m")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        events = []
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1].get("stage", "").startswith("reading ") and len(events) < 100:
                for child in psutil.Process(process.pid).children(recursive=True):
                    if child.name() == "java":
                        child.kill()

    assert (process.wait(), events[-1]["event"], events[-1]["kind"]) == (1, "failed", "java")
    assert events[-1]["message"].startswith("the Java process that runs Spark was killed; a machine that runs out of ")
    assert list((tmp_path / "reports").iterdir()) == []


@pytest.mark.spark
def test_a_bucket_without_sparks_library_for_it_names_the_library(analytics, an_hour, bucket):
    """The archive can be listed, but Spark cannot read it."""
    an_hour()
    status, events, _ = analytics(UNTIL, output=f"{bucket}/results/1")

    assert (status, events[-1]["event"], events[-1]["kind"]) == (1, "failed", "archive")
    assert re.fullmatch(
        r"Spark has no library for s3a:// addresses: "
        r"add org\.apache\.hadoop:hadoop-aws:[\d.]+ to spark\.jars\.packages",
        events[-1]["message"],
    )


@pytest.mark.spark
def test_a_run_without_any_java_installed_and_a_rerun_that_replaces_it(analytics, an_hour, tmp_path: Path):
    """Only the wheel's Java can be found; progress reaches the end; the second run's result is the only one.

    The classes come from the jars, as in the first session on a machine.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            if program.name != "java" and not (tools / program.name).is_symlink():
                (tools / program.name).symlink_to(program)
    an_hour()
    stale = tmp_path / "reports" / "1" / "part-of-another-run.parquet"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"old")

    status, events, log = analytics(
        UNTIL, "window=5m", "period=1h", PATH=str(tools), JAVA_HOME="", NSQ_SPARK_CLASSES=""
    )

    assert (status, events[-1]) == (0, {"event": "done", "rows": 11}), log
    fractions = [event["fraction"] for event in events[:-1]]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    result = Result(tmp_path / "reports" / "1")
    assert result.total == 11
    assert [row[3] for row in result.page(0, 100)] == [4] * 11
    assert [(column.name, column.type, column.unit) for column in result.columns[:5]] == [
        ("window_start", "timestamp", ""),
        ("topic", "string", ""),
        ("channel", "string", ""),
        ("count", "integer", "messages"),
        ("p50_ms", "number", "ms"),
    ]
    assert not stale.exists()
    assert [path.name for path in (tmp_path / "reports").iterdir()] == ["1"]


@pytest.mark.spark
def test_a_report_is_made_without_damaged_archive_files_and_names_them(analytics, an_hour, archive: Path):
    """In its log; the files are set aside: an empty one, one without content, and one with a flipped bit in a page."""
    an_hour()
    damaged, flipped, empty = sorted((archive / "samples").glob("date=*/hour=*/*"))[3:6]
    empty.write_bytes(b"")
    damaged.write_bytes(b"PAR1" + b"\0" * 200 + b"PAR1")
    group = pq.read_metadata(flipped).row_group(0)
    [counts] = [group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == "message_count"]
    content = bytearray(flipped.read_bytes())
    content[counts.data_page_offset + counts.total_compressed_size - 1] ^= 1
    flipped.write_bytes(content)

    status, events, log = analytics(UNTIL)

    assert (status, events[-1]["event"]) == (0, "done")
    aside = {path.name for path in (archive / "samples" / "_damaged").rglob("*.parquet")}
    assert aside == {damaged.name, flipped.name, empty.name}
    assert all(f"analytics: damaged, set aside: {name} of " in log for name in aside)


@pytest.mark.spark
def test_a_full_disk_is_reported_in_one_sentence(analytics, an_hour, tmp_path: Path):
    """A limit on file sizes stands in for a full disk: the same write is refused."""
    an_hour(channels=300)

    status, events, _ = analytics(UNTIL, "window=5m", limit_file_size=40_000)

    assert status == 1
    assert events[-1] == {
        "event": "failed",
        "kind": "disk",
        "message": "the disk is full: Spark could not write its result or its temporary files",
    }
    assert list((tmp_path / "reports").iterdir()) == []
