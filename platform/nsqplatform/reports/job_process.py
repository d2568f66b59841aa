"""The process of a job, and what the job has reported so far."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from django.conf import settings
from django.utils import timezone

import nsqanalytics
import nsqwire
from nsqanalytics.iceberg.catalog import CATALOG_VARIABLE
from nsqplatform.clusters import current
from nsqplatform.reports.models import LOG_TAIL_CHARACTERS, ReportRun

KILL_AFTER_S = 5.0


def result_folder(run_id: int) -> str:
    """The folder of the result of a run that succeeded."""
    return f"{settings.NSQ_REPORTS}/{run_id}"


class StageReport(NamedTuple):
    """What a job reported at one moment."""

    progress: float
    stage: str
    at: datetime


class JobOutput:
    """What a job has reported so far. The threads that read its process write to it."""

    def __init__(self, stage: str = "") -> None:
        self.progress, self.stage = 0.0, stage
        self._reports: deque[StageReport] = deque()
        self.rows: int | None = None
        self.error: str | None = None
        self.kind = ""
        """The kind of the error, if the job itself reported it (docs/architecture.md)."""
        self.lines = 0
        self._log: deque[str] = deque(maxlen=400)

    def log_tail(self) -> str:
        return "".join(list(self._log))[-LOG_TAIL_CHARACTERS:]

    def take_reports(self) -> Iterator[StageReport]:
        """The reports since the last call. A stage may be over before the next save of the run."""
        with suppress(IndexError):  # there are no more; another thread may call start_again meanwhile
            while True:
                yield self._reports.popleft()

    def last_line(self) -> str:
        """The last line of the log that is not blank."""
        return next((line for line in reversed(list(self._log)) if line.strip()), "").strip()

    def take_log(self, line: str) -> None:
        self._log.append(line)
        self.lines += 1

    def take(self, event: Any) -> None:
        """Store an event. Raises ValueError, KeyError or TypeError if it is not one: libraries print to standard output
        too."""
        if event["event"] == "progress":
            self.progress, self.stage = float(event["fraction"]), str(event["stage"])
            self._reports.append(StageReport(self.progress, self.stage, timezone.now()))
        elif event["event"] == "done":
            self.rows = int(event["rows"])
        elif event["event"] == "failed":
            self.error, self.kind = str(event["message"]), str(event["kind"])
        self.lines += 1

    def start_again(self, stage: str) -> None:
        """Forget everything but the log."""
        self.progress, self.stage = 0.0, stage
        self._reports.clear()
        self.rows, self.error, self.kind = None, None, ""


class RunningJob(ABC):
    """A job that was started, and its output."""

    def __init__(self, output: JobOutput) -> None:
        self.output = output

    @abstractmethod
    def is_over(self, *, within_s: float) -> bool:
        """Wait up to ``within_s`` for its end, and return whether it ended; its output has then been read."""

    @abstractmethod
    def kill(self) -> None:
        """End the job, and return after its end."""


class AnalyticsProcess:
    """A process ``python -m nsqanalytics …``. It leads a process group with its JVM."""

    def __init__(
        self, *arguments: str, scratch: Path, take: Callable[[Any], None], take_log: Callable[[str], None]
    ) -> None:
        """``take`` is called with each line of JSON on standard output, and ``take_log`` with each other line.

        Raises OSError if the process cannot be started.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nsqanalytics", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=_environment(scratch),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._take, self._take_log = take, take_log
        self._readers = [
            threading.Thread(target=self._read_events, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait(self, within_s: float) -> int | None:
        """Wait up to ``within_s`` for its end; return its status, or None if it has not ended. Its output has then been
        read."""
        try:
            status = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        for reader in self._readers:
            reader.join(KILL_AFTER_S)
        self.close()
        return status

    def write(self, line: str) -> None:
        """Write a line to its standard input. Raises OSError or ValueError if it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Close its standard input, at whose end it ends."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:  # a request was not read before the end
                pass

    def kill(self) -> None:
        """End the whole process group: SIGTERM, then SIGKILL after KILL_AFTER_S."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, sent)
            except ProcessLookupError:
                break
            try:
                self._process.wait(KILL_AFTER_S)
            except subprocess.TimeoutExpired:
                continue
        self.close()

    def _read_events(self, stream: IO[str]) -> None:
        for line in stream:
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError):
                self._take_log(line)
        self._process.wait()  # otherwise, a process that ended by itself remains as a zombie

    def _read_log(self, stream: IO[str]) -> None:
        for line in stream:
            self._take_log(line)


class JobProcess(RunningJob):
    """A process ``python -m nsqanalytics run …``, which runs one job."""

    def __init__(self, run: ReportRun, output: JobOutput) -> None:
        """Raises OSError if it cannot be started."""
        super().__init__(output)
        pairs = (part for name, value in run.parameters.items() for part in ("--parameter", f"{name}={value}"))
        self._process = AnalyticsProcess(
            *("run", run.job, "--exit-with-parent"),
            *("--archive", current.archive(), "--output", result_folder(run.pk), *pairs),
            *("--namespace", current.namespace()),
            # Below the results, so that the files of a killed job are found and removed.
            scratch=Path(f"{result_folder(run.pk)}.scratch"),
            take=output.take,
            take_log=output.take_log,
        )

    def is_over(self, *, within_s: float) -> bool:
        status = self._process.wait(within_s)
        if status is None:
            return False
        if status != 0 and self.output.error is None:
            reason = f"signal {-status}" if status < 0 else f"status {status}"
            last = self.output.last_line()
            self.output.error = f"the job ended with {reason}: {last}" if last else f"the job ended with {reason}"
        return True

    def kill(self) -> None:
        self._process.kill()


def _environment(scratch: Path) -> dict[str, str]:
    """This process's environment, with nsqanalytics on the path and temporary files in ``scratch``."""
    roots = {str(Path(module.__path__[0]).parent) for module in (nsqanalytics, nsqwire)}
    paths = [*sorted(roots), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
    }
    if settings.SPARK_MASTER:
        environment["SPARK_MASTER"] = settings.SPARK_MASTER
    if settings.NSQ_ICEBERG_CATALOG:
        environment[CATALOG_VARIABLE] = settings.NSQ_ICEBERG_CATALOG
    return environment
