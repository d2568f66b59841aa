"""What an installation holds, and that it never fails over the optional kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOT_SOURCES = shutil.ignore_patterns(
    ".*", "var", "build", "frontend", "tests", "*.so", "_*.c", "*.egg-info", "__pycache__", "node_modules"
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of what is installed, without anything built."""
    copy = tmp_path_factory.mktemp("sources") / "nsq"
    shutil.copytree(ROOT, copy, ignore=NOT_SOURCES)
    return copy


def wheel(sources, into, **env):
    """Build a wheel as ``pip install .`` does."""
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "-w", into, sources],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(into), **env},
        timeout=170,
        check=False,
    )
    output = answer.stdout + answer.stderr
    assert answer.returncode == 0, output
    (built,) = into.glob("*.whl")
    return zipfile.ZipFile(built).namelist(), output


def test_without_a_compiler_the_kernel_is_left_out_with_a_warning(sources, tmp_path):
    """The installation succeeds, says what it left out, and holds every package and what belongs to it."""
    names, output = wheel(sources, tmp_path, CC="no-such-compiler")
    assert "the plain-Python kernel serves" in output
    assert not [name for name in names if name.endswith(".so")]
    assert {name.partition("/")[0] for name in names if name.endswith("/__init__.py")} == {
        *("nsqwire", "brokerd", "lookup", "aionsq", "analytics", "bench"),
        *("console", "cluster", "reports", "alerts", "accounts", "nsqadmin"),
    }
    assert not [name for name in names if name.startswith(("platform", "tests"))]
    for wanted in (
        "brokerd/kernel/frames.py",
        "brokerd/kernel/_frames.pyi",
        "console/nsq/up.py",
        "console/management/commands/nsq.py",
        "console/templates/console/base.html",
        "accounts/migrations/0001_initial.py",
        "aionsq/tools/tail.py",
        "analytics/transforms/latency.py",
    ):
        assert wanted in names


@pytest.mark.skipif(not shutil.which(os.environ.get("CC", "cc")), reason="no C compiler on PATH")
def test_with_a_compiler_the_kernel_is_compiled(sources, tmp_path):
    """One extension for each .pyx, beside its plain twin."""
    names, _ = wheel(sources, tmp_path)
    for source in (ROOT / "brokerd" / "kernel").glob("_*.pyx"):
        assert [name for name in names if name.startswith(f"brokerd/kernel/{source.stem}.") and name.endswith(".so")]
