"""Registrations: which producers are found for which topic, and for how long."""

import json
from typing import Any

import pytest


def test_a_topic_and_its_channels_are_found_where_they_were_registered(world: Any) -> None:
    """/lookup returns all addresses of each producer, sorted, and the topic's channels."""
    world.nsqd("t b", "t a", broadcast_address="zulu", topology_zone="z", topology_region="r")
    world.nsqd("t", broadcast_address="alpha")
    answer = world.get("/lookup?topic=t")
    assert answer["channels"] == ["a", "b"]
    assert [producer["broadcast_address"] for producer in answer["producers"]] == ["alpha", "zulu"]
    assert answer["producers"][1] == {
        "remote_address": "127.0.0.1:50001",
        "hostname": "hostA",
        "broadcast_address": "zulu",
        "tcp_port": 4150,
        "http_port": 4151,
        "version": "1.3.0",
        "topology_zone": "z",
        "topology_region": "r",
    }


def test_two_connections_with_one_address_are_two_producers(world: Any) -> None:
    """Producers are identified by their connection, not by the address that they announce."""
    world.nsqd("t")
    world.nsqd("t")
    assert world.found("t") == ["addrA", "addrA"]


def test_a_silent_producer_is_left_out_until_it_pings(world: Any) -> None:
    """A producer is active up to exactly the inactive timeout, inactive after it, and active again after a ping."""
    nsqd = world.nsqd("t")
    world.clock.pass_by(300)
    assert world.found("t") == ["addrA"]
    world.clock.now_ns += 1
    assert world.found("t") == []
    assert world.get("/nodes") == {"producers": []}
    nsqd.ok("REGISTER other")  # registering is no sign of life
    assert world.found("t") == []
    nsqd.ok("PING")
    assert world.found("t") == ["addrA"]


def test_topics_and_channels_are_listed_even_when_their_producers_are_not(world: Any) -> None:
    """Only lists of producers are filtered by activity and tombstones."""
    world.nsqd("t c")
    world.post("/topic/tombstone?topic=t&node=addrA:4151")
    world.clock.pass_by(1000)
    assert world.get("/topics") == {"topics": ["t"]}
    assert world.get("/channels?topic=t") == {"channels": ["c"]}
    assert world.get("/lookup?topic=t") == {"channels": ["c"], "producers": []}


def test_entries_outlive_their_producers(world: Any) -> None:
    """A disconnect removes the producer, not the topic; registrations of others stay."""
    nsqd = world.nsqd("t c")
    world.nsqd("t", broadcast_address="other")
    nsqd.disconnect()
    assert world.found("t") == ["other"]
    assert world.get("/lookup?topic=t")["channels"] == ["c"]


@pytest.mark.parametrize("leave", ["disconnect", "UNREGISTER"])
def test_ephemeral_entries_go_with_their_last_producer(world: Any, leave: str) -> None:
    """In every way of leaving, ephemeral names are removed; others stay."""
    first, second = (world.nsqd("e#ephemeral c#ephemeral", "t c#ephemeral", "t lasting") for _ in range(2))

    def go(nsqd: Any) -> None:
        if leave == "disconnect":
            nsqd.disconnect()
        else:
            nsqd.ok("UNREGISTER e#ephemeral")
            nsqd.ok("UNREGISTER t c#ephemeral")

    go(first)
    assert world.get("/topics") == {"topics": ["e#ephemeral", "t"]}
    assert world.get("/channels?topic=t") == {"channels": ["c#ephemeral", "lasting"]}
    go(second)
    assert world.get("/topics") == {"topics": ["t"]}
    assert world.get("/channels?topic=t") == {"channels": ["lasting"]}
    assert world.get("/channels?topic=e%23ephemeral") == {"channels": []}


def test_unregistering_a_channel_leaves_the_topic(world: Any) -> None:
    """Unregistering the topic removes its channels."""
    nsqd = world.nsqd("t a", "t b")
    nsqd.ok("UNREGISTER t a")
    assert set(world.get("/debug")) == {"client::", "channel:t:b", "topic:t:"}
    nsqd.ok("UNREGISTER t")
    assert set(world.get("/debug")) == {"client::"}
    assert world.get("/lookup?topic=t") == {"channels": ["a", "b"], "producers": []}


def test_a_tombstone_hides_a_producer_until_it_expires(world: Any) -> None:
    """For its lifetime and for this topic only, even after another REGISTER; /nodes shows it as a tombstone."""
    nsqd = world.nsqd("t", "u")
    world.nsqd("t", broadcast_address="other")
    world.post("/topic/tombstone?topic=t&node=addrA:4151")
    nsqd.ok("REGISTER t")
    assert world.found("t") == ["other"]
    assert world.found("u") == ["addrA"]
    node = world.get("/nodes")["producers"][0]
    assert (node["topics"], node["tombstones"]) == (["t", "u"], [True, False])
    world.clock.pass_by(44.999)
    assert world.found("t") == ["other"]
    world.clock.pass_by(0.001)
    assert world.found("t") == ["addrA", "other"]
    assert world.get("/nodes")["producers"][0]["tombstones"] == [False, False]
    assert [p["tombstoned"] for p in world.get("/debug")["topic:t:"]] == [True, False]


def test_a_tombstone_is_lifted_by_leaving_and_coming_back(world: Any) -> None:
    """UNREGISTER and REGISTER, or a new connection."""
    nsqd = world.nsqd("t")
    world.post("/topic/tombstone?topic=t&node=addrA:4151")
    nsqd.ok("UNREGISTER t")
    nsqd.ok("REGISTER t")
    assert world.found("t") == ["addrA"]
    world.post("/topic/tombstone?topic=t&node=addrA:4151")
    nsqd.disconnect()
    world.nsqd("t")
    assert world.found("t") == ["addrA"]


def test_a_tombstone_takes_every_connection_of_the_node_and_no_other(world: Any) -> None:
    """The node is broadcast_address:http_port to the letter, IPv6 without brackets."""
    for _ in range(2):
        world.nsqd("t", broadcast_address="::1")
    world.post("/topic/tombstone?topic=t&node=%3A%3A1:4150")
    world.post("/topic/tombstone?topic=t&node=[::1]:4151")
    assert world.found("t") == ["::1", "::1"]
    world.post("/topic/tombstone?topic=t&node=::1:4151")
    assert world.found("t") == []


def test_deleting_a_topic_drops_its_channels_and_a_live_nsqd_brings_it_back(world: Any) -> None:
    """For all its producers; other topics stay, and connections stay open."""
    nsqd = world.nsqd("t c", "u c")
    world.post("/topic/delete?topic=t")
    assert world.get("/topics") == {"topics": ["u"]}
    assert world.get("/channels?topic=t") == {"channels": []}
    assert [node["topics"] for node in world.get("/nodes")["producers"]] == [["u"]]
    nsqd.ok("REGISTER t")
    assert world.found("t") == ["addrA"]
    nsqd.disconnect()
    assert world.get("/debug") == {}


def test_deleting_a_channel_leaves_its_topic(world: Any) -> None:
    """The first time; the second time it does not exist."""
    world.nsqd("t c", "t d")
    world.post("/channel/delete?topic=t&channel=c")
    assert world.get("/lookup?topic=t")["channels"] == ["d"]
    again = world.request("POST", "/channel/delete?topic=t&channel=c")
    assert (again.status, again.body) == (404, b'{"message":"CHANNEL_NOT_FOUND"}')


def test_the_debug_page_shows_the_whole_database(world: Any) -> None:
    """Every entry with producers, by category:key:subkey; each producer with its times, with sorted keys."""
    assert world.request("GET", "/debug").body == b"{}"
    world.nsqd("t1 c1")
    world.post("/topic/create?topic=unproduced")
    body = world.request("GET", "/debug").body.decode()
    database = json.loads(body)
    assert list(database) == ["channel:t1:c1", "client::", "topic:t1:"]
    one = (
        '{"broadcast_address":"addrA","hostname":"hostA","http_port":4151,"id":"127.0.0.1:50001",'
        '"last_update":1795184228805018549,"tcp_port":4150,"tombstoned":false,'
        '"tombstoned_at":-6795364578871345152,"topology_region":"","topology_zone":"","version":"1.3.0"}'
    )
    assert body.count(f"[{one}]") == 3
    world.post("/topic/tombstone?topic=t1&node=addrA:4151")
    assert world.get("/debug")["topic:t1:"][0]["tombstoned_at"] == 1795184228805018549


def test_a_star_reads_every_topic_but_deletes_and_tombstones_none(world: Any) -> None:
    """topic=* looks up and lists all topics; deleting or tombstoning with it is refused."""
    assert world.request("GET", "/lookup?topic=*").status == 404
    world.nsqd("t a", "u a", broadcast_address="one")
    world.nsqd("u b", broadcast_address="two")
    assert world.get("/channels?topic=*") == {"channels": ["a", "b"]}
    assert world.found("*") == ["one", "two"]
    for target in ("/topic/delete?topic=*", "/topic/tombstone?topic=*&node=one:4151"):
        answer = world.request("POST", target)
        assert (answer.status, answer.body) == (400, b'{"message":"INVALID_ARG_TOPIC"}')
    assert world.get("/topics") == {"topics": ["t", "u"]}
    assert world.found("t") == ["one"]
