"""Explains the failure of a run, in one sentence for the user who requested it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from nsqanalytics.java import JavaNotFound
from nsqanalytics.locations import ArchiveMissing, Locations, archive_missing, check_folder, is_local, local_path
from nsqanalytics.progress import Cancelled
from nsqanalytics.session import MEMORY_VARIABLE, JavaDied, MasterUnreachable

_OURS = {
    JavaNotFound: "java",
    JavaDied: "java",
    MasterUnreachable: "master",
    ArchiveMissing: "archive",
    Cancelled: "cancelled",
}


def check_place(place: Locations) -> None:
    """Check the paths before a JVM is started. Raises ArchiveMissing or OSError."""
    check_archive(place.archive)
    _check_output(place)
    if is_local(place.output):
        parent = local_path(place.output).parent
        parent.mkdir(parents=True, exist_ok=True)
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(f"the result cannot be written: {parent} is not writable")


def _check_output(place: Locations) -> None:
    """Raise OSError if replacing the result would delete something that is not a result."""
    if not place.output.strip("/"):
        raise OSError(f"the result cannot be written: {place.output!r} is not a folder for a result")
    archive, output = _absolute(place.archive), _absolute(place.output)
    parts = tuple(f"{archive}/{part}/" for part in ("samples", "lives", "rollups", "iceberg"))
    if f"{archive}/".startswith(f"{output}/") or f"{output}/".startswith(parts):
        raise OSError(f"the result cannot be written: {place.output} contains the archive or is a part of it")
    if not is_local(place.output):
        return
    folder = local_path(place.output)
    if folder.exists() and not folder.is_dir():
        raise OSError(f"the result cannot be written: {folder} is not a folder")
    others = sorted(path.name for path in folder.glob("*") if not _RESULT_FILE.fullmatch(path.name))
    if others:
        raise OSError(f"the result cannot be written: {folder} contains {others[0]}, which is not part of a result")


_RESULT_FILE = re.compile(r"_SUCCESS|.*\.parquet|\..*\.crc")


def _absolute(path: str) -> str:
    return str(local_path(path).resolve()).rstrip("/") if is_local(path) else path.rstrip("/")


def check_archive(root: str) -> None:
    """Raise ArchiveMissing or PermissionError if the archive is local and cannot be read."""
    if is_local(root):
        archive = local_path(root)
        try:
            check_folder(root)
        except NotADirectoryError as error:
            raise ArchiveMissing(f"the archive cannot be read: {error}") from None
        if not (archive / "samples").is_dir():
            raise archive_missing(f"{archive}/samples")
        if not os.access(archive / "samples", os.R_OK | os.X_OK):
            raise PermissionError(f"the archive {archive}/samples may not be read")


def explained(error: Exception) -> tuple[str, str]:
    """Return the kind of an error (docs/architecture.md) and one line of text.

    Spark's errors contain pages of plans and stack traces; the line is the part that a user can act on.
    """
    for type_, kind in _OURS.items():
        if isinstance(error, type_):
            return kind, str(error)
    text = _whole_text(error)
    if found := re.search(r"^nsqanalytics\.topics\.errors\.\w+: (.+)$", text, re.MULTILINE):
        return "other", found[1]
    if re.search("No space left on device|Disk quota exceeded|File too large", text):
        return "disk", "the disk is full: Spark could not write its result or its temporary files"
    if found := re.search(r"Class (org\.apache\.hadoop\.fs\.s3a\.\S+) not found", text):
        return "archive", f"Spark has no library for s3a:// addresses: add {_hadoop_aws()} to spark.jars.packages"
    if found := re.search(r"No FileSystem for scheme \W?(\w+)", text):
        return "archive", f"Spark has no library for {found[1]}:// addresses: add one to spark.jars.packages"
    if isinstance(error, OSError):
        return "archive", f"{error.strerror}: {error.filename}" if error.filename else _first_line(str(error))
    if found := re.search(r"a reading is invalid: ([^\n]*?): (file:[^\s,]+|[a-z0-9]+://[^\s,]+)", text):
        path = unquote(found[2]).removeprefix("file://")
        return "archive", f"the archive has an invalid reading: {found[1]}, in {path}"
    if found := re.search(r"counting\.sums\.TooLarge: ([^\n]+)", text):
        return "archive", found[1]
    # Of an error in a Python process of Spark, the text contains the line that raised it: only a URI is a file.
    if found := re.search(r"a file cannot be read: ([a-z0-9]+:/\S+): ([^\n]+)", text):
        return "archive", _unreadable(unquote(found[1]).removeprefix("file://"), found[2])
    if found := re.search(r"Encountered error while reading file ([a-z0-9]+:/\S+?)\.? ", text + " "):
        return "archive", _unreadable(unquote(found[1]).removeprefix("file://"), "")
    if found := re.search(r"(?:Permission denied|AccessControlException)[^\n]*", text):
        return "archive", found[0]
    if "Java heap space" in text or "GC overhead limit" in text:
        return "memory", (
            f"Spark ran out of memory: report on a shorter period, or set {MEMORY_VARIABLE} to more than it is now, on "
            "this machine by default 2g; on a cluster, also spark.executor.memory"
        )
    if re.search("Python worker exited unexpectedly|MemoryError|malloc of size", text):
        return "memory", "a Python process of Spark was killed or ran out of memory: report on a shorter period"
    if "All masters are unresponsive" in text:
        return "master", "the Spark master stopped answering"
    if re.search("StatusCode.UNAVAILABLE|failed to connect to all addresses", text):
        return "master", "the Spark Connect server stopped answering"
    if "local class incompatible" in text:
        return "master", f"the Spark cluster has another version than this side: {_first_line(text)}"
    if found := re.search("No module named '(nsqanalytics|nsqwire|numpy|pyarrow)", text):
        return "master", f"the Python of Spark's workers has no {found[1]}: it needs nsq-analytics (PYSPARK_PYTHON)"
    return "other", _first_line(text) or type(error).__name__


def _unreadable(path: str, reason: str) -> str:
    """Return the message for a file that cannot be read, because it is damaged or because the system refuses it."""
    name = f"{Path(path).name} cannot be read ({path})"
    if refused := re.search(r"\[errno \d+\] ([^\[\]]+)$", reason, re.IGNORECASE):
        return f"{name}: {refused[1]}"
    return f"the archive is damaged: {name}"


def _first_line(text: str) -> str:
    """Return the first useful line, shortened. Py4J's own line contains only an object number."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("An error occurred while calling ")), "")[:400]


def _hadoop_aws() -> str:
    """Return the coordinates of the package ``hadoop-aws`` for the Hadoop version of the installed Spark."""
    import pyspark

    jars = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    version = next((jar.stem.removeprefix("hadoop-client-api-") for jar in jars), "VERSION")
    return f"org.apache.hadoop:hadoop-aws:{version}"


def _whole_text(error: BaseException) -> str:
    """Return the message of an error and those of its causes, in Python and Java."""
    parts = [str(error)]
    java = getattr(error, "java_exception", None)
    for _ in range(20):
        if java is None:
            break
        parts.append(str(java.toString()))
        java = java.getCause()
    cause = error.__cause__ or getattr(error, "_cause", None)
    if isinstance(cause, BaseException):
        parts.append(_whole_text(cause))
    return "\n".join(parts)
