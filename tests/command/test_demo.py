"""``nsq demo``: traffic for a dashboard, and a record of latencies to compare with a report."""

from __future__ import annotations

import csv
import os
import signal
from collections import Counter

import pytest

from nsqwire.names import is_valid_name
from tests.harness import web
from tests.harness.waiting import wait_until


@pytest.fixture
def broker(up):
    platform = up("--without", "redis,collector,web,worker,dispatcher,beat")
    platform.wait_for_log("^Ctrl-C stops everything")
    return platform


def channels(platform):
    answer = web.get(f"{platform.nsqd}/stats", params={"format": "json"}).json()
    return {
        f"{topic['topic_name']}/{channel['channel_name']}": channel
        for topic in answer["topics"]
        for channel in topic["channels"]
    }


def test_it_drives_fast_slow_failing_deferred_and_falling_behind(broker, start_nsq):
    """Every column of a dashboard changes, and orders have headers."""
    demo = start_nsq("demo", "--rate", "400", "--nsqd-tcp-address", broker.addresses["--nsqd-tcp-address"])

    def lively():
        now = channels(broker)
        return (
            len(now) == 7
            and all(channel["message_count"] > 0 for channel in now.values())
            and now["emails/sender"]["deferred_count"] > 0
            and now["orders/billing"]["requeue_count"] > 0
            and now["thumbnails/resize"]["depth"] > 20
            and "page_views/live_map#ephemeral" in now
            and {client["client_id"] for client in now["orders/billing"]["clients"]} == {"billing-1", "billing-2"}
        )

    def traced():
        query = {"topic": "orders", "channel": "warehouse", "state": "in_flight"}
        messages = web.get(f"{broker.nsqd}/channel/peek", params=query).json()["messages"]
        return any({"traceparent", "tenant"} <= message.get("headers", {}).keys() for message in messages)

    wait_until(lively)
    wait_until(traced)
    demo.signal(signal.SIGINT)
    assert demo.wait_for_exit() == 0
    last = demo.log[-1]
    assert last.startswith("published ")
    assert "thumbnails/resize behind by" in last
    assert all(channel["client_count"] == 0 for channel in channels(broker).values())


def test_some_messages_die_while_it_runs(broker, start_nsq):
    """Those that a consumer cannot process, by a policy that is gone afterwards; the dead messages stay."""
    addresses = [f"{flag}={broker.addresses[flag]}" for flag in ("--nsqd-tcp-address", "--nsqd-http-address")]
    demo = start_nsq("demo", "--rate", "2000", *addresses)

    def sender():
        query = {"format": "json", "include_histograms": "true", "topic": "emails"}
        topics = web.get(f"{broker.nsqd}/stats", params=query).json()["topics"] or []
        every = [channel for topic in topics for channel in topic["channels"] or []]
        return next((channel for channel in every if channel["channel_name"] == "sender"), {})

    wait_until(lambda: sender().get("dead_count", 0) > 0)
    assert set(sender()["dead_by_reason"]) == {"attempts"}
    demo.signal(signal.SIGINT)
    assert demo.wait_for_exit() == 0
    assert web.get(f"{broker.nsqd}/policies").json() == {"policies": []}
    assert sender()["dead_count"] > 0


def test_the_latency_of_every_finished_message_is_recorded(broker, nsq, tmp_path):
    """One line for each FIN: the broker counts as many finished messages, by channel."""
    answer = nsq(
        "demo",
        *("--rate", "300", "--duration", "5"),
        *("--latencies", "raw.csv"),
        *("--lookupd-http-address", broker.addresses["--lookupd-http-address"]),
        *("--nsqd-tcp-address", broker.addresses["--nsqd-tcp-address"]),
    )
    assert answer.returncode == 0, answer.stderr
    with (tmp_path / "raw.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(0 < int(row["latency_ns"]) < 60e9 for row in rows)
    assert all(is_valid_name(row["topic"]) and is_valid_name(row["channel"]) for row in rows)
    noted = Counter(f"{row['topic']}/{row['channel']}" for row in rows)
    for name, channel in channels(broker).items():
        waiting = channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]
        assert channel["message_count"] - waiting == noted[name], name


def test_a_disk_that_is_full_is_reported_once(broker, nsq):
    """When the traffic is over, in one line."""
    address = ("--nsqd-tcp-address", broker.addresses["--nsqd-tcp-address"])
    answer = nsq("demo", "--rate", "300", "--duration", "5", "--latencies", "/dev/full", *address)
    assert answer.returncode == 1
    assert [line for line in answer.stderr.splitlines() if line.startswith(("Traceback", "Exception"))] == []
    assert answer.stderr.splitlines()[-1] == "nsq demo: [Errno 28] No space left on device"


def test_without_a_broker_it_says_so_in_a_line(nsq):
    """Exit status 1, no traceback, and how to name another broker."""
    answer = nsq("demo", "--nsqd-tcp-address", "127.0.0.1:1")
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    assert "cannot connect to nsqd 127.0.0.1:1" in line
    assert "--nsqd-tcp-address" in line


def test_traffic_continues_after_a_restart_of_the_broker(broker, start_nsq):
    """After the broker was killed and restarted, traffic goes on."""
    demo = start_nsq("demo", "--rate", "100", "--nsqd-tcp-address", broker.addresses["--nsqd-tcp-address"])
    wait_until(lambda: len(channels(broker)) == 7)
    seen = len(broker.log)
    os.kill(broker.running("brokerd"), signal.SIGKILL)
    broker.running("brokerd", after=seen)
    wait_until(lambda: channels(broker).get("orders/billing", {}).get("client_count") == 2)
    before = channels(broker)["orders/billing"]["message_count"]
    wait_until(lambda: channels(broker)["orders/billing"]["message_count"] > before + 20)
    assert demo.process.poll() is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rate", "0"), "0 is not above 0 and below a million"),
        (("--nsqd-tcp-address", "nowhere"), "'nowhere' is not host:port"),
        (("--latencies", "missing/raw.csv"), "missing/raw.csv"),
    ],
)
def test_bad_options_are_named(nsq, words, said):
    answer = nsq("demo", *words)
    assert answer.returncode in (1, 2)
    assert said in answer.stderr.splitlines()[-1]
