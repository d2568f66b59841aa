"""``nsq up``: the whole platform, started from nothing, supervised, and stopped without loss."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from xxhash import xxh3_64_hexdigest

from bench.ports import free_port, free_ports
from tests.command.conftest import environment
from tests.harness import web
from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S

BROKER_ONLY = ("--without", "redis,collector,web,worker,dispatcher,beat")


def stats(up):
    return web.get(f"{up.nsqd}/stats", params={"format": "json"}).json()


def test_a_killed_process_is_restarted_and_up_says_so(up):
    """After a kill -9 of the broker, a line reports it, and a new one answers at the same address."""
    platform = up(*BROKER_ONLY)
    platform.wait_for_log("^Ctrl-C stops everything")
    first = platform.running("brokerd")
    web.post(f"{platform.nsqd}/pub", params={"topic": "t"}, content=b"kept").raise_for_status()
    seen = len(platform.log)
    os.kill(first, signal.SIGKILL)
    platform.wait_for_log(r"● brokerd +restarting +ended by SIGKILL; starts again in 0.5 s", after=seen)
    second = platform.running("brokerd", after=seen)
    assert second != first
    assert stats(platform)["topics"][0]["depth"] == 1


def test_a_process_that_keeps_crashing_is_started_less_and_less_often(up, tmp_path):
    """A broker that cannot start (its data path is locked) does not loop, and the rest goes on."""
    (tmp_path / "var").mkdir()
    platform = up("--without", "redis,collector,web,worker,dispatcher,beat")
    platform.wait_for_log("^Ctrl-C stops everything")
    pid = platform.running("brokerd")
    data = tmp_path / "var" / "brokerd"
    data.rename(tmp_path / "aside")
    data.mkdir()
    fd = os.open(data, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.kill(pid, signal.SIGKILL)
    pauses = [
        platform.wait_for_log(rf"● brokerd +restarting .*starts again in {pause} s") for pause in ("0.5", "1", "2")
    ]
    assert len(pauses) == 3
    assert web.get(f"http://{platform.addresses['--lookupd-http-address']}/ping").text == "OK"
    platform.signal(signal.SIGINT)
    assert platform.wait_for_exit() == 0
    os.close(fd)


def test_a_taken_port_is_named_with_its_holder_before_anything_starts(up):
    """The line has the port, the process that uses it and the flag to choose another; exit status 1, nothing was
    started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        platform = up("--nsqd-http-address", f"127.0.0.1:{port}")
        assert platform.wait_for_exit() == 1
    (line,) = platform.log
    assert f"port {port} (the broker's HTTP) is in use by" in line
    assert f"(pid {os.getpid()})" in line
    assert "--nsqd-http-address" in line
    assert not (platform.home / "var").exists()


def base_with_two_ports(stack):
    """A base of which the broker's two ports are taken, and those ports."""
    for _ in range(20):
        base = free_port()
        held = [base, base + 1]
        try:
            for port in held:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return base, held
    raise AssertionError("no two ports in a row in 20 attempts")


def test_taken_default_ports_are_named_with_the_option_that_moves_them_all(nsq):
    """One line for each port, and one more. A port chosen by its own flag is not moved, and not counted."""
    with ExitStack() as stack:
        base, held = base_with_two_ports(stack)
        answer = nsq("up", "--without=lookup,web", "--port-base", str(base))
        http = f"--nsqd-http-address=127.0.0.1:{base + 1}"
        own = nsq("up", "--without=lookup,web", "--nsqd-tcp-address=127.0.0.1:4999", http, NSQ_PORT_BASE=str(base))
    *lines, hint = answer.stderr.splitlines()
    assert answer.returncode == 1
    assert [line.split(" (")[0] for line in lines] == [f"nsq up: port {port}" for port in held]
    assert hint == "nsq up: --port-base N moves all ports at once, to N, N+1, N+10, N+11 and N+21"
    (line,) = own.stderr.splitlines()
    assert own.returncode == 1
    assert line.startswith(f"nsq up: port {base + 1} (")
    assert "--port-base" not in line


def test_the_same_port_asked_for_twice_is_named(up):
    """It is reported in a line before any process starts."""
    platform = up("--http-address", "127.0.0.1:4999", "--nsqd-tcp-address", "127.0.0.1:4999")
    assert platform.wait_for_exit() == 1
    assert "port 4999 is given twice, by --nsqd-tcp-address and --http-address" in platform.output


def test_all_ports_follow_one_base(nsq, up_from_base):
    """They are shown; in the environment, the same base leads every tool, the doctor and the sign-in link to them."""
    platform, base = up_from_base("--without", "redis,collector,web,worker,dispatcher,beat")
    assert f"Publish to nsqd at 127.0.0.1:{base} (HTTP 127.0.0.1:{base + 1})." in platform.log
    assert f"Consume with nsqlookupd at 127.0.0.1:{base + 11}." in platform.log
    assert f"For nsq's tools in other terminals: export NSQ_PORT_BASE={base}" in platform.log
    assert nsq("pub", "t", "hello", NSQ_PORT_BASE=str(base)).stderr == "nsq pub: 1 message stored in t\n"
    listed = json.loads(nsq("nodes", "--json", NSQ_PORT_BASE=str(base)).stdout)["nodes"]
    assert [node["id"] for node in listed] == [f"127.0.0.1:{base + 1}"]


def test_a_second_up_on_the_same_folder_is_refused(up):
    """The second one names the first: two brokers must not use one data path."""
    first = up("--without", "redis,brokerd,collector,web,worker,dispatcher,beat")
    first.wait_for_log("^Ctrl-C stops everything")
    second = up("--without", "redis,brokerd,collector,web,worker,dispatcher,beat")
    assert second.wait_for_exit() == 1
    assert f"another nsq up (pid {first.process.pid}) runs on" in second.output


def test_a_second_up_on_the_same_folder_and_ports_names_the_first(up):
    """Not its ports, which could be moved without any use."""
    first = up("--without", "redis,brokerd,collector,web,worker,dispatcher,beat")
    first.wait_for_log("^Ctrl-C stops everything")
    second = up("--without", "redis,brokerd,collector,web,worker,dispatcher,beat", ports=first.ports)
    assert second.wait_for_exit() == 1
    folder = first.home / "var"
    assert second.log == [
        f"nsq up: another nsq up (pid {first.process.pid}) runs on {folder}; stop it, or choose another --home"
    ]


def test_a_second_signal_does_not_wait(up):
    """Ctrl-C again ends it although a process hangs."""
    platform = up("--without", "redis,brokerd,collector,web,worker,dispatcher,beat")
    platform.wait_for_log("^Ctrl-C stops everything")
    pid = platform.running("lookup")
    os.kill(pid, signal.SIGSTOP)
    platform.signal(signal.SIGINT)
    platform.wait_for_log(r"● lookup +stopping")
    platform.signal_until(signal.SIGINT, "second signal; killing all processes")
    assert platform.wait_for_exit() == 0
    assert not psutil.pid_exists(pid)


def test_a_signal_that_arrives_twice_is_one(up):
    """``timeout`` sends it to the process and to its group: nothing is killed."""
    platform = up("--without", "redis,brokerd,collector,web,worker,dispatcher,beat")
    platform.wait_for_log("^Ctrl-C stops everything")
    platform.signal_twice()
    assert platform.wait_for_exit() == 0
    assert "killing" not in platform.output
    assert platform.log[-1] == "nsq up: all processes are stopped"


def test_a_reader_that_leaves_stops_it_in_order(up):
    """``nsq up | head``: all processes are stopped, and none is killed."""
    platform = up("--without", "redis,brokerd,collector,web,worker,dispatcher,beat")
    platform.wait_for_log("^Ctrl-C stops everything")
    pid = platform.running("lookup")
    platform.close_output()
    os.kill(pid, signal.SIGKILL)  # a reason for a log line
    assert platform.wait_for_exit() == 0


def test_a_long_path_does_not_keep_redis_from_starting(up, tmp_path):
    """The path of a Unix socket is limited to about 100 bytes; a home may be longer."""
    home = tmp_path / ("deep" * 30)
    home.mkdir()
    platform = up("--without", "lookup,brokerd,collector,web,worker,dispatcher,beat", home=home)
    platform.wait_for_log(r"● redis +running +pid \d+, unix /\S+/redis.sock")


def test_bad_options_are_named(nsq):
    """One line with the option and the permitted values; exit status 2."""
    for words, said in (
        (("--without", "brokers"), "there is no process 'brokers'; there are redis, lookup, brokerd"),
        (("--http-address", "4171"), "'4171' is not host:port with a port from 1 to 65535"),
        (("--nsqd-tcp-address", "::1:4150"), "put an IPv6 host in brackets, [::1]:4150"),
        (
            ("--without", "redis"),
            "--without redis needs REDIS_URL, for collector, web, worker, dispatcher, beat",
        ),
    ):
        answer = nsq("up", *words)
        assert answer.returncode == 2
        assert said in answer.stderr.splitlines()[-1]


def test_other_users_of_the_machine_read_nothing(up, tmp_path):
    """Also in a folder of an earlier release, which everyone could read, and whatever the user's umask is."""
    home = tmp_path / "var"
    home.mkdir()
    (home / "platform.sqlite3").touch()
    for path in (home, home / "platform.sqlite3"):
        path.chmod(0o777)
    platform = up("--without", "lookup,collector,web,worker,dispatcher,beat")
    platform.wait_for_log("^Ctrl-C stops everything")
    entries = [home, *home.iterdir()]
    assert {"platform.sqlite3", "redis", "brokerd"} <= {path.name for path in entries}
    assert [f"{path.name} {path.stat().st_mode:o}" for path in entries if path.stat().st_mode & 0o077] == []


def test_every_command_makes_the_folder_private(nsq, tmp_path):
    """Not only `nsq up`: its processes can also be started one by one."""
    home = tmp_path / "var"
    home.mkdir()
    home.chmod(0o755)
    nsq("signin-link")
    assert f"{home.stat().st_mode & 0o777:o}" == "700"


def test_a_permanent_error_is_shown_once_and_the_rest_comes_up(up, tmp_path):
    """A checkpoint of another version: the broker is not started again; registry, web and collector run."""
    data = tmp_path / "var" / "brokerd"
    data.mkdir(parents=True)
    text = b'{"format":1,"next_topic":1,"next_channel":1}\n'  # of a time when there was no import of nsqd's data
    checkpoint = data / "checkpoint"
    checkpoint.write_bytes(xxh3_64_hexdigest(text).encode() + b" 4\n" + text)
    before = checkpoint.read_bytes()
    platform = up("--without", "worker,dispatcher,beat")
    platform.wait_for_log("^Ctrl-C stops everything", within_s=150)
    for name in ("redis", "lookup", "collector", "web"):
        platform.running(name)
    assert web.get(f"{platform.site}/ping").status_code == 200
    lines = [line for line in platform.log if re.search(r"^brokerd|● brokerd", line) and "WARNING" not in line]
    states = [line.split()[2] for line in lines if line.startswith("●")]
    assert states == ["starting", "failed"]
    (reason,) = [line for line in lines if "FATAL" in line]
    assert f"{checkpoint} was written by a version that this release cannot read (it has no 'imports')" in reason
    assert "● brokerd    failed      exit 78; a restart would not help, so it is not started again" in lines
    assert "Not running: brokerd. Their last lines above give the reason." in platform.log
    assert platform.log.index(reason) < platform.log.index("Ctrl-C stops everything.")
    assert checkpoint.read_bytes() == before
    platform.signal(signal.SIGINT)
    assert platform.wait_for_exit() == 0


def test_the_rest_comes_up_beside_a_process_that_keeps_failing(up, tmp_path):
    """Redis cannot read its file: web is started although Redis is not ready, and Redis is started again."""
    redis = tmp_path / "var" / "redis"
    redis.mkdir(parents=True)
    (redis / "appendonly.aof").write_text("not a log of commands")
    platform = up("--without", "brokerd,collector,worker,dispatcher,beat")
    platform.wait_for_log("^Ctrl-C stops everything", within_s=150)
    platform.running("web")
    platform.wait_for_log(r"● redis +restarting +exit 1; starts again in 1 s")
    assert "Not running: redis. Their last lines above give the reason." in platform.log


def test_a_link_for_other_machines_signs_in(up):
    """With all interfaces as the address, the link has an address of this machine, which the platform answers to."""
    port = free_ports(1)[0]
    platform = up("--without", "lookup,brokerd,collector,worker,dispatcher,beat", "--http-address", f"0.0.0.0:{port}")
    link = platform.wait_for_log(r"Sign in, once, as admin: (http\S+)", within_s=150)[1]
    host = urlsplit(link).hostname
    own = {each.address for addresses in psutil.net_if_addrs().values() for each in addresses}
    assert host in own
    reached = {each for each in own if re.fullmatch(r"[\d.]+", each) and not each.startswith("127.")}
    assert host in (reached or {"127.0.0.1"})
    with web.client() as browser:
        page = browser.get(link)
        assert page.status_code == 200
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)[1]
        assert browser.post(link, data={"csrfmiddlewaretoken": token}).status_code == 302
        assert browser.get(f"http://{host}:{port}/api/v1/me").json()["username"] == "admin"
    by_name = web.get(f"http://127.0.0.1:{port}/signin", headers={"Host": f"{socket.gethostname()}:{port}"})
    assert by_name.status_code == 200


def test_new_files_are_private_at_once(up, tmp_path):
    """Everything that the first start creates, whatever the user's umask is, so that another user reads nothing."""
    platform = up("--without", "lookup,brokerd,collector,worker,dispatcher,beat")
    platform.wait_for_log("^Ctrl-C stops everything", within_s=150)
    home = tmp_path / "var"
    entries = [home, *home.rglob("*")]
    assert {"platform.sqlite3", "secret_key", "redis.sock"} <= {path.name for path in entries}
    assert [f"{path.name} {path.stat().st_mode:o}" for path in entries if path.stat().st_mode & 0o077] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_read_neither_accounts_nor_key(tmp_path):
    """The folder of an earlier release, which everyone could read, is closed by any command."""
    home = Path(tempfile.mkdtemp())  # pytest's folders are closed to other users
    try:
        home.chmod(0o755)
        secret = home / "secret_key"
        secret.write_text("a secret")
        secret.chmod(0o644)

        def read_by_another() -> int:
            cat = subprocess.run(["cat", str(secret)], user=65534, group=65534, extra_groups=[], capture_output=True)
            return cat.returncode

        assert read_by_another() == 0
        command = [sys.executable, str(ROOT / "manage.py"), "nsq", "signin-link"]
        subprocess.run(command, env=environment(tmp_path, NSQ_HOME=str(home)), capture_output=True, timeout=DEADLINE_S)
        assert read_by_another() != 0
    finally:
        shutil.rmtree(home)


@pytest.mark.parametrize("words", [("nsq", "up"), ("nsq", "web"), ("nsq", "signin-link"), ("migrate",)])
def test_a_data_folder_that_cannot_be_written_is_one_line_with_the_cure(words, tmp_path):
    """The folder, the reason and what to do; status 2, and no traceback."""
    home = tmp_path / "var"
    home.mkdir()
    home.chmod(0o500)
    # Root may write everywhere, unless it gives that up.
    unprivileged = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-all"] if os.geteuid() == 0 else []
    answer = subprocess.run(
        [*unprivileged, sys.executable, str(ROOT / "manage.py"), *words],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert answer.returncode == 2, answer.stderr
    (line,) = answer.stderr.splitlines()
    assert f"NSQ_HOME: '{home}' is not a folder that can be created and written to: Permission denied" in line
    assert line.endswith("; make it this user's, or set NSQ_HOME to another folder")
