"""Child processes whose output tests read line by line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tests.harness.fork_server import Child, ForkedProcess, can_fork
from tests.harness.waiting import DEADLINE_S, is_readable

ROOT = Path(__file__).resolve().parents[2]
MEASURED = "COVERAGE_PROCESS_CONFIG" in os.environ
"""Whether ``make coverage`` runs. Processes are then ended by SIGTERM, because a killed one records no coverage."""

SHOWN_LINES = 20

Self = TypeVar("Self", bound="Process")


def send_two_signals(pid: int) -> None:
    """Send SIGTERM and SIGINT so that they arrive at once, however busy the machine is. Of two signals with one number,
    the second would be lost while the first is pending."""
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        os.kill(pid, number)


class Process:
    """A child process. ``log`` contains the lines that it wrote to standard error; with ``merged``, to both streams.

    A thread reads the output, so that a process that writes a lot does not block on a full pipe. With ``imports``, the
    process is forked from one that has imported these modules, if that makes no difference (fork_server.py). Other
    keyword arguments are passed to Popen. ``with`` starts the process and ends it.
    """

    process: Child

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        merged: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        imports: tuple[str, ...] = (),
        **popen: Any,
    ) -> None:
        self.command = [str(word) for word in command]
        self._imports = imports
        self.log: list[str] = []
        self._merged = merged
        self._popen: dict[str, Any] = {"env": env, "cwd": cwd, **popen}
        self._changed = threading.Condition()

    def start(self: Self) -> Self:
        """Start the process, for the first time or after its end, with an empty log. Returns this object."""
        output, end = os.pipe()
        streams = {"stdin": subprocess.DEVNULL, "stdout": end if self._merged else subprocess.PIPE, "stderr": end}
        self.log = []
        self._left = threading.Event()
        try:
            self.process = self._opened({**streams, **self._popen})
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(end)
        self._reader = threading.Thread(target=self._read, args=(output, self.log), daemon=True)
        self._reader.start()
        return self

    def _opened(self, options: dict[str, Any]) -> Child:
        streams = {name: value for name, value in options.items() if name not in ("env", "cwd")}
        if self._imports and can_fork(self.command, options["env"], streams):
            return ForkedProcess(self.command, modules=self._imports, **options)
        return subprocess.Popen(self.command, **options)

    def _read(self, output: int, log: list[str]) -> None:
        pending = b""
        while not self._left.is_set():
            if not is_readable(output, 0.1):
                continue
            chunk = os.read(output, 65536)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            with self._changed:
                log += [line.decode(errors="backslashreplace") for line in lines]
                self._changed.notify_all()
        os.close(output)
        with self._changed:
            if pending:
                log.append(pending.decode(errors="backslashreplace"))
            self._changed.notify_all()

    def close_output(self) -> None:
        """Stop reading and close the pipe, as ``| head`` does."""
        self._left.set()
        self._reader.join()

    @property
    def output(self) -> str:
        """The log as one text."""
        return "\n".join(self.log)

    def wait_for_log(self, pattern: str, *, after: int = 0, within_s: float = DEADLINE_S) -> re.Match[str]:
        """Wait for a log line that matches ``pattern``, from line ``after`` on, and return the match.

        Raises AssertionError with the whole log after ``within_s`` seconds, or if the process ends without the line.
        """
        deadline = time.monotonic() + within_s
        seen = after
        with self._changed:
            while True:
                ended = not self._reader.is_alive()
                for line in self.log[seen:]:
                    if match := re.search(pattern, line):
                        return match
                seen = len(self.log)
                left_s = deadline - time.monotonic()
                if left_s <= 0 or ended:
                    raise AssertionError(f"no log line matches {pattern!r} in:\n{self.output}")
                self._changed.wait(min(left_s, 0.1))

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def signal_twice(self) -> None:
        """Send two signals that arrive at once, however busy the machine is."""
        send_two_signals(self.process.pid)

    def signal_until(self, number: int, pattern: str) -> None:
        """Send the signal until a line of the log matches: signals within a second of the first one are the same."""
        deadline = time.monotonic() + DEADLINE_S
        while not any(re.search(pattern, line) for line in list(self.log)):
            assert self.is_running, self.output
            assert time.monotonic() < deadline, self.output
            self.signal(number)
            time.sleep(0.1)

    def wait_for_exit(self, within_s: float = DEADLINE_S) -> int:
        """Wait until the process has ended and its log is complete. Returns the exit status."""
        status = self.process.wait(within_s)
        self._reader.join(within_s)
        return status

    def terminate(self) -> int:
        """Send SIGTERM, wait for the exit and return the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait_for_exit()

    def kill(self) -> None:
        """Send SIGKILL if the process still runs, and wait for its end."""
        if self.is_running:
            self.process.kill()
        self.wait_for_exit()

    def stop(self) -> None:
        """Send SIGTERM if the process still runs, and SIGKILL if it does not end within DEADLINE_S."""
        if self.is_running:
            self.process.terminate()
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.close()

    def close(self) -> None:
        """Kill the process if it still runs, and close its pipes. Does nothing before the first start.

        Of a process that has ended before, print the status and the end of its log, which pytest shows if the test
        fails.
        """
        if not hasattr(self, "process"):
            return
        if not self.is_running:
            print(f"exit status {self.process.returncode}:", *self.command)
            print(*self.log[-SHOWN_LINES:], sep="\n")
        if MEASURED and self.is_running:
            self.terminate()
        if self.is_running:
            self.process.kill()
            self.process.wait()
        self.close_output()  # a grandchild may keep the pipe open
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self: Self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
