"""The ``nsq`` commands with the addresses of both members: a pair is one node."""

from __future__ import annotations

import json
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

import pytest

from tests.harness.command import nsq
from tests.harness.daemon import Registry
from tests.harness.pair import LONG_LEASE, Member, Pair
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.etcd import EtcdServer


@pytest.fixture(scope="module", params=[True, False], ids=["own names", "one name"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, etcd_server: EtcdServer
) -> Iterator[Pair]:
    """A pair with two topics, one of which has a channel.

    Its members call themselves by the addresses that are given, or both by another one.
    """
    found = Pair(tmp_path_factory.mktemp("pair"), etcd_server, lease=LONG_LEASE)
    for member in found.members:
        member.command.append(f"--broadcast-address={member.host if request.param else 'pair.example'}")
    try:
        found.start()
        primary = found.wait_for_primary()
        for number in range(3):
            primary.post("/pub", b"%d" % number, topic="orders")
            primary.post("/pub", b"%d" % number, topic="jobs")
        primary.post("/channel/create", b"", topic="jobs", channel="billing")
        yield found
    finally:
        found.close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as found:
        found.wait_until_ready()
        yield found


def run(*words: str, members: list[Member]) -> CompletedProcess[str]:
    done = nsq(*words, *(f"--nsqd-http-address={member.http_address}" for member in members))
    assert (done.stderr, done.returncode) == ("", 0)
    return done


def test_the_address_of_the_follower_is_shown_as_one(pair: Pair) -> None:
    """Whatever the order of the addresses. Members with one name cannot be told apart: then the first one counts."""
    primary = pair.wait_for_primary()
    leading = primary.mirror_figures()["member"]
    for members in (pair.members, [*reversed(pair.members)]):
        first = members[0] if "pair.example" in primary.command[-1] else primary
        other = pair.other(first)
        lines = {line.split()[0]: line for line in run("nodes", members=members).stdout.splitlines()}
        assert f"OK; member {leading} leads term 1, follower in sync" in lines[first.http_address]
        told = lines[other.http_address].split(maxsplit=1)[1].rstrip()
        assert told == f"the same mirrored node as {first.http_address}"
        rows = json.loads(run("nodes", "--json", members=members).stdout)["nodes"]
        assert {row["id"]: row["same_as"] for row in rows} == {
            first.http_address: None,
            other.http_address: first.http_address,
        }


def test_the_messages_of_a_pair_count_once(pair: Pair) -> None:
    (row,) = json.loads(run("topics", "list", "orders", "--json", members=pair.members).stdout)["topics"]
    assert (row["depth"], row["message_count"], len(row["nodes"])) == (3, 3, 1)


def test_the_figures_of_a_pair_count_once_in_each_line_of_stat(pair: Pair) -> None:
    words = ("stat", "--topic=jobs", "--channel=billing", "--interval=100ms", "--count=1")
    line = run(*words, members=pair.members).stdout.splitlines()[-1]
    assert line.split("|")[1].split()[0] == "3"


def test_an_action_on_a_pair_is_made_once(pair: Pair) -> None:
    """It has one result, whether it is on a channel, on messages or on policies."""
    for words in (
        ("channels", "pause", "jobs", "billing"),
        ("channels", "unpause", "jobs", "billing"),
        ("channels", "rewind", "jobs", "billing", "--since=1h"),
        ("policies", "set", "jobs", "max_attempts=3"),
        ("policies", "delete", "jobs", "--yes"),
    ):
        (action,) = json.loads(run(*words, "--json", members=pair.members).stdout)["actions"]
        assert [result["outcome"] for result in action["results"]] == ["done"], words


def test_the_policies_of_a_pair_are_those_of_either_address(pair: Pair) -> None:
    for member in pair.members:
        done = run("policies", "mend", f"--from={member.http_address}", members=pair.members)
        assert done.stdout == f"all nodes that answer have the policies of {member.http_address}\n"


def test_an_action_is_made_once_on_a_pair_that_a_registry_lists_too(
    tmp_path: Path, etcd_server: EtcdServer, registry: Registry
) -> None:
    pair = Pair(tmp_path, etcd_server, "--lookupd-tcp-address={}:{}".format(*registry.tcp), lease=LONG_LEASE)
    for member in pair.members:
        member.command.append(f"--broadcast-address={member.host}")
    try:
        pair.start()
        primary = pair.wait_for_primary()
        primary.post("/topic/create", topic="jobs")
        primary.post("/channel/create", topic="jobs", channel="billing")
        wait_until(lambda: registry.get("/topics")["topics"], "the topic is registered")
        at = "--lookupd-http-address={}:{}".format(*registry.http)
        for members in ([pair.other(primary)], [pair.other(primary), primary]):
            for words in (
                ("channels", "pause", "jobs", "billing"),
                ("channels", "rewind", "jobs", "billing", "--since=1h"),
                ("policies", "set", "jobs", "max_attempts=3"),
            ):
                (action,) = json.loads(run(*words, at, "--json", members=members).stdout)["actions"]
                results = [(result["node"], result["outcome"]) for result in action["results"]]
                assert results == [(primary.http_address, "done")], words
    finally:
        pair.close()
