"""``python distributions/build.py FOLDER [NAME…]`` builds an sdist of each distribution, and a wheel from it, in
FOLDER.

It uses the installed setuptools and Cython. Each wheel is built from the unpacked sdist, which shows that the sdist is
complete.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from nsqcommand.manual import write_pages

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "nsq-common": ROOT / "distributions" / "common",
    "nsq-client": ROOT / "distributions" / "client",
    "nsq-daemons": ROOT / "distributions" / "daemons",
    "nsq-analytics": ROOT / "distributions" / "analytics",
    "nsq-platform": ROOT / "distributions" / "platform",
    "nsq": ROOT,
}

WITH_MANUAL = ("nsq-common", "nsq-client", "nsq-daemons", "nsq-platform")
"""Distributions with subcommands of ``nsq``, whose manual pages their wheels install."""


def run_hook(hook: str, source: Path, into: Path) -> Path:
    """Call a PEP 517 hook of setuptools in ``source``. Return the file that it created in ``into``."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.{hook}(sys.argv[1]))"
    into.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", code, str(into.resolve())]
    made = subprocess.run(command, cwd=source, stdout=subprocess.PIPE, text=True, check=True)
    return into / made.stdout.splitlines()[-1]


def build(name: str, into: Path) -> Path:
    """Build the distribution's sdist, and its wheel from the sdist. Return the wheel.

    Raises FileNotFoundError if nsq-platform is to be built without a built front end.
    """
    index = ROOT / "frontend" / "dist" / "index.html"
    if name == "nsq-platform" and not index.is_file():
        raise FileNotFoundError(f"{index}: make setup builds the front end")
    if name in WITH_MANUAL:
        shutil.rmtree(FOLDERS[name] / "man", ignore_errors=True)
        write_pages(FOLDERS[name] / "man", name)
    sdist = run_hook("build_sdist", FOLDERS[name], into)
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(sdist) as archive:
        archive.extractall(scratch)
        (source,) = Path(scratch).iterdir()
        return run_hook("build_wheel", source, into)


if __name__ == "__main__":
    for name in sys.argv[2:] or FOLDERS:
        print(build(name, Path(sys.argv[1])))
