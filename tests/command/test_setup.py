"""``make`` and ``manage.py`` on a machine that lacks something: one line with the cause and the cure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S

WITHOUT_VENV = """#!/bin/sh
# Debian's Python without the package python3-venv.
case "$2" in *ensurepip*) echo "No module named ensurepip" >&2; exit 1;; esac
exec {python} "$@"
"""
BUILT = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "frontend")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the files that the commands read before anything is installed.

    They are copies, because `make clean` removes the compiled kernel.
    """
    folder = tmp_path / "clone"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "manage.py", folder)
    for source in (
        "nsqcommand",
        "nsqdaemon",
        "nsqwire",
        "nsqcluster",
        "brokerd",
        "lookup",
        "aionsq",
        "analytics",
        "integrations",
        "platform",
    ):
        shutil.copytree(ROOT / source, folder / source, symlinks=True, ignore=BUILT)
    for name in ("src", "public"):
        (folder / "frontend" / name).mkdir(parents=True)
    return folder


def run(clone: Path, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        cwd=clone,
        env={"PATH": os.environ["PATH"], "HOME": str(clone.parent), **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def half_made(clone: Path) -> None:
    """Leave what an interrupted ``python -m venv`` leaves: a Python without pip."""
    done = run(clone, sys.executable, "-m", "venv", "--without-pip", ".venv")
    assert done.returncode == 0, done.stderr


def test_a_half_made_environment_is_named_by_make_with_the_cure(clone):
    half_made(clone)
    done = run(clone, "make", ".venv/bin/python")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert ".venv is incomplete, or its Python is gone: remove it with `make clean`, then make again" in line
    assert run(clone, "make", "clean").returncode == 0
    assert not (clone / ".venv").exists()


def test_an_environment_whose_python_is_gone_is_named_too(clone):
    half_made(clone)
    for name in ("python", "python3"):
        (clone / ".venv" / "bin" / name).unlink()
        (clone / ".venv" / "bin" / name).symlink_to("/no/such/python")
    done = run(clone, "make", "setup")
    assert (done.returncode, ".venv is incomplete, or its Python is gone" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_a_python_without_venv_is_named_with_the_package_to_install(clone):
    """Nothing is left behind that the next ``make`` would take for an environment."""
    python = clone / "python-without-venv"
    python.write_text(WITHOUT_VENV.format(python=sys.executable))
    python.chmod(0o755)
    done = run(clone, "make", ".venv/bin/python", f"PYTHON={python}")
    assert done.returncode == 2
    line, _ = done.stderr.splitlines()  # the second is make's own
    reason = "cannot make .venv: its modules venv and ensurepip are missing"
    assert line == f"make: {python} {reason}; on Debian, apt install python3-venv"
    assert not (clone / ".venv").exists()


def test_without_any_python_the_packages_are_named(clone):
    done = run(clone, "make", ".venv/bin/python", "PYTHON=")
    assert done.returncode == 2
    assert done.stderr.startswith("make: no Python 3.11 or later with the modules venv and ensurepip on PATH: ")
    assert "apt install python3 python3-venv" in done.stderr


@pytest.mark.parametrize("words", [("nsq", "up"), ("migrate",)])
def test_manage_before_the_set_up_says_what_to_run(clone, words):
    """A Python that has nothing installed: the missing package, its Python and `make setup`."""
    bare = clone.parent / "bare"
    assert run(clone, sys.executable, "-m", "venv", "--without-pip", str(bare)).returncode == 0
    done = run(clone, bare / "bin" / "python", "manage.py", *words)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("manage.py: the Python package ")
    assert line.endswith(f" is not installed for {bare / 'bin' / 'python'}: run `make setup`")
    half_made(clone)
    done = run(clone, bare / "bin" / "python", "manage.py", *words)
    (line,) = done.stderr.splitlines()
    assert line.endswith(f": remove {clone / '.venv'}, which is incomplete, and run `make setup`")


def test_npm_has_its_cache_in_the_environment_where_the_home_cannot_be_written(clone):
    """In a home that can be written, npm's own default stays."""
    show = "--eval=show: ; @echo '$(NPM)'"
    absent = run(clone, "make", "--no-print-directory", show, "show", HOME="/nonexistent")
    assert f"npm_config_cache={clone}/.venv/npm-cache" in absent.stdout, absent.stderr
    usual = run(clone, "make", "--no-print-directory", show, "show")
    assert "npm_config_cache" not in usual.stdout
    assert "npm" in usual.stdout
