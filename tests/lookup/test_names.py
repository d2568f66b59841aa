"""Requests that act on many topics or channels of a registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nsqdaemon.http.names import MAX_NAMES


def act(world: Any, target: str, *names: str) -> Any:
    """The response to a POST of the names."""
    response = world.request("POST", target, "\n".join(names).encode())
    assert response.status == 200, response.body
    return json.loads(response.body)


def test_the_producers_of_many_topics_are_listed_once(world: Any) -> None:
    """As by ``/lookup``, without those that a tombstone hides; a topic that does not exist is left out."""
    world.nsqd("orders", "invoices", broadcast_address="a")
    world.nsqd("orders", broadcast_address="b")
    world.post("/topic/create?topic=idle")
    world.post("/topic/tombstone?topic=orders&node=a:4151")
    found = act(world, "/topics/lookup", "orders", "invoices", "idle", "none", "*")
    assert [each["broadcast_address"] for each in found["producers"]] == ["b", "a"]
    assert found["topics"] == {"orders": [0], "invoices": [1], "idle": []}
    assert found["producers"][0] == world.get("/lookup?topic=orders")["producers"][0]


def test_many_topics_are_deleted_and_a_star_deletes_none(world: Any) -> None:
    """As by single requests, one that does not exist is no error."""
    world.nsqd("orders billing", "invoices", "kept")
    answer = act(world, "/topics/delete", "orders", "*", "invoices", "none")
    assert answer == {"done": 3, "errors": [{"name": "*", "status": 400, "message": "INVALID_ARG_TOPIC"}]}
    assert world.get("/topics") == {"topics": ["kept"]}
    assert world.get("/channels?topic=orders") == {"channels": []}


def test_many_topics_are_tombstoned_on_a_node(world: Any) -> None:
    """On no other node, and no other topics."""
    world.nsqd("orders", "invoices", "kept", broadcast_address="a")
    world.nsqd("orders", broadcast_address="b")
    answer = act(world, "/topics/tombstone?node=a:4151", "orders", "invoices", "*")
    assert answer == {"done": 2, "errors": [{"name": "*", "status": 400, "message": "INVALID_ARG_TOPIC"}]}
    assert [world.found(topic) for topic in ("orders", "invoices", "kept")] == [["b"], [], ["a"]]


def test_many_channels_are_deleted(world: Any) -> None:
    """They are written topic/channel."""
    world.nsqd("orders billing", "orders archive", "invoices billing")
    answer = act(world, "/channels/delete", "orders/billing", "invoices/billing", "orders/none", "orders")
    assert answer == {
        "done": 2,
        "errors": [
            {"name": "orders/none", "status": 404, "message": "CHANNEL_NOT_FOUND"},
            {"name": "orders", "status": 400, "message": "MISSING_ARG_CHANNEL"},
        ],
    }
    assert world.get("/channels?topic=orders") == {"channels": ["archive"]}


@pytest.mark.parametrize(
    ("target", "names", "code"),
    [
        ("/topics/lookup", 0, "MISSING_NAMES"),
        ("/topics/delete", 0, "MISSING_NAMES"),
        ("/topics/delete", MAX_NAMES + 1, "TOO_MANY_NAMES"),
        ("/topics/tombstone", 1, "MISSING_ARG_NODE"),
        ("/channels/delete", 0, "MISSING_NAMES"),
    ],
)
def test_a_wrong_request_is_refused(world: Any, target: str, names: int, code: str) -> None:
    """Nothing is changed then."""
    world.nsqd("t0")
    response = world.request("POST", target, b"\n".join(b"t%d" % number for number in range(names)))
    assert (response.status, json.loads(response.body)) == (400, {"message": code})
    assert world.found("t0") == ["addrA"]
