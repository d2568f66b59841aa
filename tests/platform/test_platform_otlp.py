"""Metrics of the platform that its processes push by OTLP."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.harness.otlp import Receiver
from tests.harness.process import ROOT, Process
from tests.harness.waiting import DEADLINE_S, wait_until

WEB = "import nsqplatform.console.asgi, signal; signal.pause()"


def test_web_process_and_collector_push_their_own_figures(tmp_path):
    """Each under its name, with ``NSQ_OTLP_ENDPOINT``; the collector without waiting for Redis."""
    with Receiver() as receiver:
        env = {**os.environ, "NSQ_HOME": str(tmp_path), "NSQ_OTLP_ENDPOINT": receiver.url, "NSQ_OTLP_INTERVAL_S": "1"}
        collector = [sys.executable, ROOT / "manage.py", "nsq", "collector"]
        with (
            Process([sys.executable, "-c", WEB], env=env, merged=True),
            Process(collector, env=env, merged=True),
        ):
            for service, own, other in (
                ("nsqadmin", "nsq_web_websocket_clients", "nsq_collector_topics"),
                ("nsq-collector", "nsq_collector_topics", "nsq_web_websocket_clients"),
            ):
                wait_until(lambda service=service: len(receiver.of(service)) > 1, f"two pushes of {service}")
                metrics = receiver.of(service)[-1].metrics
                assert own in metrics
                assert other not in metrics


def test_settings_that_cannot_be_used_are_named_at_the_start(tmp_path):
    """One line, with the variable."""
    for variable, text in (("NSQ_OTLP_ENDPOINT", "127.0.0.1:4318"), ("NSQ_OTLP_INTERVAL_S", "0")):
        ended = subprocess.run(
            [sys.executable, ROOT / "manage.py", "nsq", "collector"],
            env={**os.environ, "NSQ_HOME": str(tmp_path), variable: text},
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=DEADLINE_S,
        )  # fmt: skip
        assert ended.returncode != 0
        assert variable in ended.stderr
        assert "Traceback" not in ended.stderr
