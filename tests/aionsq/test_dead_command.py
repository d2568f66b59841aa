"""``nsq dead`` as a process, with real servers."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from tests.aionsq.fleets import Fleet, nsq
from tests.harness import web
from tests.platform.go_nsq import GoCluster

WHERE = "topic=orders&channel=billing"


async def peeked(fleet: Fleet, broker: int, state: str) -> dict[str, Any]:
    async with web.async_client() as client:
        url = f"http://{fleet.brokers[broker].http_address}/channel/peek?{WHERE}&state={state}"
        return dict((await client.get(url)).json())


async def bury(fleet: Fleet, broker: int, count: int) -> list[str]:
    """Let the first messages of the channel on a node die. Returns their ids."""
    ids = [each["id"] for each in (await peeked(fleet, broker, "ready"))["messages"]][:count]
    async with web.async_client() as client:
        url = f"http://{fleet.brokers[broker].http_address}/channel/bury?{WHERE}"
        assert (await client.post(url, content="\n".join(ids).encode())).status_code == 200
    return ids


async def test_channels_with_dead_messages_are_listed_with_the_reasons(fleet: Fleet) -> None:
    """Of all nodes; for people and for scripts. Other channels are not listed."""
    none = await fleet.nsq("dead")
    assert (none.status, none.output, none.errors) == (0, "", "no dead messages\n")
    await bury(fleet, 0, 2)
    await bury(fleet, 1, 1)
    listed = await fleet.nsq("dead", "list", "orders")
    assert (listed.status, listed.errors) == (0, "")
    assert [line.split() for line in listed.output.splitlines()] == [
        ["topic", "channel", "dead", "attempts", "expired", "overflow", "operator", "nodes"],
        ["orders", "billing", "3", "0", "0", "0", "3", "2"],
    ]
    (row,) = (await fleet.nsq("dead", "--json")).document["channels"]
    assert row == {
        "topic": "orders",
        "channel": "billing",
        "dead_count": 3,
        "by_reason": {"attempts": 0, "expired": 0, "overflow": 0, "operator": 3},
        "nodes": {fleet.brokers[0].http_address: 2, fleet.brokers[1].http_address: 1},
    }
    missing = await fleet.nsq("dead", "list", "away")
    assert (missing.status, missing.errors) == (1, "nsq dead: no node or nsqlookupd has topic away\n")


async def test_dead_messages_are_shown(fleet: Fleet) -> None:
    """With the node, the reason and the body, whose bytes cannot alter the terminal; no more than asked for."""
    body = b"\x1b[31m\xff" + b"x" * 100
    await fleet.post("/pub?topic=orders", body)
    first, *_, last = await bury(fleet, 0, 4)
    shown = await fleet.nsq("dead", "show", "orders", "billing")
    assert (shown.status, shown.errors) == (0, "")
    lines = [line.split() for line in shown.output.splitlines()]
    assert lines[0] == ["node", "id", "died", "reason", "failures", "bytes", "body"]
    assert (lines[1][:2], lines[1][3:]) == ([fleet.brokers[0].http_address, first], ["operator", "0", "1", "a"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", lines[1][2])
    assert lines[4][1] == last
    assert lines[4][5] == "106"
    assert re.fullmatch(r"\\x1b\[31m\\xffx+…", lines[4][6])
    some = await fleet.nsq("dead", "show", "orders", "billing", "--limit=3", "--json")
    assert some.document["total"] == 4
    assert [base64.b64decode(each["body"]) for each in some.document["messages"]] == [b"a", b"b", b"c"]
    assert {each["reason"] for each in some.document["messages"]} == {"operator"}
    fewer = await fleet.nsq("dead", "show", "orders", "billing", "--limit=3")
    assert fewer.errors == "nsq dead: 3 of 4 are shown; --limit shows more of each node\n"
    missing = await fleet.nsq("dead", "show", "orders", "away")
    assert (missing.status, missing.errors) == (
        1,
        "nsq dead: no node of the cluster has channel away of topic orders\n",
    )


async def test_dead_messages_are_requeued_on_every_node(fleet: Fleet) -> None:
    """Those of a reason, or since a time, or all; with a rate they are deferred."""
    await bury(fleet, 0, 2)
    await bury(fleet, 1, 1)
    where = [f"{node} (0 messages)" for node in fleet.nodes]
    none = await fleet.nsq("dead", "requeue", "orders", "billing", "--reason=expired")
    assert (none.status, none.errors) == (0, "")
    assert none.output == f"channel billing of topic orders: requeued on {', '.join(where)}\n"
    assert "0 messages" in (await fleet.nsq("dead", "requeue", "orders", "billing", "--since=0s")).output
    done = await fleet.nsq("dead", "requeue", "orders", "billing", "--since=1h", "--json")
    assert (done.status, done.errors) == (0, "")
    (action,) = done.document["actions"]
    assert {each["node"]: each["detail"] for each in action["results"] if each["target"] == "nsqd"} == {
        fleet.brokers[0].http_address: "2 messages",
        fleet.brokers[1].http_address: "1 message",
    }
    for broker in range(2):
        assert (await peeked(fleet, broker, "ready"))["total"] == 3
    await bury(fleet, 0, 2)
    assert (await fleet.nsq("dead", "requeue", "orders", "billing", "--rate=1")).status == 0
    assert (await peeked(fleet, 0, "dead"))["total"] == 0
    assert (await peeked(fleet, 0, "deferred"))["total"] > 0


async def test_dead_messages_are_removed_after_a_confirmation(fleet: Fleet) -> None:
    """The question has their number. Messages that are not dead stay."""
    await bury(fleet, 0, 2)
    refused = await fleet.nsq("dead", "remove", "orders", "billing")
    assert refused.status == 2
    assert "would remove 2 dead messages from channel billing of topic orders\n" in refused.errors
    some = await fleet.nsq("dead", "remove", "orders", "billing", "--reason=expired", "--since=1h")
    assert "would remove up to 0 dead messages of reason expired from channel billing" in some.errors
    assert (await peeked(fleet, 0, "dead"))["total"] == 2
    done = await fleet.nsq("dead", "remove", "orders", "billing", "--yes")
    assert (done.status, done.errors) == (0, "")
    assert f"removed on {fleet.nodes[0]} (" in done.output
    for broker, left in ((0, 1), (1, 3)):
        assert (await peeked(fleet, broker, "dead"))["total"] == 0
        assert (await peeked(fleet, broker, "ready"))["total"] == left


async def test_a_go_fleet_has_no_dead_messages(go_fleet: GoCluster) -> None:
    """The list is empty; an action says so for each node, and empties no channel."""
    for node in go_fleet.nodes:
        node.topic("orders")
        node.channel("orders", "billing", depth=5)
    flag = f"--lookupd-http-address={go_fleet.registry.address}"
    assert (await nsq("dead", flag)).errors == "no dead messages\n"
    for words in (["show"], ["requeue"], ["remove", "--yes"]):
        refused = await nsq("dead", words[0], "orders", "billing", *words[1:], flag)
        assert refused.status == 1
        assert refused.errors.count("this nsqd has no dead messages") == 2
    (row,) = (await nsq("channels", "--json", flag)).document["channels"]
    assert row["depth"] == 10


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["requeue"], "requeue requires a topic and one or more channels"),
        (["show", "orders", "a", "b"], "show takes one channel"),
        (["requeue", "orders", "a b"], "'a b' is not a valid channel name: "),
        (["requeue", "orders", "billing", "--since=soon"], "--since: 'soon' is neither a duration"),
        (["list", "--since=1h"], "--since is for requeue and remove, not for list"),
        (["show", "orders", "billing", "--reason=expired"], "--reason is for requeue and remove, not for show"),
        (["remove", "orders", "billing", "--rate=5"], "--rate is for requeue, not for remove"),
        (["requeue", "orders", "billing", "--rate=0"], "--rate: 0 is not positive"),
        (["requeue", "orders", "billing", "--limit=5"], "--limit is for show, not for requeue"),
        (["show", "orders", "billing", "--limit=-1"], "--limit: -1 is not positive"),
    ],
)
async def test_a_wrong_command_line_about_dead_messages_is_refused(words: list[str], error: str) -> None:
    """In one line, with status 2; no request is sent."""
    ended = await nsq("dead", *words)
    assert (ended.status, ended.output, ended.errors.count("\n")) == (2, "", 1)
    assert ended.errors.startswith(f"nsq dead: {error}")
