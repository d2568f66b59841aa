"""A change of a topic, channel, message or policy that was answered survives the loss of the primary."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.pair import TAKEOVER_TRIES, Member, Pair
from tests.harness.v2 import V2Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirror.conftest import StartPair


def channel_of(member: Member, name: str) -> dict[str, Any] | None:
    channels = member.topics()["kept"]["channels"]
    return next((channel for channel in channels if channel["channel_name"] == name), None)


def figure_of(member: Member, name: str, figure: str) -> Any:
    channel = channel_of(member, name)
    assert channel is not None
    return channel[figure]


def subscribe(primary: Member, name: str) -> None:
    """Create a channel by SUB."""
    V2Client(primary.tcp).sub("kept", name)


class Changes:
    """Changes of a primary, each by a request, and whether a member has them."""

    def __init__(self, primary: Member, number: int) -> None:
        """Create what is changed; the names have ``number`` at their end."""
        self.number = number
        for name in ("empty", "gone", "paused"):
            primary.post("/topic/create", topic=self.named(name))
        for name in ("full", "gone", "paused"):
            primary.post("/channel/create", topic="kept", channel=self.named(name))
        answer = primary.post("/pub", b"x", topic="kept", defer="600000", ids="true")
        self.message_id = json.loads(answer)["ids"][0].encode()
        primary.post("/pub", b"x", topic="kept")
        primary.post("/pub", b"x", topic=self.named("empty"))

    def named(self, name: str) -> str:
        return f"{name}{self.number}"

    @property
    def all(self) -> dict[str, tuple[Callable[[Member], object], Callable[[Member], object]]]:
        """How to make each change, and to find out whether it was made."""
        named = self.named
        return {
            "topic created": (
                lambda primary: primary.post("/topic/create", topic=named("new")),
                lambda after: named("new") in after.topics(),
            ),
            "topic deleted": (
                lambda primary: primary.post("/topic/delete", topic=named("gone")),
                lambda after: named("gone") not in after.topics(),
            ),
            "topic emptied": (
                lambda primary: primary.post("/topic/empty", topic=named("empty")),
                lambda after: not after.topics()[named("empty")]["depth"],
            ),
            "topic paused": (
                lambda primary: primary.post("/topic/pause", topic=named("paused")),
                lambda after: after.topics()[named("paused")]["paused"],
            ),
            "policy set": (
                lambda primary: primary.post("/policy", b'{"max_attempts":5}', pattern=named("policy")),
                lambda after: named("policy") in json.dumps(after.get("/policies")),
            ),
            "channel created": (
                lambda primary: primary.post("/channel/create", topic="kept", channel=named("new")),
                lambda after: channel_of(after, named("new")),
            ),
            "channel paused": (
                lambda primary: primary.post("/channel/pause", topic="kept", channel=named("paused")),
                lambda after: figure_of(after, named("paused"), "paused"),
            ),
            "channel emptied": (
                lambda primary: primary.post("/channel/empty", topic="kept", channel=named("full")),
                lambda after: not figure_of(after, named("full"), "depth"),
            ),
            "message cancelled": (
                lambda primary: primary.post("/message/cancel", self.message_id, topic="kept"),
                lambda after: not figure_of(after, named("paused"), "deferred_count"),
            ),
            "channel deleted": (
                lambda primary: primary.post("/channel/delete", topic="kept", channel=named("gone")),
                lambda after: channel_of(after, named("gone")) is None,
            ),
            "subscribed": (
                lambda primary: subscribe(primary, named("sub")),
                lambda after: channel_of(after, named("sub")),
            ),
        }


def undone_by_a_takeover(pair: Pair, last: str) -> list[str]:
    """Make all changes, the one called ``last`` at the end, and kill the primary. Returns what the other one lacks."""
    pair.wait_for_primary().post("/topic/create", topic="kept")
    for number in range(TAKEOVER_TRIES):
        primary = pair.wait_for_primary()
        made = Changes(primary, number)
        changes = made.all
        pair.wait_until_in_sync()
        for name in [*(name for name in changes if name != last), last]:
            changes[name][0](primary)
        primary.end(signal.SIGKILL)
        if pair.wait_for_takeover(primary):
            after = pair.wait_for_primary()
            return [name for name, (_, is_made) in changes.items() if not is_made(after)]
        primary.start()
    raise AssertionError(f"the follower was out of sync {TAKEOVER_TRIES} times")


@pytest.mark.parametrize("last", ["subscribed", "channel deleted", "message cancelled"])
def test_answered_changes_survive_the_loss_of_the_primary(last: str, start_pair: StartPair) -> None:
    """The primary is killed as soon as the last answer has arrived."""
    assert undone_by_a_takeover(start_pair(), last) == []
