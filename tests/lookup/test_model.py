"""The registration database compared with a simple model: the same responses after any history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

INACTIVE_S, TOMBSTONE_S = 300, 45
TOPICS = st.sampled_from(["t", "e#ephemeral"])
CHANNELS = st.sampled_from(["c", "x#ephemeral"])
NODES = st.integers(0, 2)


@dataclass
class Node:
    """One connection: its IDENTIFY, the time of its last ping, and the times of its tombstones by topic."""

    wire: Any
    name: str
    heard_s: float
    tombstones: dict[str, float] = field(default_factory=dict)


class Registrations(RuleBasedStateMachine):
    """The model: the existing topics and channels, and a set of (node, topic, channel or None)."""

    world_factory: Any  # conftest's World, which a state machine cannot take as a fixture

    @initialize()
    def begin(self) -> None:
        self.world = self.world_factory()
        self.now_s = 0.0
        self.nodes: dict[int, Node] = {}
        self.topics: set[str] = set()
        self.channels: set[tuple[str, str]] = set()
        self.held: set[tuple[int, str, str | None]] = set()
        self.unfinished: list[Any] = []
        """The steps that are left of clearing away nodes that are gone."""

    # --- what nsqds do ---

    @rule(number=NODES)
    def connect(self, number: int) -> None:
        if number in self.nodes:
            return
        name = f"n{number % 2}"  # two of them announce the same address
        self.nodes[number] = Node(self.world.nsqd(broadcast_address=name), f"{name}:4151", self.now_s)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), topic=TOPICS, channel=st.none() | CHANNELS)
    def register(self, data: st.DataObject, topic: str, channel: str | None) -> None:
        number = data.draw(st.sampled_from(sorted(self.nodes)))
        self.nodes[number].wire.ok(f"REGISTER {topic} {channel}" if channel else f"REGISTER {topic}")
        self.topics.add(topic)
        self.held.add((number, topic, None))
        if channel:
            self.channels.add((topic, channel))
            self.held.add((number, topic, channel))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), topic=TOPICS, channel=st.none() | CHANNELS)
    def unregister(self, data: st.DataObject, topic: str, channel: str | None) -> None:
        number = data.draw(st.sampled_from(sorted(self.nodes)))
        self.nodes[number].wire.ok(f"UNREGISTER {topic} {channel}" if channel else f"UNREGISTER {topic}")
        self.leave({each for each in self.held if each[:2] == (number, topic) and channel in (None, each[2])})

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def ping(self, data: st.DataObject) -> None:
        node = self.nodes[data.draw(st.sampled_from(sorted(self.nodes)))]
        node.wire.ok("PING")
        node.heard_s = self.now_s

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), steps=st.integers(0, 4))
    def disconnect_slowly(self, data: st.DataObject, steps: int) -> None:
        """Responses do not contain a disconnected node, even before its registrations are removed."""
        number = data.draw(st.sampled_from(sorted(self.nodes)))
        work = self.nodes[number].wire.conversation.ended()
        for _, _ in zip(range(steps), work, strict=False):
            pass
        self.unfinished.append(work)
        self.forget(number)

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data())
    def clear_away(self, data: st.DataObject) -> None:
        """One more slice of the removal of a disconnected node."""
        work = data.draw(st.sampled_from(range(len(self.unfinished))))
        if next(self.unfinished[work], self) is self:
            del self.unfinished[work]

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.nodes)))
        self.nodes[number].wire.disconnect()
        self.forget(number)

    def forget(self, number: int) -> None:
        self.leave({each for each in self.held if each[0] == number})
        del self.nodes[number]

    def leave(self, gone: set[tuple[int, str, str | None]]) -> None:
        self.held -= gone
        for number, topic, channel in gone:
            if channel is None:
                self.nodes[number].tombstones.pop(topic, None)
            if any(each[1:] == (topic, channel) for each in self.held):
                continue
            if channel is None and topic.endswith("#ephemeral"):
                self.topics.discard(topic)
            elif channel is not None and channel.endswith("#ephemeral"):
                self.channels.discard((topic, channel))

    # --- what operators do, and time ---

    @rule(seconds=st.sampled_from([1, 44, 45, 150, 300, 301]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.pass_by(seconds)
        self.now_s += seconds

    @rule(topic=TOPICS, channel=st.none() | CHANNELS)
    def create(self, topic: str, channel: str | None) -> None:
        self.topics.add(topic)
        if channel:
            self.channels.add((topic, channel))
            self.world.post(f"/channel/create?topic={quoted(topic)}&channel={quoted(channel)}")
        else:
            self.world.post(f"/topic/create?topic={quoted(topic)}")

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.world.post(f"/topic/delete?topic={quoted(topic)}")
        self.topics.discard(topic)
        self.channels = {each for each in self.channels if each[0] != topic}
        self.held = {each for each in self.held if each[1] != topic}
        for node in self.nodes.values():
            node.tombstones.pop(topic, None)

    @rule(topic=TOPICS, channel=CHANNELS)
    def delete_channel(self, topic: str, channel: str) -> None:
        there = (topic, channel) in self.channels
        answer = self.world.request("POST", f"/channel/delete?topic={quoted(topic)}&channel={quoted(channel)}")
        assert answer.status == (200 if there else 404)
        self.channels.discard((topic, channel))
        self.held = {each for each in self.held if each[1:] != (topic, channel)}

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def tombstone_one_and_have_it_leave_and_come_back(self, data: st.DataObject) -> None:
        number, topic, _ = data.draw(st.sampled_from(sorted(self.held, key=str)))
        self.tombstone(topic, self.nodes[number].name)
        self.everybody_hears_what_the_model_says()
        self.nodes[number].wire.ok(f"UNREGISTER {topic}")
        self.leave({each for each in self.held if each[:2] == (number, topic)})
        self.nodes[number].wire.ok(f"REGISTER {topic}")
        self.topics.add(topic)
        self.held.add((number, topic, None))

    @rule(topic=TOPICS, name=st.sampled_from(["n0:4151", "n1:4151", "n0:1"]))
    def tombstone(self, topic: str, name: str) -> None:
        self.world.post(f"/topic/tombstone?topic={quoted(topic)}&node={name}")
        for number, node in self.nodes.items():
            if node.name == name and (number, topic, None) in self.held:
                node.tombstones[topic] = self.now_s

    # --- what anyone hears ---

    @invariant()
    def everybody_hears_what_the_model_says(self) -> None:
        if not hasattr(self, "world"):
            return
        assert self.world.get("/topics") == {"topics": sorted(self.topics)}
        for topic in ("t", "e#ephemeral"):
            channels = sorted(channel for of, channel in self.channels if of == topic)
            assert self.world.get(f"/channels?topic={quoted(topic)}") == {"channels": channels}
            if topic not in self.topics:
                assert self.world.request("GET", f"/lookup?topic={quoted(topic)}").status == 404
                continue
            answer = self.world.get(f"/lookup?topic={quoted(topic)}")
            assert answer["channels"] == channels
            assert {each["remote_address"] for each in answer["producers"]} == {
                node.wire.address
                for number, node in self.nodes.items()
                if (number, topic, None) in self.held and self.is_active(node) and not self.is_hidden(node, topic)
            }
        assert {
            each["remote_address"]: dict(zip(each["topics"], each["tombstones"], strict=True))
            for each in self.world.get("/nodes")["producers"]
        } == {
            node.wire.address: {
                topic: self.is_hidden(node, topic)
                for held_by, topic, channel in self.held
                if held_by == number and channel is None
            }
            for number, node in self.nodes.items()
            if self.is_active(node)
        }
        assert {name: sorted(each["id"] for each in peers) for name, peers in self.world.get("/debug").items()} == {
            **self.debug_entries(),
        }

    def debug_entries(self) -> dict[str, list[str]]:
        entries: dict[str, list[str]] = {}
        for number, topic, channel in self.held:
            name = f"topic:{topic}:" if channel is None else f"channel:{topic}:{channel}"
            entries.setdefault(name, []).append(self.nodes[number].wire.address)
        if self.nodes:
            entries["client::"] = [node.wire.address for node in self.nodes.values()]
        return {name: sorted(addresses) for name, addresses in entries.items()}

    def is_active(self, node: Node) -> bool:
        return self.now_s - node.heard_s <= INACTIVE_S

    def is_hidden(self, node: Node, topic: str) -> bool:
        return topic in node.tombstones and self.now_s - node.tombstones[topic] < TOMBSTONE_S


def quoted(name: str) -> str:
    return name.replace("#", "%23")


def test_any_history_agrees_with_the_model(world_factory: Any) -> None:
    """Nodes connect, register, disconnect and become silent; operators create, delete and tombstone. /lookup, /topics,
    /channels, /nodes and /debug are checked after every step."""
    machine = type("WithWorld", (Registrations,), {"world_factory": world_factory})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=50, deadline=None))
