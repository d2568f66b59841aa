"""The fixture ``nsq``, in test runs of their own: what it offers, its faults, and that tests do not meet."""

from __future__ import annotations

import os
import re

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """``run(code, *words)``: run a test file in a process of its own. The plugin is there by its entry point."""
    # Not the settings of this run: its Django, its order of tests, its time limit.
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "DJANGO_"))]:
        monkeypatch.delenv(name, raising=False)

    def run(code: str, *words: str) -> pytest.RunResult:
        pytester.makepyfile(code)
        return pytester.runpytest_subprocess("-p", "no:django", "-p", "no:xdist", "-p", "no:cacheprovider", *words)

    return run


def test_a_test_publishes_and_reads_messages(run) -> None:
    """By the fixture, and by a client that knows only the addresses."""
    run(
        """
        import asyncio
        import urllib.request

        import aionsq
        import pytest
        from pytest_nsq import NSQ

        def test_addresses(nsq):
            assert isinstance(nsq, NSQ)
            assert nsq.tcp_address == f"{nsq.host}:{nsq.tcp_port}"
            assert nsq.http_url == f"http://{nsq.http_address}" == f"http://127.0.0.1:{nsq.http_port}"
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            assert opener.open(f"{nsq.http_url}/ping").read() == b"OK"

        def test_messages_of_the_fixture(nsq):
            assert nsq.messages("orders") == []
            ids = [nsq.publish("orders", "é"), nsq.publish("orders", b"\\xff")]
            nsq.publish("orders", "later", delay_s=60)
            assert len(set(ids)) == 2 and all(len(each) == 16 for each in ids)
            assert nsq.messages("orders") == ["é".encode(), b"\\xff", b"later"]
            assert nsq.messages("orders") == nsq.messages("orders")

        def test_messages_of_a_producer(nsq):
            with aionsq.BlockingProducer(nsq.tcp_address) as producer:
                producer.pub("orders", b"one")
                producer.mpub("orders", [b"many"] * 1500)
            assert nsq.wait_for_messages("orders", 1501) == [b"one"] + [b"many"] * 1500

        def test_consumed_messages_are_shown(nsq):
            async def consume():
                options = {"nsqd_tcp_addresses": [nsq.tcp_address]}
                async with aionsq.Consumer("orders", "billing", **options) as consumer:
                    nsq.publish("orders", "one")
                    async for message in consumer:
                        assert message.body == b"one"
                        break
            asyncio.run(consume())
            nsq.wait_until_finished("orders", "billing")
            assert nsq.messages("orders") == [b"one"]
            assert nsq.channel("orders", "billing")["message_count"] == 1
            assert nsq.channel("orders", "unknown") is None

        def test_what_is_not_there_is_named(nsq):
            nsq.publish("orders", "one")
            with pytest.raises(AssertionError, match=r"^orders has 1 and not 2 messages after 0.1 s: \\[b'one'\\]"):
                nsq.wait_for_messages("orders", 2, timeout_s=0.1)
            with pytest.raises(AssertionError, match="^orders/billing is not finished after 0.1 s: there is no such"):
                nsq.wait_until_finished("orders", "billing", timeout_s=0.1)
            nsq.publish("live#ephemeral", "one")
            with pytest.raises(ValueError, match="^live#ephemeral: the messages of ephemeral topics are not kept"):
                nsq.messages("live#ephemeral")
            with pytest.raises(Exception, match="POST /pub: the broker answered 400 .*INVALID_TOPIC"):
                nsq.publish("a b", "one")
        """
    ).assert_outcomes(passed=5)


def test_a_test_begins_with_an_empty_broker_and_without_faults(run) -> None:
    """All tests of a session use one broker."""
    run(
        """
        import urllib.request

        import pytest

        seen = []

        @pytest.mark.parametrize("number", range(5))
        def test_state(nsq, number):
            assert nsq.messages("orders") == []
            nsq.publish("orders", "one")
            nsq.publish("live#ephemeral", "one")
            policies = urllib.request.Request(f"{nsq.http_url}/policy?pattern=*&channel=*", b'{"msg_ttl": "5m"}')
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            opener.open(policies)
            with opener.open(f"{nsq.http_url}/policies") as answer:
                assert answer.read().count(b"pattern") == 1
            nsq.fault("refuse_connections")
            nsq.fault("delay", seconds=5)
            seen.append((nsq.tcp_address, nsq._broker.pid))
            assert len(set(seen)) == 1
        """
    ).assert_outcomes(passed=5)


def test_faults(run) -> None:
    """Services see them; the fixture's own requests do not. They end with their block."""
    run(
        """
        import socket
        import time

        import pytest
        from aionsq import BlockingProducer, ConnectionLost, ProducerOptions, PublishTimedOut, Refused
        from datetime import timedelta

        SOON = timedelta(seconds=0.3)

        def connect(nsq):
            "A connection that has been served."
            connection = socket.create_connection((nsq.host, nsq.tcp_port), timeout=60)
            connection.sendall(b"  V2SUB t c\\n")
            assert connection.recv(100)
            return connection

        def test_refused_connections(nsq):
            with connect(nsq) as before:
                with nsq.fault("refuse_connections"):
                    with pytest.raises(ConnectionResetError):
                        before.recv(1)
                    with pytest.raises(ConnectionRefusedError):
                        socket.create_connection((nsq.host, nsq.tcp_port), timeout=60)
                    with BlockingProducer(nsq.tcp_address) as producer, pytest.raises(PublishTimedOut):
                        producer.pub("orders", b"one", timeout=SOON)
                    nsq.publish("orders", "own")
            with BlockingProducer(nsq.tcp_address) as producer:
                producer.pub("orders", b"two")
            assert nsq.messages("orders") == [b"own", b"two"]

        def test_closed_connections(nsq):
            with connect(nsq) as before, nsq.fault("close_connections"):
                with pytest.raises(ConnectionResetError):
                    before.recv(1)
                with socket.create_connection((nsq.host, nsq.tcp_port), timeout=60) as during:
                    during.sendall(b"  V2")
                    with pytest.raises(ConnectionResetError):
                        during.recv(1)

        def test_a_full_disk(nsq):
            with BlockingProducer(nsq.tcp_address) as producer:
                producer.pub("orders", b"before")
            with nsq.fault("full_disk"), BlockingProducer(nsq.tcp_address) as producer:
                with pytest.raises(Refused, match="E_PUB_FAILED"):
                    producer.pub("orders", b"during")
            with BlockingProducer(nsq.tcp_address) as producer:
                producer.pub("orders", b"after")
            assert nsq.messages("orders") == [b"before", b"after"]

        def test_a_delay(nsq):
            with BlockingProducer(nsq.tcp_address) as producer:
                producer.pub("orders", b"before")
                with nsq.fault("delay", seconds=3600), pytest.raises(PublishTimedOut):
                    producer.pub("orders", b"during", timeout=SOON)
            with nsq.fault("delay", seconds=0.2), BlockingProducer(nsq.tcp_address) as producer:
                began = time.monotonic()
                producer.pub("orders", b"late")
                assert time.monotonic() - began >= 0.2
            assert nsq.messages("orders") == [b"before", b"during", b"late"]

        def test_a_restart(nsq):
            nsq.publish("orders", "before")
            nsq.restart()
            with BlockingProducer(nsq.tcp_address) as producer:
                producer.pub("orders", b"after")
            assert nsq.messages("orders") == [b"before", b"after"]

        def test_a_fault_is_cleared_by_hand(nsq):
            fault = nsq.fault("refuse_connections")
            fault.clear()
            fault.clear()
            connect(nsq).close()

        @pytest.mark.parametrize(
            ("kind", "seconds", "message"),
            [
                ("fire", None, "no fault 'fire'; the faults are refuse_connections, close_connections, full_disk"),
                ("delay", None, "fault\\\\('delay'\\\\): only the fault delay has seconds, which it requires"),
                ("delay", -1, "0 or more"),
                ("full_disk", 1, "fault\\\\('full_disk'\\\\): only the fault delay has seconds, which it requires"),
            ],
        )
        def test_a_wrong_fault_is_named(nsq, kind, seconds, message):
            with pytest.raises(ValueError, match=message):
                nsq.fault(kind, seconds=seconds)
        """
    ).assert_outcomes(passed=10)


def test_no_broker_is_started_without_the_fixture(run, pytester: pytest.Pytester) -> None:
    """The plugin costs other test runs nothing; importing it imports none of the broker."""
    run(
        """
        import sys
        import threading

        def test_nothing():
            assert "pytest_nsq.plugin" in sys.modules
            assert not {"brokerd", "nsqwire", "pytest_nsq.nsq", "pytest_nsq.broker"} & set(sys.modules)
            assert [each.name for each in threading.enumerate()] == ["MainThread"]
        """,
        "-p",
        "no:asyncio",
        "-p",
        "no:timeout",
    ).assert_outcomes(passed=1)


def test_a_project_has_its_own_fixture_of_this_name(run, pytester: pytest.Pytester) -> None:
    """A conftest, a module named nsq, and ``-p no:nsq`` all come before the plugin's fixture."""
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef nsq():\n    return 'their own'\n")
    run("def test_own(nsq):\n    assert nsq == 'their own'\n").assert_outcomes(passed=1)
    pytester.makeconftest("")
    without = run("def test_none(nsq):\n    pass\n", "-p", "no:nsq")
    without.assert_outcomes(errors=1)
    without.stdout.fnmatch_lines(["*fixture 'nsq' not found*"])


def test_the_brokers_flags_are_a_setting(run, pytester: pytest.Pytester) -> None:
    """And a wrong one fails with the broker's message."""
    pytester.makeini("[pytest]\nnsq_flags = --max-msg-size=10 --node-id=7\n")
    run(
        """
        import pytest

        def test_limit(nsq):
            nsq.publish("orders", "0123456789")
            with pytest.raises(Exception, match="MSG_TOO_BIG"):
                nsq.publish("orders", "0123456789-")
        """
    ).assert_outcomes(passed=1)
    pytester.makeini("[pytest]\nnsq_flags = --no-such-flag\n")
    wrong = run("def test_none(nsq):\n    pass\n")
    wrong.assert_outcomes(errors=1)
    wrong.stdout.fnmatch_lines(
        ["*BrokerFailed: the broker ended with status 2:*", "*flag provided but not defined: -no-such-flag*"]
    )


def test_the_broker_ends_with_the_session(run) -> None:
    result = run("def test_pid(nsq):\n    print('broker', nsq._broker.pid)\n", "-s")
    result.assert_outcomes(passed=1)
    pid = int(re.search(r"broker (\d+)", result.stdout.str())[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
