"""A platform of its own for a fuzzer: Redis, a database, a broker, a registry, the collector and the web process.

It shares nothing with other tests. There is no dispatcher: jobs and runs of reports stay queued, so that no Spark
starts. Webhooks would go through a proxy that is not there, so that nothing leaves the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import requests

from bench.ports import free_port
from tests.harness.daemon import Broker, Registry
from tests.harness.process import ROOT, Process
from tests.harness.redis import running_redis
from tests.harness.waiting import DEADLINE_S, wait_until

NO_PROXY = "http://127.0.0.1:9"
STARTS_WITHIN_S = 180.0
PLATFORMS_OWN = ("NSQ", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE")
"""Beginnings of the variables that would make it share something."""


class Script(requests.Session):
    """A client with a bearer token, or one that signs in."""

    def __init__(self, base: str, token: str = "") -> None:
        super().__init__()
        self.base = base
        self.trust_env = False
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, body: object = None) -> requests.Response:
        """Request a path below /api/v1/."""
        return self.request(method, f"{self.base}/api/v1/{path}", json=body, timeout=DEADLINE_S)

    def sign_in(self, username: str, password: str) -> None:
        self.cookies.clear()
        answer = self.call("POST", "session", {"username": username, "password": password})
        assert answer.ok, answer.text
        self.headers["X-CSRFToken"] = answer.json()["csrf_token"]


class RunningPlatform:
    """``with`` starts and ends it.

    ``admin`` and ``fuzzer`` are scripts of two administrators; ``signed_in`` has a session of the second after
    ``sign_in``. ``alert_id`` and ``run_id`` are rows that it begins with.
    """

    def __enter__(self) -> RunningPlatform:
        with ExitStack() as ends:
            self._start(ends)
            self._ends = ends.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ends.close()

    def _start(self, ends: ExitStack) -> None:
        home = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True)))
        (home / "broker").mkdir()
        ends.enter_context(running_redis(f"unix://{home}/redis.sock", home))
        registry = Registry()
        ends.callback(registry.close)
        registry.launch()
        self.broker = Broker(
            home / "broker", f"--lookupd-tcp-address={registry.tcp_address}", "--broadcast-address=127.0.0.1"
        )
        ends.callback(self.broker.close)
        self.broker.launch()
        environment = _environment(home, registry.http_address)
        prepared = subprocess.run(
            [sys.executable, "-m", "tests.failures.prepare_platform"],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=STARTS_WITHIN_S,
        )
        assert prepared.returncode == 0, prepared.stderr
        rows = json.loads(prepared.stdout.splitlines()[-1])
        self.alert_id, self.run_id = rows["alert_id"], rows["run_id"]
        self.base = f"http://127.0.0.1:{(port := free_port())}"
        self.collector = ends.enter_context(_process(environment, "collector"))
        self.web = ends.enter_context(_process(environment, "web", "--http-address", f"127.0.0.1:{port}"))
        self.admin = ends.enter_context(Script(self.base, rows["token"]))
        self.fuzzer = ends.enter_context(Script(self.base, rows["fuzzer_token"]))
        self.signed_in = ends.enter_context(Script(self.base))
        self._password = rows["password"]
        wait_until(self._is_ready, "there is a snapshot with the broker", within_s=STARTS_WITHIN_S)

    def _is_ready(self) -> bool:
        for process in (self.collector, self.web):
            assert process.is_running, process.output
        try:
            answer = self.admin.call("GET", "snapshot")
        except requests.ConnectionError:
            return False
        return answer.status_code == 200 and len(answer.json()["nodes"]) == 1

    def sign_in(self) -> None:
        """Sign the fuzzer in, in place of a session that may have ended."""
        self.signed_in.sign_in("fuzzer", self._password)

    def problems(self) -> list[str]:
        """The processes that have ended, and the tracebacks in their logs."""
        found = []
        for process in (self.web, self.collector, self.broker):
            output = process.output
            if not process.is_running:
                found.append(f"{process.command} ended: {output[-2000:]}")
            elif "Traceback" in output:
                at = output.index("Traceback")
                found.append(output[max(0, at - 300) : at + 3000])
        return found


def _process(environment: dict[str, str], *words: str) -> Process:
    command = [sys.executable, "-m", "nsqplatform.console.nsq", *words]
    return Process(command, env=environment, cwd=ROOT, merged=True)


def _environment(home: Path, registry: str) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith(PLATFORMS_OWN)}
    roots = [ROOT, ROOT / "platform", ROOT / "lookup", ROOT / "analytics", *filter(None, [others.get("PYTHONPATH")])]
    return others | {
        "PYTHONPATH": os.pathsep.join(map(str, roots)),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "nsqplatform.console.settings",
        "NSQ_HOME": str(home),
        "NSQLOOKUPD_HTTP_ADDRESSES": registry,
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), NO_PROXY),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
    }
