"""Timers fire when they are due, however many channels there are, and whatever happens to the wall clock."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from bench import lateness, wire
from bench.measure import create
from brokerd.channel import BUSY_TICK_S, BUSY_TICKS
from brokerd.timers import NEVER, Timers, never_early
from tests.brokerd.clockwork import MSG_TIMEOUT_S, START_S, Handle, Node
from tests.harness.daemon import Broker

HOUR_S = 3600


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(tmp_path, patch=monkeypatch)
    yield made
    made.broker.close()


TOPICS, CHANNELS_PER_TOPIC = 100, 100
MANY = TOPICS * CHANNELS_PER_TOPIC


def test_with_ten_thousand_channels_each_deferral_comes_at_its_time(node: Node) -> None:
    """Neither early nor late, to the tick of the clock, and in the order of due times on each channel."""
    dice = random.Random(1)
    delays = {f"t{i}": sorted(dice.sample(range(1, 30_000), 3)) for i in range(TOPICS)}
    got = {
        (name, channel): node.consumer(name, f"c{channel}") for name in delays for channel in range(CHANNELS_PER_TOPIC)
    }
    for name, times in delays.items():
        for defer_ms in reversed(times):
            node.broker.topic(name).publish([b"%d" % defer_ms], defer_ms=defer_ms)
    node.pass_until(START_S + 30)
    for (name, _), messages in got.items():
        assert [body for _, _, body in messages] == [b"%d" % defer_ms for defer_ms in delays[name]]
        for at, attempts, body in messages:
            assert (at, attempts) == (pytest.approx(START_S + int(body) / 1000), 1)


def test_with_ten_thousand_channels_each_timeout_comes_at_its_time(node: Node) -> None:
    """On each channel, an unanswered message is redelivered when its timeout has passed."""
    got = [node.consumer("t", f"c{channel}", ready_count=1) for channel in range(MANY)]
    node.broker.topic("t").publish([b"x"])
    node.pass_until(START_S + MSG_TIMEOUT_S - 0.001)
    assert {tuple(messages) for messages in got} == {((START_S, 1, b"x"),)}
    node.pass_until(START_S + 2 * MSG_TIMEOUT_S)
    times = [START_S + n * MSG_TIMEOUT_S for n in range(3)]
    assert {tuple(messages) for messages in got} == {tuple((at, n + 1, b"x") for n, at in enumerate(times))}


@pytest.mark.parametrize("killed_at_s", [None, 0.15])
def test_messages_that_are_due_at_short_intervals_come_in_groups(node: Node, killed_at_s: float | None) -> None:
    """None is early, none more than 10 ms late, and their order is that of their due times. A single one is on time."""
    topic = node.broker.topic("t")
    topic.channel("c")
    delays = [*range(100, 300), 2000]
    for defer_ms in reversed(delays):
        topic.publish([b"%d" % defer_ms], defer_ms=defer_ms)
    if killed_at_s:
        node.pass_until(START_S + killed_at_s)
        node.kill()
        node.open()
    got = node.consumer("t", "c", ready_count=len(delays))
    begun = node.now
    node.pass_until(START_S + 5)
    assert sorted(int(body) for _, _, body in got) == delays
    while_consuming = [(at, int(body)) for at, _, body in got if START_S + int(body) / 1000 > begun]
    assert [defer_ms for _, defer_ms in while_consuming] == [each for each in delays if START_S + each / 1000 > begun]
    late = [at - START_S - defer_ms / 1000 for at, defer_ms in while_consuming]
    assert min(late) == pytest.approx(0, abs=1e-6)
    assert BUSY_TICK_S / 2 < max(late) < BUSY_TICK_S + 1e-6
    assert late[-1] == pytest.approx(0, abs=1e-6)
    groups = {at for at, _ in while_consuming}
    assert len(groups) < BUSY_TICKS + 200 / (BUSY_TICK_S * 1000) + 5


class Waiting:
    """A timer that is due once and counts how often it is examined."""

    def __init__(self) -> None:
        self.wake_at = NEVER
        self.looked_at = 0

    def tick(self, now: float) -> None:
        self.looked_at += 1


def test_timers_that_are_not_due_are_not_examined() -> None:
    """Ten thousand waiting timers cost nothing when one of them is due: they are not scanned."""
    armed: list[float] = []

    def arm(when: float) -> Handle:
        armed.append(when)
        return Handle(lambda: None)

    timers: Timers[Waiting] = Timers(arm, Waiting.tick)
    waiting = [Waiting() for _ in range(MANY)]
    for i in random.Random(1).sample(range(MANY), MANY):
        timers.schedule(waiting[i], float(i))
    timers.fire(0.5)
    assert [each.looked_at for each in waiting[:3]] == [1, 0, 0]
    assert sum(each.looked_at for each in waiting) == 1
    assert armed[-1] == 1.0
    timers.fire(99.0)
    assert sum(each.looked_at for each in waiting) == 100


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_step_of_the_wall_clock_moves_nothing_that_is_due(node: Node, step_s: int) -> None:
    """A deferral, a delayed requeue and a timeout are on time, and publishing goes on."""
    got = node.consumer("t", "c")
    node.broker.topic("t").publish([b"deferred"], defer_ms=10_000)
    node.broker.topic("t").publish([b"held"])
    node.pass_until(START_S + 1)
    assert got == [(START_S, 1, b"held")]
    node.wall += step_s
    node.broker.topic("t").publish([b"after the step"])
    node.pass_until(START_S + 9.999)
    assert got[1:] == [(START_S + 1, 1, b"after the step")]
    node.wall -= 2 * step_s
    node.pass_until(START_S + 59.999)
    assert got[2:] == [(pytest.approx(START_S + 10), 1, b"deferred")]
    node.pass_until(START_S + 71)
    assert got[3:] == [
        (pytest.approx(START_S + 60), 2, b"held"),
        (pytest.approx(START_S + 61), 2, b"after the step"),
        (pytest.approx(START_S + 70), 2, b"deferred"),
    ]


@pytest.mark.parametrize("step_s", [0, -HOUR_S, HOUR_S])
def test_after_a_reboot_due_times_follow_the_wall_clock(
    node: Node, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    """The monotonic clock begins anew; also if the wall clock was changed before the machine went down."""
    topic = node.broker.topic("t")
    topic.channel("c")
    topic.publish([b"soon"], defer_ms=100_000)
    topic.publish([b"meanwhile"], defer_ms=20_000)
    node.wall += step_s
    node.pass_until(node.now + 10)
    topic.publish([b"late"], defer_ms=3_000_000)  # the broker notices the change
    node.kill()
    monkeypatch.setattr("brokerd.broker.boot_id", lambda: "another")
    node.now, node.wall = 5.0, node.wall + 30  # 40 s after the publish
    node.open()
    got = node.consumer("t", "c")
    node.pass_until(5.0 + HOUR_S)
    first = {body: at for at, attempts, body in got if attempts == 1}
    assert first == {
        b"meanwhile": 5.0,
        b"soon": pytest.approx(5.0 + 60),
        b"late": pytest.approx(5.0 + 3000 - 30),
    }


def test_a_real_broker_with_many_channels_is_never_early(tmp_path: Path) -> None:
    """Two thousand channels with deferrals, thirty of them watched; their lateness is printed, not checked."""
    topics, names = [f"t{i}" for i in range(20)], [f"c{i}" for i in range(100)]
    server = Broker(tmp_path).launch()
    try:
        create(server, dict.fromkeys(topics, names))
        watched = [(topic, name) for name in names for topic in topics][:30]
        dice = random.Random(1)
        commands = []
        for topic in topics * 3:
            defer_ms = lateness.EARLIEST_MS + dice.randrange(500)
            commands.append(wire.dpub(topic, defer_ms, struct.pack(">i", defer_ms)))
        seen = lateness.watch(server.tcp, watched, commands, len(watched) * 3)  # raises when one is early
        assert len(seen.deferred_ns) == len(seen.timeouts_ns) == 90
        for what, late in (("deferrals", seen.deferred_ns), ("timeouts", seen.timeouts_ns)):
            p50, p99 = np.percentile(np.frombuffer(late, np.int64), [50, 99]) / 1e6
            print(f"{what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {max(late) / 1e6:.1f} ms late")
        server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()


STEPPING_CLOCK = """
import os, time
real, real_ns = time.time, time.time_ns
def step():
    with open(os.environ["CLOCK_STEP"]) as file:
        return int(file.read())
time.time = lambda: real() + step()
time.time_ns = lambda: real_ns() + step() * 10**9
"""


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_broker_continues_when_its_machine_is_set_to_another_time(
    step_s: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start_broker: Callable[..., Any],
    connect: Callable[..., Any],
) -> None:
    """Publishes are answered, ids stay unique, deferred and requeued messages wait, and it restarts."""
    (tmp_path / "sitecustomize.py").write_text(STEPPING_CLOCK)
    clock = tmp_path / "step"
    clock.write_text("0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("CLOCK_STEP", str(clock))
    broker = start_broker()
    consumer, publisher = connect(broker), connect(broker)
    consumer.ok(wire.identify(msg_timeout=2500))
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 10\n")
    publisher.ok(wire.pub("t", b"requeued"))
    first = consumer.message()[0]
    publisher.ok(wire.pub("t", b"held"))
    held = consumer.message()[0]
    begun = time.monotonic()
    consumer.send(b"REQ %b 1000\n" % first)
    publisher.ok(wire.dpub("t", 1000, b"deferred"))
    (tmp_path / "next").write_text(str(step_s))
    (tmp_path / "next").rename(clock)
    ids = {first, held}
    for i in range(50):
        publisher.ok(wire.pub("t", b"%d" % i))
        message_id, attempts, body = consumer.message()
        assert (attempts, body) == (1, b"%d" % i)
        ids.add(message_id)
        consumer.send(b"FIN %b\n" % message_id)
    assert len(ids) == 52
    if time.monotonic() - begun < 0.9:  # a machine that took longer proves nothing about early ones
        assert consumer.is_silent(0.9 - (time.monotonic() - begun))
    assert sorted(consumer.message()[1:] for _ in range(2)) == [(1, b"deferred"), (2, b"requeued")]
    assert time.monotonic() - begun > 0.95
    assert consumer.message() == (held, 2, b"held")
    stats = json.loads(broker.request("GET", "/stats?format=json&include_histograms=true").text)
    [topic] = stats["topics"]
    assert topic["oldest_unfinished_age_ns"] >= 0
    assert topic["channels"][0]["deferred_count"] == 0
    assert broker.terminate() == 0
    again = start_broker(data_path=broker.data_path)
    consumer = connect(again)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 10\n")
    assert sorted(body for _, _, body in (consumer.message() for _ in range(3))) == [b"deferred", b"held", b"requeued"]


def test_a_message_in_flight_costs_no_memory_for_emptied_messages_behind_it(node: Node) -> None:
    """Half a million messages behind it are emptied: it alone is remembered, and its timeout does not change."""
    got = node.consumer("t", "c")
    topic = node.broker.topic("t")
    topic.publish([b"first"])
    node.pass_until(START_S)
    topic.pause()
    for _ in range(5):
        topic.publish([b"dropped"] * 100_000)
    topic.empty()
    topic.unpause()
    node.pass_until(START_S + 1)
    topic.publish([b"second"])
    node.pass_until(START_S + 1)
    window = topic.channel("c").in_flight.window
    assert window.head - window.floor < 70_000
    node.pass_until(START_S + MSG_TIMEOUT_S)
    assert [(attempts, body) for _, attempts, body in got] == [(1, b"first"), (1, b"second"), (2, b"first")]
    assert [at for at, _, _ in got] == pytest.approx([START_S, START_S + 1, START_S + MSG_TIMEOUT_S])


def test_no_timer_fires_before_its_time() -> None:
    """The event loop rounds to milliseconds. A timer that fires early is scheduled again and again, and the loop
    spins."""
    loop = uvloop.new_event_loop()
    try:
        start = loop.time()
        times = [start + 0.02 + at * 0.00013 for at in range(40)] + [start + at / 1000 for at in range(20, 40)]
        early: list[float] = []
        left = len(times)

        def fired(when: float) -> None:
            nonlocal left
            left -= 1
            if loop.time() < when:
                early.append(when - loop.time())
            if not left:
                loop.stop()

        for when in times:
            never_early(loop.call_at)(when, partial(fired, when))
        loop.run_forever()
    finally:
        loop.close()
    assert not early
