"""The numbers that are left out at each takeover cost nothing later."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from brokerd.broker import Broker
from brokerd.rewind import preview, rewind
from brokerd.settings import BrokerSettings
from tests.brokerd.clockwork import Node
from tests.harness.waiting import DEADLINE_S

LEFT_OUT = 1 << 38
"""So many that a broker that went through them one by one would not come to an end."""


def later(*_: Any) -> None:
    """No timer is due in this test."""


def start(data_path: Path, left_out_numbers: int) -> Broker:
    settings = BrokerSettings(data_path=str(data_path))
    return Broker(settings, now=time.monotonic, call_soon=later, call_at=later, left_out_numbers=left_out_numbers)


def test_a_rewind_over_the_numbers_of_a_takeover_returns_the_messages_only(tmp_path: Path) -> None:
    """Of two messages before it, one is finished; another one is published after it."""
    broker = start(tmp_path, 0)
    topic = broker.topic("t")
    topic.channel("c").remove(list(topic.publish([b"x", b"y"]))[:1])
    broker.close()
    broker = start(tmp_path, LEFT_OUT)
    topic = broker.topic("t")
    channel = topic.channel("c")
    topic.publish([b"z"])
    assert (channel.depth, channel.message_count) == (2, 1)
    assert preview(channel, 0).messages == 1
    assert rewind(channel, 0).messages == 1
    assert (channel.depth, channel.message_count, topic.message_count) == (3, 1, 1)
    broker.close()


def test_a_channel_that_is_created_after_takeovers_has_the_messages_only(tmp_path: Path) -> None:
    """They wait in the topic, which has no channel yet."""
    for left_out_numbers in (0, LEFT_OUT, LEFT_OUT):
        broker = start(tmp_path, left_out_numbers)
        broker.topic("t").publish([b"x"])
        broker.close()
    broker = start(tmp_path, 0)
    topic = broker.topic("t")
    assert topic.depth == 3
    channel = topic.channel("c")
    assert (channel.depth, channel.message_count) == (3, 3)
    broker.close()


def test_nsq_repair_finds_no_damage_after_a_takeover(tmp_path: Path) -> None:
    """The numbers that were left out between two files are in the topic's state."""
    broker = start(tmp_path, 0)
    broker.topic("t").publish([b"x"])
    broker.close()
    broker = start(tmp_path, LEFT_OUT)
    broker.topic("t").publish([b"y"])
    broker.close()
    command = [sys.executable, "-m", "nsqcommand", "repair", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_a_damaged_checkpoint_after_a_takeover_loses_nothing(tmp_path: Path) -> None:
    """The one before it does not have the numbers that were left out; the journal has them."""
    node = Node(tmp_path)
    node.broker.topic("t").publish([b"x"])
    node.kill()
    node.open(LEFT_OUT)
    node.broker.topic("t").publish([b"y"])
    node.kill()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    node.open()
    assert (node.broker.topic("t").depth, node.broker.storage.lost_message_count) == (2, 0)
    node.kill()
