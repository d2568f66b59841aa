"""The contents of the data paths in this folder, and the command that makes one with the present code.

``python -m tests.durability.formats.story FORMAT`` writes ``format-FORMAT-killed.tar.xz`` and
``format-FORMAT-closed.tar.xz``.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from brokerd import message_actions
from brokerd.last_stats import write_last_stats
from tests.brokerd.clockwork import Delivery, Node

FOLDER = Path(__file__).parent
ORDERS = [b"order %03d %b" % (number, b"x" * 1200) for number in range(400)]
MAIL = [b"mail %d" % number for number in range(5)]
LATER = [b"later %d" % number for number in range(4)]
FINISHED, REQUEUED, IN_FLIGHT = ORDERS[:10], ORDERS[10:15], ORDERS[15:20]
"""What channel ``a`` of ``orders`` did with its first messages."""
OWED: dict[str, dict[str, list[bytes]]] = {
    "orders": {"a": ORDERS[10:], "b": ORDERS},
    "mail": {},
    "later": {"a": LATER},
}
"""The messages that each channel still has to deliver. Those of ``mail`` wait in the topic."""

DEAD, FAILED = b"dead", b"failed once"
"""The messages of ``broken``, which formats 0 and 1 do not have: an operator buried one, the other was requeued."""


def write(data_path: Path, *, closed: bool) -> None:
    """Write a data path, and end the broker by SIGTERM if ``closed``, else by SIGKILL."""
    node = Node(data_path, max_attempts=2)
    orders = node.broker.topic("orders")
    a = orders.channel("a")
    orders.channel("b").pause()
    for start in range(0, len(ORDERS), 8):
        orders.publish(ORDERS[start : start + 8])
    got: list[Delivery] = []
    client = node.subscribe("orders", "a", len(FINISHED + REQUEUED + IN_FLIGHT), got.append)
    node.pass_until(node.now)
    lines = [memoryview(b"FIN %b\n" % each.message_id) for each in got if each.body in FINISHED]
    a.finish(client, memoryview(b"".join(lines)), len(lines), node.wall_ns())
    for each in got:
        if each.body in REQUEUED:
            a.requeue(client, memoryview(b"REQ %b 9\n" % each.message_id), 1, 30.0, node.now)
    node.broker.topic("mail").publish_with_headers(MAIL, [b'{"subject":"one"}', *[b""] * (len(MAIL) - 1)])
    node.broker.topic("later").channel("a")
    node.broker.topic("later").publish(LATER, defer_ms=20_000)
    client.ready_count = 0
    broken = node.broker.topic("broken").channel("a")
    node.broker.topic("broken").publish([DEAD, FAILED])
    got.clear()
    client = node.subscribe("broken", "a", 2, got.append)
    node.pass_until(node.now)
    ids = {each.body: each.message_id for each in got}
    message_actions.bury(broken, [ids[DEAD]])
    broken.requeue(client, memoryview(b"REQ %b 9\n" % ids[FAILED]), 1, 30.0, node.now)
    if closed:
        write_last_stats(node.broker, data_path)
        node.broker.close()
    else:
        node.kill()


def main(number: str) -> None:
    """Write the two archives."""
    for ended in ("killed", "closed"):
        with tempfile.TemporaryDirectory() as folder:
            data_path = Path(folder, "data")
            data_path.mkdir()
            write(data_path, closed=ended == "closed")
            with tarfile.open(FOLDER / f"format-{number}-{ended}.tar.xz", "w:xz", preset=9) as archive:
                archive.add(data_path, "data")


if __name__ == "__main__":
    main(sys.argv[1])
