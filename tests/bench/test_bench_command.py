"""``python -m bench`` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.errors import BenchError
from bench.server import start_brokerd
from tests.harness.process import Process
from tests.harness.waiting import wait_until

RATES = ["pub", "pub1", "pub64", "sub", "sync", "layers", "http", "mpub", "fanout", "mixed"]
OTHERS = ["idle", "timers", "backlog", "topics", "start", "admin", "lookup", "deferred", "dead", "expired"]
"""With the first, all but the rows that have a test of their own."""
SMALL = ("--messages=10000", "--connections=20", "--channels=100", "--topics=10")
"""Enough to see that a row works; its figures mean nothing."""


def bench(*arguments: str, module: str = "bench") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def measured(tmp_path: Path, names: list[str]) -> dict[str, Any]:
    """Run small versions of these rows; the data path must be empty afterwards."""
    done = bench(*names, "--seconds=0.2", "--rounds=2", "--json", f"--data-path={tmp_path}", *SMALL)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    for name in rows.keys() - {"start"}:
        assert rows[name]["messages"] > 0
        assert rows[name]["per_second"] == pytest.approx(rows[name]["messages"] / rows[name]["seconds"])
    return rows


def test_rows_about_rates_report_the_broker_and_its_floor(tmp_path: Path) -> None:
    """Each row has its rate, the broker's processor time, and the floor of the same run."""
    rows = measured(tmp_path, RATES)
    assert " ".join(rows) == (
        "pub pub1 pub64 sub sync pub sync pub1 sync sub pub tls sub tls pub deflate sub deflate "
        "http http constant mpub fanout 1 fanout 10 fanout 50 mixed 16 B mixed 256 B mixed 1024 B"
    )
    assert rows["pub"]["mb_per_second"] == pytest.approx(rows["pub"]["per_second"] * 200 / (1 << 20))
    for name in ("pub", "pub1", "pub64", "sub", "http", "http constant", "mpub"):
        assert rows[name]["floor_ratio"] == pytest.approx(rows[name]["per_second"] / rows[name]["floor_per_second"])
    for name in ("pub", "pub1", "pub64", "sub"):
        assert rows[name]["kept_ratio"] == pytest.approx(rows[name]["per_second"] / rows[name]["kept_per_second"])
        assert rows[name]["spread"] >= 0
    assert rows["fanout 1"]["cost_ratio"] == 1
    assert rows["fanout 1"]["messages"] == rows["fanout 50"]["messages"]
    for name in ("pub1", "http", "mpub"):
        assert 0 < rows[name]["p50_us"] <= rows[name]["p99_us"]
    assert [rows[f"mixed {size} B"]["size"] for size in (16, 256, 1024)] == [16, 256, 1024]


def test_every_other_row_reports_its_figures(tmp_path: Path) -> None:
    """Idle connections, timers, backlogs, restarts, the registry and nsqadmin, each with its own figures."""
    rows = measured(tmp_path, OTHERS)
    assert " ".join(rows) == (
        "idle 0 idle 20 timers defer timers timeout backlog in backlog out "
        "topics start admin /api/topics admin /api/counter lookup in lookup deferred dead expired"
    )
    assert rows["lookup"]["floor_ratio"] == pytest.approx(
        rows["lookup"]["per_second"] / rows["lookup"]["floor_per_second"]
    )
    for name in ("timers defer", "topics", "lookup"):
        assert 0 < rows[name]["p50_us"] <= rows[name]["p99_us"]
    assert rows["lookup in"]["messages"] == 20 * 10
    assert rows["lookup"]["also"]["answer kB"] > 1
    assert rows["idle 0"]["messages"] == rows["idle 20"]["messages"]
    assert rows["backlog out"]["messages"] == rows["backlog in"]["messages"] == 10_000
    assert rows["backlog out"]["also"]["/ping after kill -9, s"] > 0
    assert rows["deferred"]["also"]["processor s"] > 0
    [late] = rows["deferred"]["waits"]
    assert 0 < late["p50_us"] <= late["p99_us"]
    assert rows["dead"]["messages"] == 10_000
    assert rows["dead"]["also"]["kills"] == 2
    assert rows["expired"]["also"]["messages measured"] == 100
    assert 0 < rows["expired"]["p50_us"] <= rows["expired"]["p99_us"]
    assert 0 < rows["start"]["also"]["/ping s, median"] <= rows["start"]["also"]["/ping s, max"]


def test_deferred_messages_may_be_smaller_than_the_delay_in_their_body(tmp_path: Path) -> None:
    """They are measured as the smallest messages that a delay fits into."""
    done = bench("deferred", "--size=4", "--seconds=0.1", "--messages=500", "--json", f"--data-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["rows"]
    assert row["messages"] == 500


def test_figures_over_time_are_measured_for_each_window(tmp_path: Path) -> None:
    """The first request, the usual and the slowest one, and what the files take on disk."""
    done = bench("history", "--topics=20", "--json", f"--data-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == [
        f"history, {window}" for window in ("yesterday at 03:00", "a day", "30 days", "30 days, from minutes")
    ]
    for row in rows.values():
        assert 0 < row["p50_us"] <= row["p99_us"] <= row["also"]["slowest ms"] * 1000
        assert row["also"]["answer kB"] > 1
        assert row["also"]["MB in 1m/"] > row["also"]["MB in 1h/"] > 0


def test_a_bystander_is_measured_beside_nothing_and_beside_each_disturbance(tmp_path: Path) -> None:
    """Each row has the response times of a quiet and of the disturbed run, and notes a missing reference."""
    done = bench("bystander", "--seconds=0.2", "--json", f"--data-path={tmp_path}", *SMALL)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    disturbances = ("req", "touch", "leave", "deflate", "checkpoint", "registry")
    assert [row["name"] for row in rows] == [f"bystander {name}" for name in disturbances]
    for row in rows:
        quiet, meanwhile = row["waits"]
        assert (quiet["what"], meanwhile["what"]) == ("quiet", "meanwhile")
        assert 0 < meanwhile["p50_us"] <= meanwhile["p99_us"] <= meanwhile["p999_us"] <= meanwhile["max_us"]
        assert row["what"].endswith("; no --reference")


def test_latency_is_measured_at_the_rates_that_are_asked_for(tmp_path: Path) -> None:
    """For each size and rate: the time to OK, the time to delivery, and the lateness of the generator."""
    done = bench("latency", "500", "2000", "--seconds=0.2", "--json", f"--data-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["name"], row["messages"]) for row in rows] == [
        (f"latency {rate} {size} B", count)
        for size in (16, 256, 1024)
        for rate, count in (("500", 100), ("2,000", 400))
    ]
    for row in rows:
        to_ok, to_delivery, to_sent = row["waits"]
        assert to_ok["count"] == to_delivery["count"] == to_sent["count"] == row["messages"]
        assert 0 < to_sent["p50_us"] < to_ok["p50_us"] <= to_ok["p99_us"] <= to_ok["p999_us"] <= to_ok["max_us"]


def test_the_platforms_row_has_the_age_of_figures_in_a_browser() -> None:
    """A simulated cluster, the platform on it, and browsers: first most on a topic's page, then all on everything."""
    done = bench("platform", "--json", "--connections=10", "--topics=10", "--seconds=3")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["name"] for row in rows] == ["platform, browsers on pages", "platform, browsers on everything"]
    for row in rows:
        figures = row["also"]
        assert row["messages"] > 0
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert 0 < figures["figure to browser p50 ms"] <= figures["figure to browser max ms"]
        assert figures["polls/s"] > 0
        for part in ("cluster", "collector", "web", "redis"):
            assert figures[f"{part} busy %"] >= 0
            assert figures[f"{part} MiB"] > 0


def test_a_bulk_deletion_is_measured_beside_requests_to_the_broker(tmp_path: Path) -> None:
    """The rate of a job, the broker's own, and the processor time of each part for one topic."""
    done = bench("jobs", "--topics=10", "--rounds=1", "--json", f"--data-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["rows"]
    assert (row["name"], row["messages"]) == ("jobs, delete", 10)
    assert row["floor_ratio"] == pytest.approx(row["per_second"] / row["floor_per_second"])
    assert row["also"]["dispatcher, processor ms per topic"] > 0


def test_celery_is_measured_on_brokerd_beside_redis(tmp_path: Path) -> None:
    """Tasks per second, and the processor time of broker, worker and client for one task."""
    done = bench("celery", "--seconds=0.1", "--rounds=1", "--json", f"--data-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == ["celery nsq", "celery Redis"]
    for row in rows.values():
        assert row["messages"] == 100
        assert row["floor_per_second"] == pytest.approx(rows["celery Redis"]["per_second"])
        assert row["also"]["published/s"] > 0


def test_a_mirrored_pair_is_measured_beside_a_single_broker(tmp_path: Path) -> None:
    """What publishing costs, the rate of a member that joins, and the time of a takeover, which loses nothing."""
    done = bench("mirror", "--seconds=0.2", "--rounds=1", "--json", f"--data-path={tmp_path}", *SMALL)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == ["mirror pub", "mirror pub64", "mirror pub1", "mirror join", "mirror takeover"]
    for name in ("mirror pub", "mirror pub64", "mirror pub1"):
        row = rows[name]
        assert row["floor_ratio"] == pytest.approx(row["per_second"] / row["floor_per_second"])
        assert row["also"]["messages/s, floors"] > 0
    one = rows["mirror pub1"]
    assert 0 < one["p50_us"] <= one["p99_us"]
    assert one["also"]["p99, single = 1"] > 0
    join = rows["mirror join"]["also"]
    assert join["of the disk"] > 0
    assert join["of it in sync"] > 0
    assert rows["mirror takeover"]["also"]["messages"] > 10_000
    assert list(tmp_path.iterdir()) == []


def test_a_rolling_restart_is_measured_by_drain_and_by_sigterm(tmp_path: Path) -> None:
    """With a drain, aionsq's producers see no error and nothing is delivered twice. In no row is a message lost."""
    done = bench("rolling", "--seconds=0.4", "--rounds=1", "--json", f"--data-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    ways = ("drain, aionsq", "SIGTERM, aionsq", "drain, no failover", "SIGTERM, no failover")
    assert list(rows) == [f"rolling brokerd, {way}" for way in ways]
    for row in rows.values():
        assert row["messages"] > 0
        assert row["also"]["messages lost"] == 0
        assert row["also"]["restart of a node, s"] > 0
    drained = rows["rolling brokerd, drain, aionsq"]["also"]
    assert (drained["publish errors"], drained["messages delivered twice"]) == (0, 0)
    assert rows["rolling brokerd, SIGTERM, no failover"]["also"]["publish errors"] > 0
    assert list(tmp_path.iterdir()) == []


def test_both_kernels_are_shown_one_below_the_other(tmp_path: Path) -> None:
    """With --twin beside, each row is printed twice, once per kernel."""
    done = bench("pub", "sync", "--twin=beside", "--seconds=0.1", "--json", f"--data-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert [(row["name"], row["twin"]) for row in json.loads(done.stdout)["rows"]] == [
        (name, twin) for name in ("pub", "sync pub", "sync pub1", "sync sub") for twin in (False, True)
    ]


def test_the_table_shows_the_rows_that_were_asked_for(tmp_path: Path) -> None:
    """Without --json a table is printed, which mentions the pure-Python kernel if --twin chose it."""
    done = bench("pub1", "--seconds=0.1", "--twin", f"--data-path={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "pure-Python kernel" in done.stdout
    assert "pub1" in done.stdout
    assert "fanout" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["pubb"],
            "no row called 'pubb'; there are pub, pub1, pub64, sub, sync, layers, http, mpub, fanout, mixed, idle, "
            "timers, backlog, topics, start, admin, lookup, deferred, dead, expired, policy, latency, bystander, "
            "rolling, platform, history, jobs, celery, mirror, pages",
        ),
        (["--seconds=0"], "argument --seconds: '0' is not a number of seconds between 0 and 3600"),
        (["--size=-1"], "argument --size: '-1' is not a whole number above 0"),
        (["--data-path=/nowhere/at/all"], "--data-path /nowhere/at/all is not a directory"),
        (["--reference=/nowhere/at/all"], "--reference /nowhere/at/all has no nsqd"),
        (["--batch=100000"], "a batch of 100000 × 200 B is more than the broker's 5 MiB limit on a body"),
        (["--twin", "pub"], "argument --twin: invalid choice: 'pub' (choose from 'only', 'beside')"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_a_mistyped_command_is_answered_in_one_line(arguments: list[str], says: str) -> None:
    """Nothing is started, nothing is measured: one line on stderr and a status other than 0."""
    done = bench(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"bench: {says}\n")


def test_a_broker_that_does_not_start_is_named_with_its_last_line_of_output(tmp_path: Path) -> None:
    """The error contains the broker's last log line."""
    with pytest.raises(BenchError, match=r"brokerd did not start: .*no such file or directory"):
        start_brokerd(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("number", "status", "says"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_it_and_leaves_nothing(tmp_path: Path, number: int, status: int, says: str) -> None:
    """The servers are stopped, their data paths are removed, and one line has the reason."""
    command = [sys.executable, "-m", "bench", "backlog", "--messages=3000000", "--size=16", f"--data-path={tmp_path}"]
    with Process(command) as running:

        def stores_messages() -> bool:
            assert running.is_running, running.output
            return any(tmp_path.glob("*/topics"))

        wait_until(stores_messages, "a broker stores messages")
        started = psutil.Process(running.process.pid).children(recursive=True)
        running.signal(number)
        assert running.wait_for_exit() == status
        assert running.process.stdout is not None
        assert (running.process.stdout.read(), running.log) == (b"", [f"bench: {says}"])
    assert list(tmp_path.iterdir()) == []
    gone, alive = psutil.wait_procs(started, timeout=30)
    assert (len(gone), alive) == (len(started), [])
