"""What is read from a registry that lists thousands of topics without a node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nsqcluster import Client, listing
from nsqcluster.listing import REREAD, Listing, read_listing
from tests.harness.daemon import Registry

ROUNDS = 3
TOPICS = ROUNDS * REREAD


@pytest.fixture
def lookup() -> Iterator[Registry]:
    """A registry with TOPICS topics of a channel each, which no node has."""
    registry = Registry().launch()
    for number in range(TOPICS):
        registry.post("/channel/create", topic=f"t{number}", channel="before")
    yield registry
    registry.stop()


async def test_topics_without_a_node_are_read_in_turn(lookup: Registry) -> None:
    """A change shows at the topic's turn, a new topic at once, and a removed one is gone at once."""
    registry = lookup.http_address
    async with Client() as client:
        found = await read_listing(client, registry)
        assert found.idle == {f"t{number}": ["before"] for number in range(TOPICS)}
        for number in range(TOPICS):
            lookup.post("/channel/create", topic=f"t{number}", channel="now")
        lookup.post("/topic/create", topic="new")
        lookup.post("/topic/delete", topic="t0")
        for call in range(1, ROUNDS + 1):
            found = await read_listing(client, registry, last=found)
            assert "t0" not in found.idle
            assert found.idle["new"] == []
            assert read_again(found) == min(call * REREAD, TOPICS - 1)
        lookup.post("/channel/create", topic="new", channel="now")
        for _ in range(ROUNDS + 1):
            found = await read_listing(client, registry, last=found)
        assert read_again(found) == TOPICS


async def test_many_topics_without_a_node_are_all_read_again_within_a_bounded_number_of_calls(
    lookup: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are. A tenth of the usual part stands for thousands of topics."""
    monkeypatch.setattr(listing, "REREAD", REREAD // 10)
    async with Client() as client:
        found = await read_listing(client, lookup.http_address)
        for number in range(TOPICS):
            lookup.post("/channel/create", topic=f"t{number}", channel="now")
        for call in range(1, listing.CALLS + 1):
            found = await read_listing(client, lookup.http_address, last=found)
            assert read_again(found) == call * TOPICS // listing.CALLS


def read_again(found: Listing) -> int:
    return sum("now" in channels for channels in found.idle.values())
