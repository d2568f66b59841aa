"""``nsq`` itself: its list of subcommands, its errors, and the modules that it does not import."""

from __future__ import annotations

import re

import pytest

SUBCOMMANDS = [
    *("up", "demo", "doctor", "brokerd", "lookup", "prepare", "web", "collector", "worker", "dispatcher", "beat"),
    *("pub", "tail", "to-file", "to-http", "to-nsq", "pubsub"),
    *("stat", "topics", "channels", "policies", "messages", "nodes", "repair", "signin-link", "definitions"),
]


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_every_subcommand_with_a_line_each(nsq, words):
    answer = nsq(*words)
    assert answer.returncode == 0
    assert re.findall(r"^  (\S+)  +\S", answer.stdout, re.MULTILINE) == SUBCOMMANDS


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("brokrd", "did you mean 'brokerd'?"), ("stats", "did you mean 'stat'?"), ("xyzzy", "nsq --help lists them")]
    + [("nsq_to_htp", "did you mean 'to-http'?")],
)
def test_an_unknown_subcommand_is_one_line_with_the_nearest(nsq, typed, hint):
    answer = nsq(typed)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == f"nsq: unknown subcommand {typed!r}; {hint}\n"


@pytest.mark.parametrize(
    ("subcommand", "said"),
    [
        ("brokerd", "data-path"),
        ("repair", "set-aside"),
        ("lookup", "inactive-producer-timeout"),
        ("pub", "nsqd-tcp-address"),
        ("tail", "topic"),
        ("stat", "interval"),
    ],
)
def test_broker_registry_and_tools_start_without_django(nsq, subcommand, said):
    """They start fast because they do not import it."""
    answer = nsq(subcommand, "--help", PYTHONPROFILEIMPORTTIME="1")
    assert answer.returncode == 0
    assert said in answer.stdout + answer.stderr
    imported = re.findall(r"^import time: .*\| +(\S+)$", answer.stderr, re.MULTILINE)
    assert "nsqcommand.command" in imported
    assert not {name.partition(".")[0] for name in imported} & {"django", "celery", "channels", "daphne"}


@pytest.mark.parametrize(
    "subcommand",
    [
        "up",
        "demo",
        "doctor",
        "prepare",
        "web",
        "collector",
        "worker",
        "dispatcher",
        "beat",
        "signin-link",
        "definitions",
    ],
)
def test_each_subcommand_explains_itself(nsq, subcommand):
    answer = nsq(subcommand, "--help")
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"usage: nsq {subcommand}")


def test_a_sign_in_link_before_the_first_start_says_what_is_missing(nsq):
    """One line on standard error, no traceback."""
    answer = nsq("signin-link")
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    assert "nsq up creates the database" in line


def test_a_sign_in_link_for_nobody_names_the_account(nsq, whole):
    answer = nsq("signin-link", "--user", "nobody", NSQ_HOME=str(whole.home / "var"))
    assert (answer.returncode, answer.stderr) == (1, "nsq signin-link: there is no open account 'nobody'\n")


def test_web_on_a_taken_port_ends_and_names_the_holder(nsq, whole):
    """A supervisor sees the exit; the line names the process that uses the port."""
    answer = nsq("web", "--http-address", whole.addresses["--http-address"])
    assert answer.returncode == 1
    assert f"cannot listen on {whole.addresses['--http-address']}: Address already in use" in answer.stderr
    assert f"(pid {whole.running('web')})" in answer.stderr
