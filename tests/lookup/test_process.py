"""nsqlookupd as a process: start, flags, stop, and invalid clients."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from nsqdaemon.settings import markdown
from nsqlookup.settings import LookupSettings
from nsqwire.version import version_text
from tests.harness.waiting import DEADLINE_S, wait_until

Start = Callable[..., Any]


def run(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nsqlookup", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_answers_and_stops(start: Start, number: int) -> None:
    """For port 0, the log has the real port; a signal ends it with status 0."""
    process = start("--log-prefix", "[x] ")
    assert process.answer("/ping") == (200, b"OK")
    assert process.end(number) == 0
    lines = [line.partition("INFO: ")[2] for line in process.log if " INFO: 200 " not in line]
    tcp, http = process.port("TCP"), process.port("HTTP")
    assert lines == [
        version_text("nsqlookupd"),
        f"TCP: listening on 127.0.0.1:{tcp}",
        f"HTTP: listening on 127.0.0.1:{http}",
        f"TCP: closing 127.0.0.1:{tcp}",
        f"HTTP: closing 127.0.0.1:{http}",
    ]
    assert all(line.startswith("[x] ") for line in process.log)


def test_nothing_outlives_the_process(start: Start) -> None:
    """The registry stores nothing: after a restart it is empty. --verbose is accepted, without effect."""
    first = start("--verbose")
    with socket.create_connection(("127.0.0.1", first.port("HTTP")), DEADLINE_S) as client:
        client.sendall(b"POST /topic/create?topic=t HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.recv(15) == b"HTTP/1.1 200 OK"
    assert first.answer("/topics") == (200, b'{"topics":["t"]}')
    first.terminate()
    assert not any(" DEBUG: " in line for line in first.log)
    assert start().answer("/topics") == (200, b'{"topics":[]}')


def test_silent_clients_do_not_delay_the_end(start: Start) -> None:
    """Connections that sent nothing, on either port, and one within a command."""
    process = start()
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(process.connect()) for _ in range(3)]
        stack.enter_context(socket.create_connection(("127.0.0.1", process.port("HTTP")), DEADLINE_S))
        silent[1].sendall(b"  V1")
        silent[2].sendall(b"  V1IDENTIFY\n\x00\x00")
        process.wait_for_log("desired protocol magic '  V1'")
        assert process.terminate() == 0
        assert [each.recv(1) for each in silent[:1]] == [b""]


def test_an_nsqd_registers_and_is_removed_when_it_disconnects(
    start: Start, receive_reply: Callable[[socket.socket], bytes], identify_command: Callable[..., bytes]
) -> None:
    """Over real sockets, with the broadcast address of the flags in the response."""
    process = start("--broadcast-address=lookup.example")
    with process.connect() as nsqd:
        nsqd.sendall(b"  V1" + identify_command(broadcast_address="nsqd.example") + b"REGISTER t c\n")
        identity = json.loads(receive_reply(nsqd))
        assert identity == {
            "broadcast_address": "lookup.example",
            "hostname": socket.gethostname(),
            "http_port": process.port("HTTP"),
            "tcp_port": process.port("TCP"),
            "version": "1.3.0",
        }
        assert receive_reply(nsqd) == b"OK"
        status, body = process.answer("/lookup?topic=t")
        (producer,) = json.loads(body)["producers"]
        assert status == 200
        assert producer["broadcast_address"] == "nsqd.example"
        assert producer["remote_address"] == "{}:{}".format(*nsqd.getsockname())
    process.wait_for_log("UNREGISTER category:topic key:t")
    assert json.loads(process.answer("/lookup?topic=t")[1]) == {"channels": ["c"], "producers": []}


STRANGERS = [
    b"GET /ping HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"  V1" + b"x" * 200_000,
    b"  V1NOPE\n",
    b"  V1IDENTIFY\n\xff\xff\xff\xff",
    b"  V1IDENTIFY\n\x7f\xff\xff\xff" + b"x" * 10_000,
    b"  V1IDENTIFY\n\x00\x00\x00\x01{",
    b"  V1IDENTIFY\n\x00\x0f\xff\xff" + b"[" * 0xFFFFF,
    b"  V1REGISTER t\n",
    b"  V1" + b"PING\n" * 50_000,
    b"",
    b"  ",
]


@pytest.mark.parametrize("face", ["TCP", "HTTP"])
def test_invalid_peers_do_not_disturb_a_client(
    start: Start, receive_reply: Callable[[socket.socket], bytes], identify_command: Callable[..., bytes], face: str
) -> None:
    """Each sends invalid bytes to either port and disconnects; an nsqd keeps pinging and stays registered."""
    process = start()
    with process.connect() as nsqd:
        nsqd.sendall(b"  V1" + identify_command() + b"REGISTER t\n")
        assert receive_reply(nsqd)
        assert receive_reply(nsqd) == b"OK"
        for said in STRANGERS:
            with socket.create_connection(("127.0.0.1", process.port(face)), DEADLINE_S) as stranger:
                with contextlib.suppress(OSError):  # it may be cut off while it is still talking
                    stranger.sendall(said)
                nsqd.sendall(b"PING\n")
                assert receive_reply(nsqd) == b"OK"
        assert len(json.loads(process.answer("/lookup?topic=t")[1])["producers"]) == 1
    assert process.terminate() == 0
    assert not [line for line in process.log if "Traceback" in line]


def test_a_refused_client_receives_the_reason(start: Start, receive_reply: Callable[[socket.socket], bytes]) -> None:
    """The reply arrives before the connection is closed, also if the client has shut down its side."""
    process = start()
    for said, reply in (
        (b"  V9", b"E_BAD_PROTOCOL"),
        (b"  V1IDENTIFY\n\x00", b"E_BAD_BODY IDENTIFY failed to read body size"),
        (b"  V1IDENTIFY\n\x00\x00\x00\x09{", b"E_BAD_BODY IDENTIFY failed to read body"),
    ):
        with process.connect() as stranger:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            assert receive_reply(stranger) == reply
            assert stranger.recv(1) == b""


def test_a_peer_that_still_sends_after_an_error_can_read_it(
    start: Start, receive_reply: Callable[[socket.socket], bytes], identify_command: Callable[..., bytes]
) -> None:
    """The connection is not reset while the peer is sending. The peer is in no response from the error on."""
    process = start()
    with process.connect() as peer:
        peer.sendall(b"  V1" + identify_command() + b"REGISTER t\n")
        assert [receive_reply(peer)[:1], receive_reply(peer)] == [b"{", b"OK"]
        peer.sendall(b"NONSENSE\n")
        wait_until(lambda: b'"producers":[]' in process.answer("/lookup?topic=t")[1], "the peer is removed")
        for _ in range(20):
            peer.sendall(b"x" * (1 << 20))
        assert receive_reply(peer).startswith(b"E_INVALID")
        assert peer.recv(1) == b""


def test_the_log_may_be_closed(start: Start) -> None:
    """The registry runs even if stderr is closed or cannot be written."""
    port = free_port()
    with Path(os.devnull).open("rb") as unwritable:
        process = start(f"--http-address=127.0.0.1:{port}", stderr=unwritable)
        for _ in range(500):
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client,
            ):
                client.sendall(b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n")
                assert client.recv(1000).endswith(b"OK")
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.process.wait(0.05)
        else:
            pytest.fail("it never answered")
        assert process.terminate() == 0


def test_version_is_printed_on_stdout() -> None:
    """``nsqlookupd v1.3.0 (built w/...)``, which scripts parse."""
    ended = run("--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, version_text("nsqlookupd") + "\n", "")


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (["-h"], 0, "--inactive-producer-timeout duration"),
        (["--nonsense"], 2, "flag provided but not defined: -nonsense"),
        (["--tombstone-lifetime=45"], 2, "'45' needs a unit"),
        (["--config=/nowhere.toml"], 1, "FATAL: failed to load config file /nowhere.toml - "),
        (["--tcp-address=xyz"], 1, "FATAL: failed to instantiate nsqlookupd - listen (xyz) failed - "),
        (["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:99999"], 1, "listen (127.0.0.1:99999) failed - "),
    ],
)
def test_a_failed_start_gives_its_reason(flags: list[str], status: int, said: str) -> None:
    """One reason on stderr and the reference's exit status."""
    ended = run(*flags)
    assert (ended.returncode, ended.stdout) == (status, "")
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_taken_port_is_named() -> None:
    """The address is in the message."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run(f"--tcp-address={address}")
    assert ended.returncode == 1
    assert f"listen ({address}) failed - Address already in use" in ended.stderr


def test_settings_come_from_the_environment_and_a_file_too(start: Start, tmp_path: Path) -> None:
    """LOOKUP_* overrides the file; a flag overrides both."""
    file = tmp_path / "lookup.toml"
    file.write_text('log_prefix = "[file] "\nlog_level = "debug"\n')
    process = start(f"--config={file}", env={**os.environ, "LOOKUP_LOG_PREFIX": "[environment] "})
    process.port("HTTP")
    assert process.terminate() == 0
    assert all(line.startswith("[environment] ") for line in process.log)


def test_it_imports_no_django() -> None:
    """The registry starts fast because it imports nothing of the platform."""
    code = (
        "import sys, nsqlookup.__main__; print([m for m in sys.modules if m.partition('.')[0] in ('django', 'celery')])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "[]\n"


def test_the_docs_list_all_settings() -> None:
    """docs/settings-nsqlookupd.md has the table of the declarations; ``make docs`` updates it."""
    page = Path(__file__).parents[2] / "docs" / "settings-nsqlookupd.md"
    assert page.read_text().endswith("\n\n" + markdown(LookupSettings))


def test_the_log_can_be_json(start: Start) -> None:
    """With --log-format=json every line is an object with time, level, logger and message."""
    process = start("--log-format=json")
    process.wait_for_log("HTTP: listening on ")
    assert process.terminate() == 0
    records = [json.loads(line) for line in process.log]
    assert all(list(record) == ["time", "level", "logger", "message"] for record in records)
    assert records[0]["message"].startswith("nsqlookupd v1.3.0 (built w/")
