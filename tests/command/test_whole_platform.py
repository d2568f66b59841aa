"""The whole platform as ``nsq up`` runs it: all processes, the other subcommands beside it, and its end."""

from __future__ import annotations

import re
import signal
import socket

import psutil

from tests.command.test_doctor import findings
from tests.command.test_up import BROKER_ONLY
from tests.harness import web
from tests.harness.waiting import DEADLINE_S, wait_until

ALL = ("redis", "lookup", "brokerd", "collector", "web", "worker", "dispatcher", "beat")


def channel_of(up, topic):
    """The only channel of a topic, as the broker's /stats has it."""
    answer = web.get(f"{up.nsqd}/stats", params={"format": "json", "topic": topic}).json()
    (channel,) = answer["topics"][0]["channels"]
    return channel


def test_every_process_comes_up_from_nothing_and_answers(whole):
    """One command, an empty folder: each process has a status line, and every server answers /ping."""
    pids = [whole.running(name) for name in ALL]
    assert len(set(pids)) == len(ALL)
    assert all(psutil.pid_exists(pid) for pid in pids)
    for flag in ("--nsqd-http-address", "--lookupd-http-address", "--http-address"):
        answer = web.get(f"http://{whole.addresses[flag]}/ping")
        assert (answer.status_code, answer.text) == (200, "OK"), flag


def test_the_broker_is_registered(whole):
    """A consumer gets a working address from the registry."""

    def producers():
        return web.get(f"http://{whole.addresses['--lookupd-http-address']}/nodes").json()["producers"]

    wait_until(producers)
    (producer,) = producers()
    address = f"{producer['broadcast_address']}:{producer['tcp_port']}"
    assert address == whole.addresses["--nsqd-tcp-address"]


def test_the_printed_link_signs_in_once(whole):
    """It makes a new user the administrator; a second use is refused."""
    link = whole.wait_for_log(r"Sign in, once, as admin: (http\S+)")[1]
    assert link.startswith(whole.site)

    def use(browser):
        form = browser.get(link)
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form.text)[1]
        return browser.post(link, data={"csrfmiddlewaretoken": token})

    with web.client() as newcomer:
        answer = use(newcomer)
        assert (answer.status_code, answer.headers["location"]) == (302, "/")
        me = newcomer.get(f"{whole.site}/api/v1/me").json()
        assert (me["username"], me["role"]) == ("admin", "admin")
    with web.client() as latecomer:
        assert use(latecomer).status_code == 410
        assert latecomer.get(f"{whole.site}/api/v1/me").status_code == 401


def test_published_messages_show_in_the_platforms_snapshot(whole):
    """A topic appears in the API: broker, registry, collector, Redis and web work together."""
    link = whole.signin_link()
    web.post(f"{whole.nsqd}/pub", params={"topic": "hello"}, content=b"hello").raise_for_status()
    with web.client() as browser:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get(link).text)[1]
        browser.post(link, data={"csrfmiddlewaretoken": token})

        def topics():
            snapshot = browser.get(f"{whole.site}/api/v1/snapshot")
            return {row["name"]: row["depth"] for row in snapshot.raise_for_status().json()["topics"]}

        wait_until(lambda: topics().get("hello") == 1)


def test_output_in_a_pipe_is_plain(whole):
    """Log lines begin with the process's name, without escape codes."""
    assert re.search(r"^web +│ ", whole.output, re.MULTILINE)
    assert "\x1b" not in whole.output


def test_a_sign_in_link_for_nobody_names_the_account(nsq, whole):
    answer = nsq("signin-link", "--user", "nobody", NSQ_HOME=str(whole.home / "var"))
    assert (answer.returncode, answer.stderr) == (1, "nsq signin-link: there is no open account 'nobody'\n")


def test_web_on_a_taken_port_ends_and_names_the_holder(nsq, whole):
    """A supervisor sees the exit; the line names the process that uses the port."""
    answer = nsq("web", "--http-address", whole.addresses["--http-address"])
    assert answer.returncode == 1
    assert f"cannot listen on {whole.addresses['--http-address']}: Address already in use" in answer.stderr
    assert f"(pid {whole.running('web')})" in answer.stderr


def test_the_ports_of_the_running_platform_are_its_own(nsq, whole):
    """Named as such, without a drawback; --home leads to the platform, whose address the sign-in link has too."""
    home = str(whole.home / "var")
    found = findings(nsq("doctor", "--json", "--home", home))
    assert found["platform"]["found"] == f"running: nsq up (pid {whole.process.pid}), {whole.site}"
    ports = ", ".join(str(port) for port in whole.ports)
    assert (found["ports"]["state"], found["ports"]["found"]) == ("ok", f"in use by this platform: {ports}")
    link = nsq("signin-link", "--home", home)
    assert link.stdout.startswith(f"{whole.site}/"), link.stderr
    elsewhere = findings(nsq("doctor", "--json"))["platform"]["found"]
    assert elsewhere.startswith("not running on ")


# ---- the last tests end it: another one is started for the next test


def test_sigterm_stops_all_within_seconds_and_loses_nothing(whole, up):
    """Acknowledged messages, and messages in flight, are there after the next start."""
    first = whole
    web.post(f"{first.nsqd}/topic/create", params={"topic": "kept"}).raise_for_status()
    web.post(f"{first.nsqd}/channel/create", params={"topic": "kept", "channel": "c"}).raise_for_status()
    for number in range(20):
        web.post(f"{first.nsqd}/pub", params={"topic": "kept"}, content=b"%d" % number).raise_for_status()
    host, port = first.addresses["--nsqd-tcp-address"].split(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as consumer:
        consumer.sendall(b"  V2SUB kept c\nRDY 5\n")
        wait_until(lambda: channel_of(first, "kept")["in_flight_count"] == 5)
        first.signal(signal.SIGTERM)
        assert first.wait_for_exit() == 0
    assert not [pid for pid in first.pids() if psutil.pid_exists(pid)]
    stopped = re.findall(r"● (\S+) +stopped +exit 0", first.output)
    assert sorted(stopped) == sorted(ALL), first.output
    assert stopped.index("collector") < stopped.index("brokerd") < stopped.index("lookup")

    second = up(*BROKER_ONLY, home=first.home, ports=first.ports)
    second.wait_for_log("^Ctrl-C stops everything")
    assert channel_of(second, "kept")["depth"] == 20


def test_no_process_outlives_an_up_that_was_killed(whole):
    """After a kill -9 of nsq up itself, no process keeps the ports or the data path."""
    pids = whole.pids()
    assert len(pids) == len(ALL)
    whole.signal(signal.SIGKILL)
    wait_until(lambda: not [pid for pid in pids if psutil.pid_exists(pid)])
