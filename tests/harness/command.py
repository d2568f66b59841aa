"""``nsq SUBCOMMAND …`` run to its end, without a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.harness.fork_server import can_fork, run
from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S

SUBCOMMANDS: Final = ("channels", "dead", "messages", "nodes", "policies", "pub", "stat", "tail", "topics")
IMPORTS: Final = ("nsqcommand.command", *(f"aionsq.tools.{name}" for name in SUBCOMMANDS))
"""The subcommands for clusters and messages, which import most of what the others do."""


def nsq(
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str = "",
    imports: tuple[str, ...] = IMPORTS,
) -> subprocess.CompletedProcess[str]:
    """Run ``manage.py nsq …`` with ``text`` as standard input; ``env`` is added to the environment. It is forked from a
    process that has imported ``imports``.

    Raises TimeoutExpired after the suite's deadline.
    """
    command = [sys.executable, str(ROOT / "manage.py"), "nsq", *words]
    environment = os.environ | dict(env or {})
    if can_fork(command, environment, {}):
        return run(command, modules=imports, timeout=DEADLINE_S, env=environment, cwd=cwd, text=text)
    return subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment,
        cwd=cwd,
        check=False,
    )
