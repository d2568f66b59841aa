"""The archive of Spark's classes: sessions use it, and do without it if it cannot be used."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nsqanalytics.class_archive import ClassArchive, class_archive
from nsqanalytics.java import Java, find_java


@pytest.fixture
def java() -> Java:
    return find_java(os.environ)


@pytest.fixture
def place(java: Java, tmp_path: Path) -> ClassArchive:
    """The place of an archive that does not exist."""
    found = class_archive(java, {"NSQ_SPARK_CLASSES": str(tmp_path / "classes")})
    assert found is not None
    return found


def fake_java(folder: Path, does: str) -> Java:
    """A Java that writes no archive."""
    script = folder / "java"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o755)
    return Java(script, 17, "a test", has_vector_module=True)


SESSION = """
import psutil
from nsqanalytics.session import own_java, spark_session
with spark_session("maps", size=0):
    print(*(each.path for each in psutil.Process(own_java().pid).memory_maps()), sep="\\n")
"""


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_session_maps_the_archive_of_this_machine(class_options, java):
    """Its Java has the file in its memory, and not merely its name among its options."""
    found = class_archive(java, os.environ)
    assert found is not None
    assert str(found.path) in class_options
    mapped = subprocess.run([sys.executable, "-c", SESSION], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert str(found.path) in mapped.splitlines()


def test_java_starts_with_a_damaged_archive_and_does_not_mention_it(java, place):
    """A file that is no archive is ignored. Standard output stays that of the program."""
    place.path.parent.mkdir()
    place.path.write_bytes(b"no archive" * 1000)

    options = [option.strip('"') for option in place.options().split(" ")]
    answer = subprocess.run([java.executable, *options, "--version"], capture_output=True, text=True, check=True)

    assert options[0] == f"-XX:SharedArchiveFile={place.path}"
    plain = subprocess.run([java.executable, "--version"], capture_output=True, text=True, check=True)
    assert "archive" not in answer.stdout + answer.stderr
    assert answer.stdout.splitlines()[0] == plain.stdout.splitlines()[0]


def test_a_session_without_an_archive_has_no_option_of_one(place):
    assert place.options() == ""


def test_no_archive_is_wanted_where_its_folder_is_empty(java):
    assert class_archive(java, {"NSQ_SPARK_CLASSES": "", "HOME": "/home/ann"}) is None
    assert class_archive(java, {}) is None


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/ann"}, "/home/ann/.cache/nsq"),
        ({"HOME": "/home/ann", "XDG_CACHE_HOME": "/cache"}, "/cache/nsq"),
        ({"HOME": "/home/ann", "NSQ_SPARK_CLASSES": "/srv/classes"}, "/srv/classes"),
    ],
)
def test_archives_are_in_the_users_cache_or_in_the_configured_folder(java, environ, folder):
    found = class_archive(java, environ)
    assert found is not None
    assert str(found.path.parent) == folder


def test_another_java_has_another_archive(java, place, tmp_path: Path):
    """An archive fits only the Java that wrote it."""
    other = replace(java, executable=fake_java(tmp_path, "").executable)

    found = class_archive(other, {"NSQ_SPARK_CLASSES": str(tmp_path / "classes")})

    assert found is not None
    assert found.path != place.path


def test_only_one_process_creates_an_archive(place):
    """Another one in the background returns at once."""
    place.path.parent.mkdir()
    with (place.path.parent / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert place.create(wait=False) is False
    assert [path.name for path in place.path.parent.iterdir()] == ["lock"]


def test_a_java_that_writes_no_archive_is_not_asked_again_on_the_same_day(tmp_path: Path):
    """The reason is in the folder, and no process is started for it."""
    log = tmp_path / "asked"
    java = fake_java(tmp_path, f"echo asked >> {log}; echo Sharing is not supported.; exit 1")
    place = ClassArchive(tmp_path / "classes" / "spark-1.jsa", java)

    with pytest.raises(Exception, match="Sharing is not supported"):
        place.create()
    asked = log.read_text()
    before = psutil.Process().children()
    place.create_in_background()

    assert (tmp_path / "classes" / "spark-1.failed").read_text() == "Sharing is not supported.\n"
    assert psutil.Process().children() == before
    assert log.read_text() == asked


def test_an_archive_that_was_not_used_for_a_month_is_removed(tmp_path: Path):
    """It is of an earlier Java or Spark. A session's use of another one counts."""
    java = fake_java(tmp_path, "exit 1")
    place = ClassArchive(tmp_path / "classes" / "spark-1.jsa", java)
    used, unused = (ClassArchive(tmp_path / "classes" / f"spark-{n}.jsa", java) for n in (2, 3))
    place.path.parent.mkdir()
    for other in (used, unused):
        other.path.write_bytes(b"")
        os.utime(other.path, (0, 0))
    assert used.options() != ""

    with pytest.raises(Exception, match="no archive"):
        place.create()

    assert (used.path.exists(), unused.path.exists()) == (True, False)


def test_an_unfinished_archive_of_a_killed_process_is_removed(tmp_path: Path):
    """The next process that creates one removes it. The lock says that nobody is writing it any more."""
    place = ClassArchive(tmp_path / "classes" / "spark-1.jsa", fake_java(tmp_path, "exit 1"))
    left = tmp_path / "classes" / "writing-abc" / "made.jsa"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")

    with pytest.raises(Exception, match="no archive"):
        place.create()

    assert not left.parent.exists()
