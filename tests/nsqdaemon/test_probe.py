"""The programs that images run as health checks and as hooks."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nsqdaemon.probe import main as probe
from nsqdaemon.stop import main as stop
from tests.harness.daemon import Broker
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until


def test_a_healthy_broker_passes_and_a_draining_one_does_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Broker(tmp_path) as broker:
        broker.wait_until_ready()
        client = V2Client(broker.tcp)
        client.sub("orders", "billing")
        client.pub("orders", b"1")
        assert probe([f"{broker.url}/ping"]) == 0
        broker.signal(signal.SIGUSR1)
        wait_until(lambda: broker.get("/drain")["drain"], "the drain")
        capfd.readouterr()
        assert probe([f"{broker.url}/ping"]) == 1
        assert f"nsqdaemon.probe: {broker.url}/ping answers 500: NOK" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1/ping", "does not answer: "),
        ("127.0.0.1:4151", "does not answer: "),
        ("nonsense", "does not answer: unknown url type"),
    ],
)
def test_the_reason_of_a_failure_is_one_line(url: str, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert probe([url]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"nsqdaemon.probe: {url} {reason}")


def test_stop_drains_a_broker_and_returns_once_it_has_ended(tmp_path: Path) -> None:
    """The hook of a broker's pod: a consumer finishes the last message, then the process ends, then the hook."""
    with Broker(tmp_path) as broker:
        broker.wait_until_ready()
        client = V2Client(broker.tcp)
        client.sub("orders", "billing", ready_count=1)
        client.pub("orders", b"1")
        message_id, _, _ = client.message()
        # The pytest process is the broker's parent, and collects its status only below: until then, the process exists.
        hook = subprocess.Popen([sys.executable, "-m", "nsqdaemon.stop", "USR1", str(broker.process.pid)])
        wait_until(lambda: broker.get("/drain")["drain"], "the drain")
        assert hook.poll() is None
        client.finish(message_id)
        assert broker.wait_for_exit() == 0
        wait_until(lambda: hook.poll() is not None, "the end of the hook")
        assert hook.returncode == 0


def test_stop_of_a_process_that_has_ended_succeeds() -> None:
    """The container may end by itself before its hook runs."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert stop(["TERM", str(ended.pid)]) == 0


@pytest.mark.parametrize("arguments", [[], ["NO"], ["TERM", "x"], ["TERM", "1", "2"]])
def test_wrong_arguments_of_stop_are_status_2(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert stop(arguments) == 2
    assert capfd.readouterr().err == "usage: python -m nsqdaemon.stop SIGNAL [PID]\n"


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_wrong_arguments_of_probe_are_status_2(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert probe(arguments) == 2
    assert capfd.readouterr().err == "usage: python -m nsqdaemon.probe URL\n"
