"""Errors of nsq_to_http, nsq_to_nsq, nsq_pubsub and to_nsq about invalid flags."""

from __future__ import annotations

import logging

import pytest

from aionsq.tools import pub, pubsub, to_http, to_nsq

TOOLS = {tool.name: tool for tool in (to_http.main, to_nsq.main, pubsub.main, pub.main)}
NSQD, LOOKUPD = "--nsqd-tcp-address=127.0.0.1:1", "--lookupd-http-address=127.0.0.1:1"
NEED_SOURCE = "--nsqd-tcp-address or --lookupd-http-address required"
NO_URL = "an nsqd's address is the host:port of its TCP port, without a scheme"
NOT_BOTH = "use --nsqd-tcp-address or --lookupd-http-address not both"
POST, GET = "--post=http://127.0.0.1:1/", "--get=http://127.0.0.1:1/%s"
DESTINATION = "--destination-nsqd-tcp-address=127.0.0.1:1"


@pytest.fixture
def refusal(capfd, monkeypatch):
    """Run a tool in this process with flags that it must refuse; returns its status and output."""
    monkeypatch.delenv("NSQLOOKUPD_HTTP_ADDRESSES", raising=False)

    root = logging.getLogger()  # which a tool makes its own
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)

    def run(name, flags):
        monkeypatch.setattr("sys.argv", [name, *flags])
        try:
            status = TOOLS[name]()
        except SystemExit as end:
            status = end.code
        return status, capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("name", "flags", "says"),
    [
        ("nsq_to_http", [], "--topic and --channel are required"),
        ("nsq_to_http", ["--topic=t", "--channel="], "--topic and --channel are required"),
        ("nsq_to_http", ["--topic=t", "--content-type=x"], "--content-type only used with --post"),
        ("nsq_to_http", ["--topic=t", POST, "--content-type="], "--content-type requires a value when used"),
        ("nsq_to_http", ["--topic=t"], NEED_SOURCE),
        ("nsq_to_http", ["--topic=t", NSQD, LOOKUPD], NOT_BOTH),
        ("nsq_to_http", ["--topic=t", NSQD], "--get or --post required"),
        ("nsq_to_http", ["--topic=t", POST, "--nsqd-tcp-address=http://a:1"], f"'http://a:1' is a URL: {NO_URL}"),
        ("nsq_to_http", ["--topic=t", NSQD, POST, GET], "use --get or --post not both"),
        ("nsq_to_http", ["--topic=t", NSQD, "--get=http://x/"], "invalid GET address - must be a printf string"),
        ("nsq_to_http", ["--topic=t", NSQD, GET + "%s"], "invalid GET address - must be a printf string"),
        ("nsq_to_http", ["--topic=t", NSQD, POST, "--sample=1.1"], "ERROR: --sample must be between 0.0 and 1.0"),
        ("nsq_to_http", ["--topic=t", NSQD, POST, "--sample=nan"], "ERROR: --sample must be between 0.0 and 1.0"),
        ("nsq_to_http", ["--header=k=v"], "--header value format should be 'Name: value', not 'k=v'"),
        ("nsq_to_http", ["--header=:v"], "--header value format should be 'Name: value', not ':v'"),
        (
            "nsq_to_http",
            ["--header=k: a\r\nb: c"],
            "--header value format should be 'Name: value', not 'k: a\\r\\nb: c'",
        ),
        ("nsq_to_http", ["--topic=t", NSQD, "--post=x"], "--post x: not the URL of an HTTP server"),
        ("nsq_to_http", ["--topic=t", NSQD, "--get=ftp://x/%s"], "--get ftp://x/%s: not the URL of an HTTP server"),
        ("nsq_to_http", ["--topic=t", NSQD, POST], "cannot connect to nsqd 127.0.0.1:1: connection refused"),
        ("nsq_to_http", ["--topic=a b", NSQD, POST], "topic name 'a b' is not valid"),
        ("nsq_to_nsq", [], "--topic and --channel are required"),
        ("nsq_to_nsq", ["--topic=a b"], "--topic is invalid"),
        ("nsq_to_nsq", ["--topic=t", "--destination-topic=a b"], "--destination-topic is invalid"),
        ("nsq_to_nsq", ["--topic=t", "--channel=a b"], "--channel is invalid"),
        ("nsq_to_nsq", ["--topic=t"], NEED_SOURCE),
        ("nsq_to_nsq", ["--topic=t", NSQD, LOOKUPD], NOT_BOTH),
        ("nsq_to_nsq", ["--topic=t", NSQD], "--destination-nsqd-tcp-address required"),
        (
            "nsq_to_nsq",
            ["--topic=t", LOOKUPD, "--destination-nsqd-tcp-address=x"],
            "--destination-nsqd-tcp-address: 'x' is not host:port",
        ),
        ("nsq_to_nsq", ["--topic=t", LOOKUPD, DESTINATION], "cannot connect to nsqd 127.0.0.1:1: connection refused"),
        ("nsq_pubsub", [NSQD, "--max-in-flight=0"], "--max-in-flight must be > 0"),
        ("nsq_pubsub", [], NEED_SOURCE),
        ("nsq_pubsub", [NSQD, LOOKUPD], NOT_BOTH),
        ("nsq_pubsub", [NSQD, "--http-address=x"], "listen (x) failed - address 'x': missing port in address"),
        ("to_nsq", [], "--topic required"),
        ("to_nsq", ["--topic=bad topic", NSQD], "topic name 'bad topic' is not valid"),
        ("to_nsq", ["--topic=t", "--delimiter="], "--delimiter must be a single byte"),
        ("to_nsq", ["--topic=t", "--delimiter=é"], "--delimiter must be a single byte"),
        ("to_nsq", ["--topic=t"], "--nsqd-tcp-address required"),
        ("to_nsq", ["--topic=t", NSQD], "cannot connect to nsqd 127.0.0.1:1: connection refused"),
        (
            "to_nsq",
            ["--topic=t", NSQD, "--defer=2h"],
            "--defer is more than 1h0m0s; see --producer-opt max_req_timeout",
        ),
    ],
)
def test_incompatible_flags_are_reported_as_by_the_reference(refusal, name, flags, says):
    """One line on standard error, status 1."""
    assert refusal(name, flags) == (1, f"{name}: {says}\n")


@pytest.mark.parametrize(
    ("name", "flags", "says"),
    [
        ("nsq_to_http", ["--mode=fastest"], "'fastest' is not one of round-robin, hostpool, epsilon-greedy, all"),
        ("nsq_to_nsq", ["--mode=all"], "'all' is not one of round-robin, hostpool, epsilon-greedy"),
        ("nsq_to_nsq", ["--non-json=x"], "'x' is not one of requeue, pass, drop"),
        ("nsq_to_http", ["--n=0"], "0 is less than 1"),
        ("nsq_to_http", ["--http-client-request-timeout=5"], "the duration '5' needs a unit"),
        ("to_nsq", ["--rate=-1"], "-1 is less than 0"),
        ("to_nsq", ["--topic=t", NSQD, "--producer-opt=nope"], "--producer-opt nope: invalid option nope"),
        ("nsq_to_nsq", ["--bogus"], "flag provided but not defined: -bogus"),
    ],
)
def test_an_unreadable_flag_is_reported(refusal, name, flags, says):
    """Status 2, with the flag and the reason."""
    status, said = refusal(name, flags)
    assert status == 2
    assert said.startswith(f"{name}: ")
    assert says in said


@pytest.mark.parametrize("name", TOOLS)
def test_every_flag_is_explained(refusal, name):
    """--help, on standard error with status 0: the tool's purpose, then each flag."""
    status, said = refusal(name, ["--help"])
    assert status == 0
    assert said.startswith(f"usage: {name} [--")
    assert "message" in said[: said.index("options:")] or "records" in said[: said.index("options:")]
    for flag in ("--log-level", "--nsqd-tcp-address", "--progress", "--version"):
        assert f"\n  {flag} " in said
