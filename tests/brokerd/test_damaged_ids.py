"""Ids after damage, and after a change of the node's id: delivered messages can be finished, requeued and touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd.client import Client
from brokerd.file_header import HEADER_BYTES
from brokerd.kernel.commit import RECORD_BYTES
from tests.brokerd.clockwork import START_S, Delivery, Node

BATCHES, IN_A_BATCH = 20, 10
Damage = Callable[[Path], None]


def publish(node: Node, batches: int = BATCHES) -> None:
    for batch in range(batches):
        node.broker.topic("t").publish([b"%03d-%03d" % (batch, at) for at in range(IN_A_BATCH)])


def killed(node: Node, damage: Damage | None = None) -> Node:
    """The node after ``kill -9``, ``damage(newest segment)`` and a start."""
    node.kill()
    if damage is not None:
        damage(max((Path(node.broker.settings.data_path or ".") / "topics").glob("t.*/*.log")))
    node.open()
    return node


def deliver(node: Node) -> tuple[Client, list[Delivery]]:
    got: list[Delivery] = []
    client = node.subscribe("t", "c", 1000, got.append)
    node.pass_until(node.now)
    return client, got


def finish(node: Node, client: Client, message_ids: list[bytes]) -> list[str]:
    """Send a run of FINs; returns the texts of the errors."""
    lines = memoryview(b"".join(b"FIN %b\n" % each for each in message_ids))
    channel = node.broker.topic("t").channel("c")
    return [str(error) for error in channel.finish(client, lines, len(message_ids), node.wall_ns())]


def flip(at: int) -> Damage:
    """Flip a bit of byte ``at`` behind the header."""

    def damage(segment: Path) -> None:
        data = bytearray(segment.read_bytes())
        data[HEADER_BYTES + at] ^= 1
        segment.write_bytes(data)

    return damage


def zero_a_page(segment: Path) -> None:
    with segment.open("r+b") as file:
        file.write(bytes(4096))


@pytest.mark.parametrize("damage", [*(flip(at) for at in range(18, 24)), zero_a_page], ids=[*range(18, 24), "page"])
def test_after_damage_every_message_that_still_comes_can_be_finished(damage: Damage, tmp_path: Path) -> None:
    """One flipped bit in the first id of the newest segment, or its first page zeroed, costs only the affected
    batches."""
    node = Node(tmp_path)
    publish(node)
    node.broker.topic("t").channel("c")
    killed(node, damage)
    client, got = deliver(node)
    costs = IN_A_BATCH if damage is not zero_a_page else 4096 // (34 + 7) + IN_A_BATCH
    assert len(got) >= BATCHES * IN_A_BATCH - costs
    assert finish(node, client, [each.message_id for each in got]) == []
    assert node.broker.topic("t").channel("c").in_flight_count == 0
    node.broker.close()


def test_messages_published_after_damage_have_ids_of_this_node(tmp_path: Path) -> None:
    """A damaged frame says nothing about the ids of later messages."""
    node = Node(tmp_path, node_id=5)
    publish(node, 2)
    node.broker.topic("t").channel("c")
    killed(node, flip(20))
    publish(node, 1)
    _, got = deliver(node)
    assert {each.message_id[:6] for each in got} == {b"%06x" % (5 << 14)}
    node.broker.close()


def test_messages_of_every_node_id_that_a_node_has_had_are_answered(tmp_path: Path) -> None:
    """One segment contains messages of three node ids: FIN of a mixed run, REQ and TOUCH find each of them."""
    node = Node(tmp_path, node_id=1)
    node.broker.topic("t").channel("c")
    for node_id in (1, 2, 3):
        node._settings = node._settings.__class__(data_path=str(tmp_path), node_id=node_id)
        killed(node)
        publish(node, 2)
    client, got = deliver(node)
    ids = [each.message_id for each in got]
    assert [int(each[:6], 16) >> 14 for each in ids] == [1] * 20 + [2] * 20 + [3] * 20
    channel = node.broker.topic("t").channel("c")
    touches = memoryview(b"".join(b"TOUCH %b\n" % each for each in ids[::7]))
    assert not channel.touch(client, touches, len(ids[::7]), node.now)
    for message_id in ids[1::7]:
        assert not channel.requeue(client, memoryview(b"REQ %b 0\n" % message_id), 1, 0, node.now)
    node.pass_until(START_S + 1)
    assert [each.message_id for each in got[60:]] == ids[1::7]
    wrong = b"%06x%b" % (9 << 14, ids[0][6:])
    assert finish(node, client, [*ids[:30], wrong, *ids[30:]]) == [f"FIN {wrong.decode()} failed ID not in flight"]
    assert (channel.in_flight_count, channel.depth, client.in_flight_count) == (0, 0, 0)
    node.broker.close()


def test_a_commit_record_of_another_node_id_is_read_from_its_frames(tmp_path: Path) -> None:
    """Its frames are recognised as this topic's although the first frame of the segment is damaged too."""
    node = Node(tmp_path, node_id=1)
    node.broker.topic("t").channel("c")
    publish(node, 3)
    node._settings = node._settings.__class__(data_path=str(tmp_path), node_id=2)

    def damage(segment: Path) -> None:
        flip(20)(segment)
        flip(2 * RECORD_BYTES - 1)(segment.with_suffix(".idx"))

    killed(node, damage)
    client, got = deliver(node)
    assert len(got) == 20
    assert finish(node, client, [each.message_id for each in got]) == []
    node.broker.close()
