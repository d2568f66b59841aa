"""kill -9 at random moments: acknowledged messages are kept, finished messages stay finished."""

from __future__ import annotations

import asyncio
import random
import struct
import subprocess
import sys
from pathlib import Path

from bench import wire
from bench.kill9 import MARKER, MARKER_ANSWER, Consumer, kill_repeatedly, until_lost
from bench.ledger import Ledger

ROUNDS = 10


async def test_ten_kills_over_one_data_path_keep_the_guarantees(tmp_path: Path) -> None:
    """PUB, MPUB and DPUB producers, and consumers that FIN, REQ or do not answer; then all messages are consumed."""
    outcome = await kill_repeatedly(tmp_path, ROUNDS, seed=20, publishes=1000)
    ledger = outcome.ledger
    assert ledger.violations == [], f"{len(ledger.violations)} violations"
    assert len(ledger.killed_ns) == ROUNDS
    assert ledger.acknowledged_count > ROUNDS * 100
    for what in ("finishes", "requeues", "redeliveries", "deferred deliveries"):
        assert ledger.counts[what] > ROUNDS, f"the rounds hardly tested {what}: {ledger.counts}"


async def test_a_broker_ended_by_sigterm_under_load_keeps_the_guarantees(tmp_path: Path) -> None:
    """It ends with status 0 each time, whatever its clients are doing."""
    outcome = await kill_repeatedly(tmp_path, 3, seed=21, publishes=1000, gently=True)
    assert outcome.ledger.violations == [], f"{len(outcome.ledger.violations)} violations"
    assert outcome.ledger.counts["redeliveries"] > 0


def test_the_pure_python_kernel_keeps_the_same_guarantees(tmp_path: Path) -> None:
    """Three rounds through the script, which prints what it tested."""
    command = [sys.executable, "-m", "bench.kill9", "--rounds=3", "--twin", f"--data-path={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 violations" in done.stdout
    assert list(tmp_path.iterdir()) == []


async def test_one_of_two_finishes_of_a_timed_out_message_may_be_refused() -> None:
    """A consumer that stalls for longer than the message timeout receives the message twice, and it is not lost."""
    ledger = Ledger(("work",))
    body = ledger.publish("orders")
    ledger.acknowledged([body])
    message_id = b"0123456789abcdef"

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for attempts in (1, 2):
            data = struct.pack(">qH", 0, attempts) + message_id + body
            writer.write(struct.pack(">ii", 4 + len(data), wire.MESSAGE) + data)
        for _ in range(2):
            await reader.readuntil(b"FIN %b\n" % message_id)
        for error in (b"E_FIN_FAILED FIN %b failed" % message_id, MARKER_ANSWER):
            writer.write(struct.pack(">ii", 4 + len(error), wire.ERROR) + error)
        await reader.readuntil(MARKER)
        writer.close()

    async with await asyncio.start_server(broker, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        await until_lost(Consumer(ledger, "orders", "work", random.Random(1), disruptive=False).run(address))
    ledger.close()
    assert ledger.violations == []
