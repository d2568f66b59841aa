"""nsq_to_file killed with kill -9 repeatedly while it archives.

    NSQ_KILLS=50 python -m pytest tests/aionsq/tools/test_to_file_killed.py

kills fifty times instead of eight.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import subprocess
from pathlib import Path

import pytest

from aionsq import Producer
from tests.harness.waiting import until

KILLS = int(os.environ.get("NSQ_KILLS", "8"))
ROUND_MESSAGES = 1000
PATIENCE_S = 120


def body(number: int) -> bytes:
    """A line with its number at both ends, which shows truncation; lengths vary."""
    return b"<%d:" % number + b"x" * (number * 7919 % 3000) + b":%d>" % number


def archived(folder: Path) -> list[bytes]:
    """All lines of all files; each file must be readable to its end."""
    data = b""
    for path in sorted(folder.rglob("t*")):
        if path.is_file() and path.suffix == ".gz":
            data += gzip.decompress(path.read_bytes())
            subprocess.run(["gzip", "-t", path], check=True)
        elif path.is_file():
            data += path.read_bytes()
    assert not data or data.endswith(b"\n")
    return data.splitlines()


async def is_through(broker, channel_of) -> bool:
    """Whether a consumer is connected and the channel is empty."""
    channel = await channel_of(broker, "t", "nsq_to_file")
    left = channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]
    return channel["client_count"] == 1 and left == 0


@pytest.mark.timeout(170 + 10 * KILLS)
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="plain"),
        pytest.param(("--gzip", "--rotate-size=200000"), id="gzip"),
        pytest.param(("--work-dir={work}", "--gzip"), id="gzip in a work folder"),
    ],
)
async def test_killed_at_any_moment_it_loses_nothing_and_truncates_no_line(
    broker, start_tool, tmp_path, channel_of, flags
):
    """After the last run, every published message is in the files, and every line is complete."""
    out, work = tmp_path / "out", tmp_path / "work"
    chosen = [flag.format(work=work) for flag in flags]
    dice = random.Random(20261120)
    published = 0

    async def start():
        return await start_tool(
            *("nsq_to_file", "--topic=t", f"--nsqd-tcp-address={broker.tcp_address}", f"--output-dir={out}"),
            *("--max-in-flight=100", "--sync-interval=50ms", "--log-level=warn", *chosen),
            stderr=asyncio.subprocess.DEVNULL,
        )

    def bytes_written() -> int:
        return sum(path.stat().st_size for folder in (out, work) for path in folder.rglob("t*") if path.is_file())

    async with Producer(broker.tcp_address) as producer:
        for _ in range(KILLS):
            tool = await start()
            before = bytes_written()
            await producer.mpub("t", [body(number) for number in range(published, published + ROUND_MESSAGES)])
            published += ROUND_MESSAGES
            # killed while it writes, not before
            await until(lambda: bytes_written() > before, "the tool writes", within_s=PATIENCE_S)  # noqa: B023
            await asyncio.sleep(dice.uniform(0, 0.03))
            tool.process.kill()
            await tool.process.wait()
    tool = await start()
    await until(lambda: is_through(broker, channel_of), "every message is archived", within_s=PATIENCE_S)
    tool.process.terminate()
    assert (await tool.end()).status == 0
    lines = archived(out)
    wanted = {body(number) for number in range(published)}
    assert set(lines) == wanted
    assert not work.exists() or not [path for path in work.rglob("*") if path.is_file()]
