"""Very many connections. ``CROWD`` is their number, ``python -m tests.failures.crowd`` prints more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.failures.crowd import crowd
from tests.failures.tally import record

CONSUMERS = int(os.environ.get("CROWD", "500"))

pytestmark = pytest.mark.timeout(240 + CONSUMERS / 20)


def test_every_consumer_of_a_crowd_receives_a_message_and_a_bystander_is_served(tmp_path: Path) -> None:
    """All can subscribe to one channel; each receives one message, finishes it and stays connected."""
    done = crowd(CONSUMERS, tmp_path)
    record(
        f"connections: {CONSUMERS:,} consumers",
        tries=CONSUMERS,
        lost=CONSUMERS - done.received,
        unexpected=done.unexpected + len(done.failures),
    )
    assert not done.failures, "\n".join(done.failures)
    assert (done.received, done.unexpected) == (CONSUMERS, 0)
    assert done.turns_s
