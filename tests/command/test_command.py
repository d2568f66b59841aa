"""``nsq`` itself: its list of subcommands, its errors, its completion, and the modules that it does not import."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import brokerd.kernel
from bench.ports import free_port
from tests.command.conftest import environment
from tests.command.forked import Answer
from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S

SUBCOMMANDS = [
    *("up", "demo", "doctor", "brokerd", "lookup", "prepare", "web", "collector", "worker", "dispatcher", "beat"),
    *("pub", "tail", "to-file", "to-http", "to-nsq", "pubsub"),
    *(
        "stat",
        "topics",
        "channels",
        "policies",
        "messages",
        "dead",
        "nodes",
        "repair",
        "promote",
        "signin-link",
        "manage",
    ),
    *("mark", "definitions"),
    *("completion", "man"),
]
NEED_WORDS = {"manage", "repair", "mark", "definitions", "completion"}
"""Subcommands that report a missing argument before an unknown option."""
TAKE_WORDS = {"pub", "repair", "mark", "man"}
"""Subcommands whose first argument may be any word, or has a message of its own."""
WRONG = [
    *(((name, "--no-such-option"), "required" if name in NEED_WORDS else "no-such-option") for name in SUBCOMMANDS),
    *(((name, "stray"), "stray") for name in SUBCOMMANDS if name not in TAKE_WORDS),
    (("pub",), "a topic is required"),
    (("pub", "not/valid", "hello"), "topic name 'not/valid' is not valid"),
    (("tail",), "--topic required"),
    (("stat", "--topic", "t"), "--topic and --channel are required"),
    (("brokerd", "--node-id", "5000"), "--node-id must be [0,1024)"),
    (("brokerd", "--e2e-processing-latency-percentile", "x"), "'x' is not a number"),
    (("lookup", "--inactive-producer-timeout", "5"), "needs a unit"),
    (("messages", "cancel"), "requires a topic and one or more ids"),
    (("dead", "requeue", "orders"), "requires a topic and one or more channels"),
    (("nodes", "drain"), "requires one or more nodes"),
    (("nodes", "handover"), "requires one or more nodes"),
    (("nodes", "list", "--timeout", "1s"), "--timeout is for drain, not for list"),
    (("nodes", "drain", "n:1", "--timeout", "5"), "--timeout: the duration '5' needs a unit"),
    (("nodes", "drain", "n:1", "--publishes", "maybe"), "invalid choice: 'maybe'"),
    (("mark", "--list", "--delete", "7"), "--delete: not allowed with argument --list"),
    (("mark", "x", "--at", "2026-03-14"), "'2026-03-14' is not a time with a zone"),
    (("definitions", "check"), "the following arguments are required: FILE"),
    (("completion", "tcsh"), "tcsh"),
    (("help", "xyzzy"), "unknown subcommand 'xyzzy'"),
    (("man", "xyzzy"), "unknown subcommand 'xyzzy'"),
    (("up", "--port-base", "65530"), "65530 is not a port from 1 to 65514"),
    (("--xyzzy",), "unknown option '--xyzzy'"),
]
COMPLETED = {
    ("completion", "--words", "do"): ["doctor"],
    ("completion", "--words", "help", "to-"): ["to-file", "to-http", "to-nsq"],
    ("completion", "--words", "nsq_tail", "--to"): ["--topic"],
    ("completion", "--words", "tail", "--progress", ""): ["auto", "lines", "none"],
    ("completion", "--words", "tail", "--progress=l"): ["--progress=lines"],
    ("completion", "--words", "up", "--log-level", "d"): ["debug"],
    ("completion", "--words", "dead", "req"): ["requeue"],
    ("completion", "--words", "dead", "remove", "--reason", "e"): ["expired"],
    ("completion", "--words", "nodes", "dr"): ["drain"],
    ("completion", "--words", "nodes", "ha"): ["handover"],
    ("completion", "--words", "nodes", "drain", "--publishes", "t"): ["take"],
    ("completion", "--words", "definitions", "ch"): ["check"],
    ("completion", "--words", "definitions", "apply", "--p"): ["--prune"],
    ("completion", "--words", "completion", "f"): ["fish"],
    ("completion", "--words", "repair", ""): [],
    ("completion", "--words", "xyzzy", ""): [],
}
"""Command lines, and what Tab offers for the last word. Without a word, shells offer files."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What each command line of the tests below prints, by its words."""
    lines = [*(words for words, _ in WRONG), *(("help", name) for name in SUBCOMMANDS), *COMPLETED]
    folder = tmp_path_factory.mktemp("forked")
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "command" / "forked.py"],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment(folder, PYTHONPATH=str(ROOT)),
        cwd=folder,
        check=True,
    )
    return dict(zip(lines, (Answer(*each) for each in json.loads(done.stdout)), strict=True))


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_every_subcommand_with_a_line_each(nsq, words):
    answer = nsq(*words)
    assert answer.returncode == 0
    listed, _, examples = answer.stdout.partition("\nExamples:\n")
    assert re.findall(r"^  (\S+)  +\S", listed, re.MULTILINE) == SUBCOMMANDS
    assert "  nsq pub orders hello " in examples


def test_the_version_names_the_release_python_and_the_kernel(nsq):
    """Three lines, of which the last says whether the broker is compiled."""
    answer = nsq("--version")
    assert (answer.returncode, answer.stderr) == (0, "")
    release, python, kernel = answer.stdout.splitlines()
    assert release == f"nsq {version('nsq-common')}, compatible with NSQ 1.3.0"
    assert python == f"Python: CPython {'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}"
    is_compiled = brokerd.kernel.COMPILED
    assert kernel == f"kernel: {'compiled' if is_compiled else 'pure Python, at a fraction of the speed'}"


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


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_each_subcommand_explains_itself_with_examples(answers, subcommand):
    """On standard output; the examples, at the end, have options that the help lists."""
    answer = answers["help", subcommand]
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith(f"usage: nsq {subcommand}")
    _, _, examples = answer.stdout.partition("\nexamples:\n")
    assert examples.splitlines()
    for line in examples.splitlines():
        assert f"nsq {subcommand}" in line
        command = line.strip().partition("  ")[0].partition(" -- ")[0]
        for option in re.findall(r" (--[a-z][a-z-]+)", command):
            assert re.search(rf"^  .*{option}\b", answer.stdout, re.MULTILINE), option


def test_tail_says_what_it_does_to_messages_that_nobody_has_read(answers):
    """And how to look at them without."""
    said = " ".join(answers["help", "tail"].stdout.split())
    assert "Print the messages of topics as they arrive, and finish them; --peek leaves them in their channel." in said
    assert "of a topic without a channel, the whole unread backlog is printed and finished." in said


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_wrong_usage_is_one_line_and_status_2(answers, words, said):
    """Of every subcommand."""
    answer = answers[words]
    assert (answer.returncode, answer.stdout) == (2, ""), answer.stderr
    (line,) = answer.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize(
    "command",
    [
        [Path(sys.executable).parent / "nsq"],
        [sys.executable, "-m", "nsqcommand"],
        [sys.executable, ROOT / "manage.py", "nsq"],
        [sys.executable, "-m", "django", "nsq"],
    ],
    ids=["nsq", "nsqcommand", "manage.py", "django-admin"],
)
def test_wrong_usage_is_the_same_under_each_name_of_the_command(tmp_path, command):
    answer = subprocess.run(
        [*map(str, command), "up", "--bogus"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment(tmp_path, DJANGO_SETTINGS_MODULE="nsqplatform.console.settings"),
        cwd=tmp_path,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "nsq up: unrecognized arguments: --bogus\n"


def test_a_cluster_that_is_not_declared_is_wrong_usage(nsq):
    answer = nsq("collector", "--cluster", "nowhere")
    assert answer.returncode == 2
    (line,) = answer.stderr.splitlines()
    assert "nowhere" in line


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("completion", "bash"), ("man", "tail")])
def test_output_that_cannot_be_written_is_one_line(tmp_path, words):
    """Such as on a full disk."""
    with Path("/dev/full").open("w") as full:
        answer = subprocess.run(
            [sys.executable, "-m", "nsqcommand", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            env=environment(tmp_path, PYTHONPATH=str(ROOT)),
            check=False,
        )
    assert (answer.returncode, answer.stderr) == (1, "nsq: the output cannot be written: no space left on device\n")


@pytest.mark.parametrize("words", ["--help", "--version", "completion bash", "man tail", "help tail"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_without_standard_streams_does_its_work(tmp_path, words, closed):
    """A service manager or a script may have closed them."""
    answer = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m nsqcommand {words} {closed}"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment(tmp_path, PYTHONPATH=str(ROOT)),
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_command_on_a_folder_without_a_platform_is_one_line(nsq, tmp_path):
    """And creates no database there."""
    answer = nsq("manage", "--home", str(tmp_path), "create_token", "admin", "backup")
    says = f"nsq manage: there is no platform at {tmp_path}: nsq up creates one; --home names another folder\n"
    assert (answer.returncode, answer.stderr) == (1, says)
    assert not list(tmp_path.glob("*.sqlite3*"))


def test_wrong_ports_of_the_environment_are_named(nsq):
    answer = nsq("demo", NSQ_PORT_BASE="none")
    assert (answer.returncode, answer.stderr) == (2, "nsq demo: NSQ_PORT_BASE: 'none' is not a port from 1 to 65514\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("brokerd",), "listen (127.0.0.1:{taken}) failed"),
        (("brokerd", "--tls-cert", "missing.pem", "--tls-key", "missing.pem"), "failed to build TLS config"),
        (("lookup",), "listen (127.0.0.1:{taken}) failed"),
    ],
)
def test_a_daemon_that_cannot_start_leaves_nothing_in_the_working_folder(nsq, tmp_path, words, said):
    """Whose data path, by default, is that folder."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = nsq(*words, "--tcp-address", f"127.0.0.1:{port}", "--http-address", "127.0.0.1:0")
    assert answer.returncode == 1
    assert said.format(taken=port) in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_sign_in_link_before_the_first_start_says_what_is_missing(nsq):
    """One line on standard error, no traceback."""
    answer = nsq("signin-link")
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    assert line.endswith("`nsq up` or `manage.py migrate` creates the tables")


def test_a_sign_in_link_of_a_platform_that_does_not_run_says_so(nsq):
    """The link is printed, and works once the platform runs. Whether a given address answers is not asked."""
    base = free_port()
    site = f"http://127.0.0.1:{base + 21}"
    assert nsq("prepare", NSQ_PORT_BASE=str(base)).returncode == 0
    answer = nsq("signin-link", NSQ_PORT_BASE=str(base))
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"{site}/")
    assert answer.stderr == f"nsq signin-link: {site} does not answer: the link works once the platform runs there\n"
    given = nsq("signin-link", "--site", "http://127.0.0.1:1")
    assert (given.stdout.startswith("http://127.0.0.1:1/"), given.stderr) == (True, "")


@pytest.mark.parametrize("words", COMPLETED, ids=" ".join)
def test_tab_offers_subcommands_verbs_options_and_values(answers, words):
    """One a line, each with its help after a tab: what the scripts of all shells ask for."""
    answer = answers[words]
    assert (answer.returncode, answer.stderr) == (0, "")
    assert [line.split("\t")[0] for line in answer.stdout.splitlines()] == COMPLETED[words]
    assert all(line.count("\t") == 1 for line in answer.stdout.splitlines())


SHELLS = {
    "bash": """
        eval "$(nsq completion bash)"
        complete -p nsq >/dev/null || exit
        COMP_WORDS=(nsq tail --progress = l) COMP_CWORD=4
        _nsq
        printf '%s\\n' "${COMPREPLY[@]}"
        COMP_WORDS=(nsq nodes dr) COMP_CWORD=2
        _nsq
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "fish": "nsq completion fish | source; complete -C 'nsq tail --progress=l'; complete -C 'nsq nodes dr'",
    "zsh": """
        compdef() { }
        compadd() { print -rl -- $found }
        eval "$(nsq completion zsh)"
        words=(nsq tail --progress=l) CURRENT=3
        _nsq
        words=(nsq nodes dr) CURRENT=3
        _nsq
    """,
}
"""Programs in which a shell completes two command lines with the script that ``nsq completion`` prints."""


@pytest.mark.parametrize("shell", [name for name in SHELLS if name == "bash" or shutil.which(name)])
def test_the_shell_completes_with_the_printed_script(tmp_path, shell):
    """In bash, which every Debian has, and in the others where they are installed."""
    env = environment(tmp_path)
    done = subprocess.run(
        [shell, "-c", SHELLS[shell]],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**env, "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"},
        check=True,
    )
    found = [line.split("\t")[0].removeprefix("--progress=") for line in done.stdout.splitlines()]
    assert found == ["lines", "drain"], done.stderr


@pytest.mark.parametrize(
    ("shell", "registers"), [("zsh", "compdef _nsq nsq"), ("fish", "complete -c nsq -f -a '(__nsq_complete)'")]
)
def test_zsh_and_fish_get_scripts_that_ask_the_same_command(nsq, shell, registers):
    """Also where the shell is not installed."""
    answer = nsq("completion", shell)
    assert answer.returncode == 0
    assert registers in answer.stdout.splitlines()
    assert "completion --words" in answer.stdout


def test_manual_pages_are_written_for_every_subcommand(nsq, tmp_path):
    """A page each, with the help's options and examples, in requests of troff's man macros."""
    answer = nsq("man", "--directory", "man1")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    pages = {path.name: path.read_text() for path in (tmp_path / "man1").iterdir()}
    assert set(pages) == {"nsq.1", *(f"nsq-{name}.1" for name in SUBCOMMANDS)}
    requests = {".TH", ".SH", ".TP", ".B", ".BR", ".PP", ".nf", ".fi", ".br"}
    for name, page in pages.items():
        lines = page.splitlines()
        assert {line.split(" ")[0] for line in lines if line.startswith(".")} <= requests, name
        assert not [line for line in lines if line.startswith("'") or not line], name
        headings = [line.removeprefix(".SH ") for line in lines if line.startswith(".SH ")]
        assert headings[:2] == ["NAME", "SYNOPSIS"], name
        assert "EXAMPLES" in headings, name
    assert r"\-\-lookupd\-http\-address HOST:PORT" in pages["nsq-nodes.1"]
    assert r".B nsq nodes drain 127.0.0.1:4151 \-\-timeout 10m" in pages["nsq-nodes.1"]
    assert r".BR nsq\-signin\-link (1)" in pages["nsq.1"]
    assert nsq("man", "nodes").stdout == pages["nsq-nodes.1"]


@pytest.mark.parametrize("viewer", list(filter(shutil.which, ["man"])))
def test_man_shows_the_pages_without_warnings(nsq, tmp_path, viewer):
    """Where man is installed."""
    assert nsq("man", "--directory", ".").returncode == 0
    pages = sorted(tmp_path.glob("*.1"))
    shown = subprocess.run(
        [viewer, "--warnings", "--local-file", *pages],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={"PATH": environment(tmp_path)["PATH"], "LANG": "C.UTF-8", "MANPAGER": "cat"},
        check=True,
    )
    assert shown.stderr == ""
    assert shown.stdout.count("\nEXAMPLES\n") == len(pages)
