"""``nsq topics``, ``nsq channels`` and ``nsq nodes`` as processes, with real servers."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import struct

import httpx
import pytest

from nsqwire.version import product_version
from tests.aionsq.fleets import Fleet, nsq
from tests.harness.waiting import DEADLINE_S
from tests.platform.go_nsq import GoCluster


async def test_names_that_the_terminal_cannot_encode_are_listed_with_escapes(fleet: Fleet) -> None:
    """A node whose host name is not ASCII, in a locale of ASCII; --json escapes it as JSON does."""
    described = {
        "hostname": "bröker",
        "broadcast_address": "127.0.0.1",
        "tcp_port": 1,
        "http_port": 2,
        "version": "1.3.0",
    }
    body = json.dumps(described).encode()
    host, _, port = fleet.registry.tcp_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"  V1IDENTIFY\n" + struct.pack(">i", len(body)) + body)
    await reader.readexactly(4)
    nodes = await fleet.nsq("nodes", env={"PYTHONIOENCODING": "ascii"})
    assert r"br\xf6ker" in nodes.output
    assert "Traceback" not in nodes.errors
    assert r'"br\u00f6ker"' in (await fleet.nsq("nodes", "--json", env={"PYTHONIOENCODING": "ascii"})).output
    writer.close()
    await writer.wait_closed()


async def test_topics_channels_and_nodes_are_listed_for_people_and_for_scripts(fleet: Fleet) -> None:
    """Tables have headings and thousands separators; --json has the platform's rows, with sums and nodes' shares."""
    await fleet.nsq("topics", "create", "idle")
    topics = await fleet.nsq("topics")
    assert topics.status == 0, topics.errors
    rows = [line.split() for line in topics.output.splitlines()]
    assert rows[0] == ["topic", "depth", "in", "channels", "dead", "channels", "messages", "nodes", "state"]
    assert rows[1] == ["idle", "0", "0", "0", "0", "0", "0", "on", "no", "node"]
    assert rows[2] == ["orders", "0", "12", "0", "2", "6", "2"]
    (row,) = (await fleet.nsq("topics", "list", "orders", "--json")).document["topics"]
    assert (row["name"], row["depth"], row["channel_depth"], row["message_count"]) == ("orders", 0, 12, 6)
    assert [each["node"] for each in row["nodes"]] == fleet.nodes
    channels = (await fleet.nsq("channels", "--json")).document["channels"]
    assert [(each["topic"], each["name"], each["depth"]) for each in channels] == [
        ("orders", "archive", 6),
        ("orders", "billing", 6),
    ]
    nodes = (await fleet.nsq("nodes", "--json")).document["nodes"]
    assert [(each["id"], each["state"], each["topic_count"], each["depth"]) for each in nodes] == [
        (node, "up", 1, 6) for node in fleet.nodes
    ]
    assert fleet.nodes[0] in (await fleet.nsq("nodes")).output


async def test_dead_messages_are_listed_and_deletions_count_them(fleet: Fleet) -> None:
    """Both tables have them; they stay when the channel is emptied, and are lost with the channel, topic or node."""
    peek = f"http://{fleet.brokers[0].http_address}/channel/peek?topic=orders&channel=billing"
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S) as client:
        first, second, _ = (each["id"] for each in (await client.get(peek)).json()["messages"])
        bury = f"http://{fleet.brokers[0].http_address}/channel/bury?topic=orders&channel=billing"
        answer = await client.post(bury, content=f"{first}\n{second}".encode())
    assert answer.json()["buried"] == 2
    (topic,) = [line.split() for line in (await fleet.nsq("topics")).output.splitlines()[1:]]
    assert topic == ["orders", "0", "10", "2", "2", "6", "2"]
    lines = [line.split() for line in (await fleet.nsq("channels")).output.splitlines()]
    assert [line[2:6] for line in lines[1:]] == [["6", "0", "0", "0"], ["4", "0", "0", "2"]]
    (row,) = [
        each for each in (await fleet.nsq("channels", "--json")).document["channels"] if each["name"] == "billing"
    ]
    assert (row["dead_count"], {each["node"]: each["dead_count"] for each in row["nodes"]}) == (
        2,
        {fleet.brokers[0].http_address: 2, fleet.brokers[1].http_address: 0},
    )
    for words, said in (
        (("channels", "empty", "orders", "billing"), "with 4 messages (0 in flight, 0 deferred, 2 dead, which stay)"),
        (("channels", "delete", "orders", "billing"), "with 6 messages (0 in flight, 0 deferred, 2 dead)"),
        (
            ("topics", "delete", "orders"),
            "12 messages (0 in the topic itself, 6 in channel archive, 6 in channel billing, 2 of them dead)",
        ),
        (("nodes", "tombstone", fleet.brokers[0].http_address, "orders"), "with 2 channels and 6 messages"),
    ):
        assert said in (await fleet.nsq(*words)).errors


async def test_pausing_and_unpausing_happens_on_every_node(fleet: Fleet) -> None:
    """For a topic and for one channel; the table shows on which nodes."""
    paused = await fleet.nsq("channels", "pause", "orders", "billing")
    assert (paused.status, paused.output) == (
        0,
        f"channel billing of topic orders: paused on {', '.join(fleet.nodes)}\n",
    )
    for broker in range(2):
        by_name = {each["channel_name"]: each["paused"] for each in (await fleet.stats(broker))["orders"]["channels"]}
        assert by_name == {"archive": False, "billing": True}
    assert (await fleet.nsq("channels", "unpause", "orders", "billing")).status == 0
    assert (await fleet.nsq("topics", "pause", "orders")).status == 0
    assert [(await fleet.stats(broker))["orders"]["paused"] for broker in range(2)] == [True, True]
    assert (await fleet.nsq("topics")).output.splitlines()[1].endswith("paused")
    assert (await fleet.nsq("topics", "unpause", "orders")).status == 0
    assert [(await fleet.stats(broker))["orders"]["paused"] for broker in range(2)] == [False, False]


async def test_a_channel_is_created_at_registries_and_nodes(fleet: Fleet) -> None:
    """The topic's nodes have it at once; a topic without nodes is created in the registry only."""
    made = await fleet.nsq("channels", "create", "orders", "audit", "--json")
    (action,) = made.document["actions"]
    assert (made.status, action["outcome"], action["channel"]) == (0, "done", "audit")
    assert sorted(each["target"] for each in action["results"]) == ["nsqd", "nsqd", "nsqlookupd"]
    for broker in range(2):
        assert "audit" in [each["channel_name"] for each in (await fleet.stats(broker))["orders"]["channels"]]
    assert (await fleet.nsq("topics", "create", "fresh", "fresher")).status == 0
    assert [row["name"] for row in (await fleet.nsq("topics", "--json")).document["topics"]] == [
        "fresh",
        "fresher",
        "orders",
    ]


async def test_without_a_terminal_nothing_is_destroyed_unless_yes_is_given(fleet: Fleet) -> None:
    """Without --yes, a script gets a list of what would be deleted; with it, everything is deleted on all nodes."""
    refused = await fleet.nsq("topics", "delete", "orders")
    assert (refused.status, refused.output) == (2, "")
    assert "2 nodes, with 2 channels and 12 messages (0 in the topic itself, 6 in channel archive" in refused.errors
    assert "--yes" in refused.errors
    assert "orders" in await fleet.stats(0)
    emptied = await fleet.nsq("channels", "empty", "orders", "archive", "--yes")
    assert emptied.status == 0, emptied.errors
    by_name = {each["channel_name"]: each["depth"] for each in (await fleet.stats(1))["orders"]["channels"]}
    assert by_name == {"archive": 0, "billing": 3}
    assert (await fleet.nsq("channels", "delete", "orders", "archive", "-y")).status == 0
    assert (await fleet.nsq("topics", "delete", "orders", "-y")).status == 0
    assert [await fleet.stats(broker) for broker in range(2)] == [{}, {}]
    assert (await fleet.nsq("topics", "--json")).document["topics"] == []


@pytest.mark.parametrize(("answer", "status", "left"), [(b"n\n", 1, True), (b"\n", 1, True), (b"y\n", 0, False)])
async def test_on_a_terminal_it_asks(fleet: Fleet, answer: bytes, status: int, left: bool) -> None:
    """The question shows what is deleted and how many messages; only yes continues."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        ended = await fleet.nsq("channels", "delete", "orders", "billing", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert ended.status == status, ended.errors
    assert "This will delete channel billing of topic orders on 2 nodes, with 6 messages" in ended.errors
    assert ("nothing was done" in ended.errors) is left
    names = [each["channel_name"] for each in (await fleet.stats(0))["orders"]["channels"]]
    assert ("billing" in names) is left


async def test_a_node_that_fails_is_named_and_the_others_do_it(fleet: Fleet) -> None:
    """Exit status 1, the node and the reason on standard error; in --json the outcome is partial."""
    lost = fleet.brokers[1].http_address
    flags = [f"--nsqd-http-address={broker.http_address}" for broker in fleet.brokers]
    await fleet.brokers[1].terminate()
    ended = await fleet.nsq("topics", "pause", "orders", *flags, lookupd=False)
    assert ended.status == 1
    assert ended.errors == f"nsq topics: pause topic orders: failed on nsqd {lost}: connection refused\n"
    assert ended.output == f"topic orders: paused on {fleet.brokers[0].http_address}\n"
    (action,) = (await fleet.nsq("topics", "pause", "orders", "--json", *flags, lookupd=False)).document["actions"]
    assert action["outcome"] == "partial"
    unknown = await fleet.nsq("channels", "list", "nope", *flags, lookupd=False)
    assert unknown.errors.endswith("no node or nsqlookupd that answered has topic nope\n")
    listed = await fleet.nsq("nodes", *flags, lookupd=False)
    assert listed.status == 1
    assert f"nsqd {lost}: connection refused" in listed.errors
    assert "down: connection refused" in listed.output


async def test_a_node_that_lacks_the_channel_is_named(go_fleet: GoCluster) -> None:
    """The other nodes have done it, so the exit status is 0; a node without the topic is not mentioned."""
    alpha, beta = go_fleet.nodes
    alpha.channel("orders", "billing")
    beta.topic("orders")
    flag = f"--lookupd-http-address={go_fleet.registry.address}"
    ended = await nsq("channels", "pause", "orders", "billing", flag)
    assert (ended.status, ended.output) == (0, f"channel billing of topic orders: paused on {alpha.address}\n")
    missing = f"not on nsqd {beta.address}: 404 CHANNEL_NOT_FOUND"
    assert ended.errors == f"nsq channels: pause channel billing of topic orders: {missing}\n"
    beta.topics.clear()
    given = [f"--nsqd-http-address={node.address}" for node in go_fleet.nodes]
    assert (await nsq("channels", "pause", "orders", "billing", *given)).errors == ""


async def test_a_channel_of_a_new_topic_is_made_on_given_nodes(go_fleet: GoCluster) -> None:
    """Without an nsqlookupd, the nodes create the topic too."""
    given = [f"--nsqd-http-address={node.address}" for node in go_fleet.nodes]
    ended = await nsq("channels", "create", "orders", "billing", *given)
    assert ended.status == 0, ended.errors
    for node in go_fleet.nodes:
        assert [each["channel_name"] for each in node.topics["orders"]["channels"]] == ["billing"]


async def test_a_registry_that_is_down_is_named(fleet: Fleet, unused_address: str) -> None:
    """The action is done as far as the other registries know, with status 1: the lost registry may know more."""
    dead = f"--lookupd-http-address={unused_address}"
    for words in (("topics", "list"), ("topics", "pause", "orders"), ("topics", "delete", "orders", "--yes")):
        ended = await fleet.nsq(*words, dead)
        assert ended.status == 1, words
        assert f"nsqlookupd {unused_address}: connection refused" in ended.errors
        assert "orders" in ended.output
    alone = await nsq("topics", "pause", "orders", dead)
    assert alone.status == 1
    assert alone.errors == (f"nsq topics: pause topic orders: nsqlookupd {unused_address}: connection refused\n")


async def test_a_tombstone_removes_a_topic_from_one_node(fleet: Fleet) -> None:
    """The registry hides it, the node deletes it, the other node keeps it; unknown nodes are an error."""
    node, other = fleet.brokers[0].http_address, fleet.brokers[1].http_address
    refused = await fleet.nsq("nodes", "tombstone", node, "orders")
    assert refused.status == 2
    assert f"tombstone node {node} for topic orders" in refused.errors
    assert "2 channels and 6 messages" in refused.errors
    done = await fleet.nsq("nodes", "tombstone", node, "orders", "--yes")
    assert done.status == 0, done.errors
    assert done.output == (f"node {node} of topic orders: tombstoned on {fleet.registry.http_address}, {node}\n")
    assert (await fleet.stats(0), list(await fleet.stats(1))) == ({}, ["orders"])
    (row,) = (await fleet.nsq("topics", "--json")).document["topics"]
    assert [each["node"] for each in row["nodes"]] == [other]
    again = await fleet.nsq("nodes", "tombstone", node, "orders", "--yes")
    assert (again.status, again.errors) == (1, f"nsq nodes: node {node} has no topic orders\n")
    unknown = await fleet.nsq("nodes", "tombstone", "elsewhere:1", "orders", "--yes")
    assert unknown.status == 1
    assert "no such node: elsewhere:1" in unknown.errors


async def test_a_node_is_drained_and_takes_messages_again(fleet: Fleet) -> None:
    """After a confirmation; the number of messages that are left is shown, and the node is in no registry meanwhile."""
    node, other = (broker.http_address for broker in fleet.brokers)
    refused = await fleet.nsq("nodes", "drain", node)
    assert (refused.status, "would drain node" in refused.errors) == (2, True)
    drained = await fleet.nsq("nodes", "drain", node, "--yes")
    assert (drained.status, drained.errors) == (0, "")
    assert re.fullmatch(rf"node {node}: draining on {node} \(\d+ messages are left\)\n", drained.output)
    (row,) = (await fleet.nsq("nodes", "--json")).document["nodes"]
    assert row["id"] == other
    again = await fleet.nsq("nodes", "undrain", node)
    assert (again.status, again.output) == (0, f"node {node}: takes messages again on {node}\n")
    twice = await fleet.nsq("nodes", "undrain", node)
    assert (twice.status, twice.errors) == (
        1,
        f"nsq nodes: undrain node {node}: failed on nsqd {node}: 400 NOT_DRAINING\n",
    )
    nobody = await fleet.nsq("nodes", "drain")
    assert (nobody.status, nobody.errors) == (2, "nsq nodes: drain requires one or more nodes\n")


async def test_a_hand_over_of_a_node_without_a_mirror_is_refused_before_the_question(fleet: Fleet) -> None:
    """The error names the node; the status is 1."""
    node = fleet.brokers[0].http_address
    refused = await fleet.nsq("nodes", "handover", node)
    assert (refused.status, refused.output) == (1, "")
    assert refused.errors == f"nsq nodes: node {node} has no mirror\n"


async def test_a_drain_of_an_unknown_node_is_refused_before_the_question(fleet: Fleet) -> None:
    """With the nodes that there are; nothing is drained, also if another node was named correctly."""
    node = fleet.nodes[0]
    unknown = await fleet.nsq("nodes", "drain", node, "127.0.0.1:1", "--yes")
    assert (unknown.status, unknown.output) == (1, "")
    assert unknown.errors.startswith("nsq nodes: no such node: 127.0.0.1:1; ")
    listed = (await fleet.nsq("nodes", "--json")).document["nodes"]
    assert [(row["id"], row["drain"]) for row in listed] == [(each, None) for each in fleet.nodes]


async def test_a_drain_has_a_deadline_and_may_take_publishes(fleet: Fleet) -> None:
    """As named in the question; the list shows the node as draining, with the same in JSON."""
    node = fleet.nodes[0]
    flags = ("--timeout", "30m", "--publishes", "take")
    asked = await fleet.nsq("nodes", "drain", node, *flags)
    assert asked.status == 2
    assert "its process ends when no message is left, or after 1800 s" in asked.errors
    assert (await fleet.nsq("nodes", "drain", node, *flags, "--yes")).status == 0
    only = f"--nsqd-http-address={node}"
    (row,) = (await fleet.nsq("nodes", only, "--json", lookupd=False)).document["nodes"]
    assert row["drain"]["takes_publishes"] is True
    assert 0 < row["drain"]["ends_within"] <= 1800
    shown = (await fleet.nsq("nodes", only, lookupd=False)).output
    assert re.search(rf"draining: {row['drain']['messages']:,} messages left, ends within \S+, takes publishes", shown)
    assert "NOK" not in shown
    changed = await fleet.nsq("nodes", "drain", node, "--timeout", "0s", "--publishes", "refuse", "--yes")
    assert changed.status == 0, changed.errors  # a node that drains is in no registry, and answers itself
    (row,) = (await fleet.nsq("nodes", only, "--json", lookupd=False)).document["nodes"]
    assert (row["drain"]["ends_within"], row["drain"]["takes_publishes"]) == (None, False)


async def test_messages_are_cancelled_and_deferred_wherever_they_are(fleet: Fleet) -> None:
    """Nobody has to know the node; what became of each is printed, and what no node has is an error."""
    other = fleet.brokers[1]
    published = await fleet.nsq(
        "pub", "--topic=orders", "--message=a", "--message=b", "--ids", f"--nsqd-tcp-address={other.tcp_address}",
        lookupd=False,
    )  # fmt: skip
    first, second = published.output.split()
    deferred = await fleet.nsq("messages", "defer", "orders", first, "--by=10m")
    names = [each["channel_name"] for each in (await fleet.stats(1))["orders"]["channels"]]
    shown = ", ".join(f"{name} deferred" for name in names)
    assert (len(names), deferred.status, deferred.errors) == (2, 0, "")
    assert deferred.output == f"{first} on {other.http_address}: {shown}\n"
    cancelled = await fleet.nsq("messages", "cancel", "orders", first, second, "--json")
    assert (cancelled.status, cancelled.errors) == (0, "")
    assert cancelled.document == {
        "messages": [
            {"id": each, "node": other.http_address, "topic": None, "channels": dict.fromkeys(names, "cancelled")}
            for each in (first, second)
        ],
        "not_found": [],
        "errors": [],
    }
    refused = await fleet.nsq("messages", "defer", "orders", first, "--by=100h")
    assert refused.status == 1
    assert refused.errors.endswith(f"on no node that answered, or finished in all channels: {first}\n")
    again = await fleet.nsq("messages", "cancel", "orders", first)
    assert (again.status, again.output) == (1, "")
    assert again.errors == f"nsq messages: on no node, or finished in all channels: {first}\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["cancel"], "cancel requires a topic and one or more ids"),
        (["cancel", "orders"], "cancel requires a topic and one or more ids"),
        (["cancel", "orders", "0040000000000007", "zzz"], "'zzz' is no message id: 16 hexadecimal digits"),
        (["cancel", "orders", "00400000000000AB"], "'00400000000000AB' is no message id"),
        (["cancel", "a b", "1"], "'a b' is not a valid topic name: "),
        ([], "a verb is required: cancel or defer"),
        (["defer", "orders", "1"], "defer requires --by, such as --by=10m"),
        (["defer", "orders", "1", "--by=soon"], "--by: "),
        (["cancel", "orders", "1", "--by=1s"], "--by is for defer, not for cancel"),
    ],
)
async def test_a_wrong_command_line_about_messages_is_refused(fleet: Fleet, words: list[str], error: str) -> None:
    """In one line, with status 2."""
    ended = await fleet.nsq("messages", *words)
    assert (ended.status, ended.output, ended.errors.count("\n")) == (2, "", 1)
    assert ended.errors.startswith(f"nsq messages: {error}")


async def test_a_misspelt_name_is_answered_with_the_nearest(fleet: Fleet) -> None:
    """The error suggests the nearest name, or lists the existing ones; an invalid name is explained."""
    misspelt = await fleet.nsq("topics", "delete", "order", "--yes")
    assert misspelt.errors == "nsq topics: no node or nsqlookupd has topic order; did you mean 'orders'?\n"
    channel = await fleet.nsq("channels", "delete", "orders", "nope", "--yes")
    assert channel.errors.endswith("has channel nope of topic orders; it has archive, billing\n")
    listed = await fleet.nsq("channels", "list", "nope")
    assert (listed.status, listed.errors) == (1, "nsq channels: no node or nsqlookupd has topic nope\n")
    assert "orders" in await fleet.stats(0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topics", "pasue", "x"), "nsq topics: no verb 'pasue'; did you mean 'pause'?"),
        (("topics", "zzz"), "nsq topics: no verb 'zzz'; to list one name: nsq topics list zzz"),
        (("topics", "delete"), "nsq topics: delete requires one or more topics"),
        (("topics", "pause", "a$"), "nsq topics: 'a$' is not a valid topic name: a name has 1 to 64"),
        (("channels", "pause", "t"), "nsq channels: pause requires a topic and one or more channels"),
        (("channels", "pause", "t", "c d"), "nsq channels: 'c d' is not a valid channel name"),
        (("nodes", "tombstone", "a:1"), "nsq nodes: tombstone requires a node and one or more topics"),
        (
            ("nodes", "tombstone", "a:1", "t", "--nsqd-http-address=a:1"),
            "nsq nodes: nsqlookupd stores tombstones: --look",
        ),
        (("topics", "--nsqd-http-address=127.0.0.1"), "nsq topics: '127.0.0.1' is not host:port"),
        (("topics", "--lookupd-http-address=http://a:b"), "nsq topics: 'http://a:b' is not host:port"),
        (("topics", "--force"), "nsq topics: unrecognized arguments: --force"),
        (
            ("topics", "--nsqd-htp-address=127.0.0.1:1"),
            "nsq topics: unrecognized arguments: --nsqd-htp-address=127.0.0.1:1; did you mean --nsqd-http-address?",
        ),
        (("messages",), "nsq messages: a verb is required: cancel or defer"),
    ],
)
async def test_a_mistake_in_the_command_line_is_one_line_and_status_2(words: tuple[str, ...], said: str) -> None:
    """No request is sent."""
    ended = await nsq(*words)
    assert (ended.status, ended.output) == (2, "")
    assert ended.errors.startswith(said)
    assert ended.errors.count("\n") == 1


@pytest.mark.parametrize("name", ["topics", "channels", "policies", "nodes"])
async def test_help_lists_the_verbs(name: str) -> None:
    """On standard output, with the meaning of the exit status; Django is not imported."""
    ended = await nsq(name, "--help")
    assert (ended.status, ended.errors) == (0, "")
    assert ended.output.startswith(f"usage: nsq {name} [VERB]")
    assert "  list " in ended.output
    assert "Exit status:" in ended.output


async def test_addresses_come_from_the_environment_too(fleet: Fleet) -> None:
    """In the same variables as the platform's, so that both use one cluster."""
    env = {"NSQLOOKUPD_HTTP_ADDRESSES": fleet.registry.http_address, "NSQD_HTTP_ADDRESSES": ""}
    ended = await nsq("topics", "--json", env=env)
    assert [row["name"] for row in ended.document["topics"]] == ["orders"]
    env = {"NSQLOOKUPD_HTTP_ADDRESSES": "", "NSQD_HTTP_ADDRESSES": fleet.nodes[0]}
    ended = await nsq("nodes", "--json", env=env)
    assert [row["id"] for row in ended.document["nodes"]] == fleet.nodes[:1]


async def test_a_fleet_may_be_go_and_ours_together(fleet: Fleet, go_fleet: GoCluster) -> None:
    """Two registries, four nodes: one table with sums over all, which shows what each node runs, and an action on every
    node that has the topic."""
    alpha, beta = go_fleet.nodes
    alpha.channel("orders", "archive", depth=1000, in_flight_count=2, deferred_count=3)
    beta.topic("elsewhere", depth=7)
    go = f"--lookupd-http-address={go_fleet.registry.address}"
    rows = {row["name"]: row for row in (await fleet.nsq("topics", "--json", go)).document["topics"]}
    assert sorted(rows) == ["elsewhere", "orders"]
    assert (rows["orders"]["channel_depth"], len(rows["orders"]["nodes"])) == (12 + 1005, 3)
    listed = [line.split() for line in (await fleet.nsq("nodes", go)).output.splitlines()]
    assert {words[0]: words[2:4] for words in listed if words[0] in fleet.nodes} == {
        node: ["brokerd", product_version()] for node in fleet.nodes
    }
    assert {words[2] for words in listed if words[0] == alpha.address} == {"1.3.0"}
    refused = await fleet.nsq("channels", "delete", "orders", "archive", go)
    assert "on 3 nodes, with 1,011 messages (2 in flight, 3 deferred)" in refused.errors
    paused = await fleet.nsq("channels", "pause", "orders", "archive", go)
    assert (paused.status, paused.errors) == (0, "")
    assert alpha.topics["orders"]["channels"][0]["paused"]
    assert beta.posts == []
    beta.status["/topic/empty"] = (500, "INTERNAL_ERROR")
    emptied = await fleet.nsq("topics", "empty", "orders", "elsewhere", "--yes", go)
    assert emptied.status == 1
    beta_id = f"127.0.0.1:{beta.port}"
    assert emptied.errors == f"nsq topics: empty topic elsewhere: failed on nsqd {beta_id}: 500 INTERNAL_ERROR\n"


@pytest.mark.parametrize("command", ["topics", "channels", "nodes"])
async def test_what_a_node_sends_stays_in_its_line(go_fleet: GoCluster, command: str) -> None:
    """Line breaks and sequences that a terminal would act on are shown as escapes."""
    alpha, _ = go_fleet.nodes
    alpha.status["/stats"] = (500, "first\nsecond \x1b[31mred")
    ended = await nsq(command, f"--lookupd-http-address={go_fleet.registry.address}")
    assert ended.status == 1
    assert r"500 first\nsecond \x1b[31mred" in ended.errors
    assert "\x1b" not in ended.errors + ended.output
    assert all(line.startswith(f"nsq {command}: ") for line in ended.errors.splitlines()), ended.errors


async def test_a_node_with_an_invalid_answer_counts_as_failed(fleet: Fleet, go_fleet: GoCluster) -> None:
    """The error names the node and the key; the rest is listed."""
    alpha, beta = go_fleet.nodes
    alpha.topics["broken"] = {"topic_name": "broken", "channels": [], "depth": "many"}
    beta.topic("sound", depth=7)
    ended = await nsq("topics", "--json", f"--lookupd-http-address={go_fleet.registry.address}")
    assert ended.status == 1
    wrong = "cannot read its /stats: topics.0.depth: Expected `int`, got `str`"
    assert ended.errors == f"nsq topics: nsqd 127.0.0.1:{alpha.port}: {wrong}\n"
    assert {row["name"]: row["depth"] for row in ended.document["topics"]} == {"broken": 0, "sound": 7}


async def test_a_channel_is_rewound_on_every_node(fleet: Fleet) -> None:
    """Emptied messages are ready again; their number and oldest time are printed for each node."""
    assert (await fleet.nsq("channels", "empty", "orders", "billing", "--yes")).status == 0
    done = await fleet.nsq("channels", "rewind", "orders", "billing", "--since=1h")
    assert done.status == 0, done.errors
    assert done.output.startswith(
        f"channel billing of topic orders: rewound on {fleet.nodes[0]} (3 messages, the oldest"
    )
    for broker in range(2):
        by_name = {each["channel_name"]: each["depth"] for each in (await fleet.stats(broker))["orders"]["channels"]}
        assert by_name == {"archive": 3, "billing": 3}
    missing = await fleet.nsq("channels", "rewind", "orders", "none", "--since=1h")
    assert (missing.status, missing.errors.count("\n")) == (1, 1)
    assert "no node of the cluster has channel none of topic orders" in missing.errors


async def test_a_go_fleet_is_not_rewound(go_fleet: GoCluster) -> None:
    """Go's nsqd keeps no finished messages; the error says so for each node."""
    for node in go_fleet.nodes:
        node.topic("orders")
        node.channel("orders", "billing")
    flag = f"--lookupd-http-address={go_fleet.registry.address}"
    refused = await nsq("channels", "rewind", "orders", "billing", "--since=1h", flag)
    assert refused.status == 1
    assert refused.errors.count("this nsqd cannot rewind") == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["rewind", "orders", "billing"], "rewind requires --since"),
        (["rewind", "orders", "billing", "--since=yesterday"], "'yesterday' is neither a duration"),
        (["rewind", "orders", "billing", "--since=2026-11-22T06:30:00"], "needs its zone"),
        (["pause", "orders", "billing", "--since=1h"], "--since is for rewind"),
        (["rewind", "orders", "--since=1h"], "rewind requires a topic"),
    ],
)
async def test_an_invalid_rewind_is_refused_in_one_line(words: list[str], reason: str) -> None:
    """A usage error; no request is sent."""
    refused = await nsq("channels", *words)
    assert (refused.status, refused.output, refused.errors.count("\n")) == (2, "", 1)
    assert reason in refused.errors
