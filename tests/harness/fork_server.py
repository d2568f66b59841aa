"""Python programs that start quickly: forks of a process that has imported them.

Imports are most of what a short-lived process costs. A *fork server* is a process that has imported a program's modules
and does nothing else. For each start it forks, and the child runs the command as ``python -m MODULE``, ``python -c
PROGRAM`` or ``python SCRIPT`` would: with its own process id, arguments, command line, environment, working folder and
standard streams, and an exit that is the interpreter's. Each process of pytest has servers of its own.

A fork does not test the start-up: tests of imports, of what the interpreter reads when it starts, of memory and of
limits start plain processes. So does a command for which ``can_fork`` is False.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, Protocol

ROOT: Final = Path(__file__).resolve().parents[2]
STANDARD: Final = (0, 1, 2)
LARGEST_REQUEST: Final = 1 << 20
LIMITS: Final = tuple(number for name, number in vars(resource).items() if name.startswith("RLIMIT_"))
READ_AT_IMPORT: Final = ("PYTHON", "LC_", "LANG", "TZ", "BROKERD_KERNEL")
"""Beginnings of the variables that the interpreter and the programs read when they start."""
ENVIRONMENT: Final = dict(os.environ)
"""The environment of fork servers: this process's, before a test changed it."""
COMMAND_LINE_SIZE: Final = 4096
"""Room for the command line that a fork shows, in bytes: that of its server, which is padded to this length."""

Stream = int | IO[Any] | None


class Child(Protocol):
    """What the tests use of a Popen."""

    args: Any
    pid: int
    returncode: Any
    stdin: IO[Any] | None
    stdout: IO[Any] | None
    stderr: IO[Any] | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class ForkServer:
    """The client's side of a fork server that has imported ``modules``."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        # Imports of numpy start a thread for each core otherwise, and a process with threads cannot be forked safely.
        environment = ENVIRONMENT | {"OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.harness.fork_server", str(theirs.fileno()), ",".join(modules)]
        padding = "-" * (COMMAND_LINE_SIZE - sum(len(word) + 1 for word in command))
        with theirs:
            self._process = subprocess.Popen(
                [*command, padding],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()

    def start(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Fork a process with these standard streams. Returns its id."""
        return self._ask({"start": request}, streams)

    def status_of(self, pid: int) -> int:
        """Return the exit status of a process that has ended, as Popen's ``returncode``. Call it once per process."""
        return self._ask({"reap": pid})

    def _ask(self, question: Mapping[str, Any], streams: Sequence[int] = ()) -> int:
        with self._lock:
            try:
                socket.send_fds(self._connection, [json.dumps(question).encode()], streams)
                answer = self._connection.recv(64)
            except ConnectionError:
                answer = b""
        if not answer:
            raise AssertionError(f"the fork server has ended, with status {self._process.wait()}")
        return int(answer)


@cache
def server(modules: tuple[str, ...]) -> ForkServer:
    """This process's fork server for these modules, started at the first call."""
    return ForkServer(modules)


class ForkedProcess:
    """A process like Popen's, of a command for which ``can_fork`` is True."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        modules: tuple[str, ...],
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
    ) -> None:
        self.args = args
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._server = server(modules)
        request = {
            "command": [str(word) for word in args[1:]],
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or os.getcwd()),
            "umask": current_umask(),
            "limits": [resource.getrlimit(number) for number in LIMITS],
        }
        os.stat(cwd or os.curdir)  # raises FileNotFoundError as Popen does
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for number, (name, given) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
                theirs.append(self._stream(name, number, given, ours))
            self.pid = self._server.start(request, theirs)
        finally:
            for descriptor in ours:
                os.close(descriptor)
        self._ended = os.pidfd_open(self.pid)
        weakref.finalize(self, os.close, self._ended)  # not before: another thread may wait for it

    def _stream(self, name: str, number: int, given: Stream, opened: list[int]) -> int:
        """The descriptor that becomes the child's stream ``number``. ``opened`` gets those to close after the start."""
        if given is None:
            return number
        if given == subprocess.PIPE:
            reading, writing = os.pipe()
            end, ours = (reading, writing) if number == 0 else (writing, reading)
            setattr(self, name, os.fdopen(ours, "wb" if number == 0 else "rb"))
            opened.append(end)
            return end
        if given == subprocess.DEVNULL:
            opened.append(os.open(os.devnull, os.O_RDWR))
            return opened[-1]
        return given if isinstance(given, int) else given.fileno()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self._status_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raises TimeoutExpired after ``timeout`` seconds."""
        status = self._status_within(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return status

    def _status_within(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._ended, select.POLLIN)
            if not poll.poll(None if seconds is None else seconds * 1000):
                return None
            with self._lock:
                if self.returncode is None:
                    self.returncode = self._server.status_of(self.pid)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended. Until its status was asked for, its id is not used again."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def can_fork(command: Sequence[str], env: Mapping[str, str] | None, popen: Mapping[str, Any]) -> bool:
    """Whether a fork of the server is the same as a new process for this command.

    Not for other options of Popen than the streams, on a system without pidfd_open, under coverage, nor with an
    environment in which the program would start differently.
    """
    return (
        command[0] == sys.executable
        and (command[1] in ("-m", "-c") or command[1].endswith(".py"))
        and set(popen) <= {"stdin", "stdout", "stderr"}
        and popen.get("stderr") != subprocess.STDOUT
        and hasattr(os, "pidfd_open")
        and "COVERAGE_PROCESS_CONFIG" not in os.environ
        and read_at_import(os.environ if env is None else env) == read_at_import(ENVIRONMENT)
    )


def read_at_import(env: Mapping[str, str]) -> dict[str, str]:
    """The variables on which a start depends. A folder of PYTHONPATH may have a sitecustomize."""
    return {name: value for name, value in env.items() if name.startswith(READ_AT_IMPORT)}


def current_umask() -> int:
    """This process's umask, which os.umask() reads only by changing it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("\nUmask:")[2].split()[0], 8)


def run(
    command: Sequence[str], *, modules: tuple[str, ...], timeout: float, text: str = "", **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a fork, with ``text`` as standard input, and with its output captured as text.

    Raises TimeoutExpired, after it has killed the process.
    """
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        given.write(text)
        given.seek(0)
        child = ForkedProcess(command, modules=modules, stdin=given, stdout=output, stderr=errors, **more)
        try:
            status = child.wait(timeout)
        except BaseException:
            child.kill()
            child.wait()
            raise
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess(command, status, *texts)


# ---- the server's side


def serve(connection: socket.socket) -> list[str] | None:
    """Fork for each request, until the client closes the connection. Returns None then, and in a fork its command."""
    while True:
        try:
            data, streams, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, len(STANDARD))
        except KeyboardInterrupt:  # Ctrl-C on the terminal is for pytest
            continue
        if not data:
            return None
        question = json.loads(data)
        if "reap" in question:
            _, status = os.waitpid(question["reap"], 0)
            connection.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if pid == 0:
            connection.close()
            return become(question["start"], streams)
        for stream in streams:
            os.close(stream)
        connection.send(b"%d" % pid)


def become(request: Mapping[str, Any], streams: Sequence[int]) -> list[str]:
    """Take on the streams, environment, working folder, umask and limits of a request. Returns its command."""
    for stream, number in zip(streams, STANDARD, strict=True):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    open_streams()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    for number, (soft, hard) in zip(LIMITS, request["limits"], strict=True):
        if resource.getrlimit(number) != (soft, hard):
            resource.setrlimit(number, (soft, hard))
    command: list[str] = request["command"]
    folders = {"-m": request["cwd"], "-c": ""}
    sys.path[0] = folders.get(command[0], os.path.dirname(os.path.abspath(command[0])))
    sys.orig_argv = [sys.executable, *command]
    show_command_line(sys.orig_argv)
    return command


def open_streams() -> None:
    """Open Python's standard streams anew: whether a stream can seek is asked once, and the server's is a device."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        mode, is_log = "r" if number == 0 else "w", number == 2
        stream = open(  # noqa: SIM115
            number, mode, 1 if is_log else -1, encoding=before.encoding, errors=before.errors, closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def show_command_line(words: Sequence[str]) -> None:
    """Overwrite the process's arguments, so that ``ps`` and psutil show these words."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end: proc(5), fields 48 and 49
    text = os.fsencode("\0".join(words) + "\0")[: end - start - 1]
    # If the last byte is not NUL, the kernel shows one string up to its NUL, so the words are joined by spaces.
    ctypes.memmove(start, text.replace(b"\0", b" ").rstrip().ljust(end - start - 1, b"\0") + b"\1", end - start)


def execute(command: Sequence[str]) -> None:
    """Run ``-m MODULE …``, ``-c PROGRAM …`` or ``SCRIPT …`` as the interpreter does."""
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif command[0] == "-c":
        sys.argv = ["-c", *command[2:]]
        sys.modules["__main__"] = program = ModuleType("__main__")
        exec(compile(command[1], "<string>", "exec"), program.__dict__)
    else:
        sys.argv = list(command)
        runpy.run_path(command[0], run_name="__main__")


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for module in sys.argv[2].split(","):
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads after the imports"
    command = serve(connection)
    if command is not None:
        execute(command)


if __name__ == "__main__":
    main()
