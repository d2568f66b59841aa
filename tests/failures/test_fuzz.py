"""Whatever is sent to a port, the process goes on, and a bystander is served.

``FUZZ_SECONDS`` is the time for each port, ``FUZZ_SEED`` the seed. ``python -m tests.failures.fuzz`` runs longer.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.failures.fuzz import BATCH, fuzz
from tests.failures.grammar import TARGETS
from tests.failures.tally import record

SECONDS = float(os.environ.get("FUZZ_SECONDS", "6"))
SEED = int(os.environ.get("FUZZ_SEED") or secrets.randbelow(10**9))

pytestmark = pytest.mark.timeout(240 + 2 * SECONDS)


@pytest.mark.parametrize("target", TARGETS)
def test_whatever_is_sent_the_process_goes_on_and_a_bystander_is_served(target: str, tmp_path: Path) -> None:
    """No traceback, no end, bounded memory; every message of the bystander arrives once, every question is answered."""
    done = fuzz(target, SECONDS, SEED, tmp_path)
    record(
        f"fuzz: {target.replace('_', ' ')}",
        tries=done.conversations,
        lost=done.asked - done.answered - done.unexpected,
        unexpected=done.unexpected + len(done.failures),
        seed=SEED,
    )
    assert not done.failures, "\n".join([f"FUZZ_SEED={SEED}", *done.failures])
    assert done.conversations >= BATCH
    assert (done.answered, done.unexpected) == (done.asked, 0), f"FUZZ_SEED={SEED}"
    assert done.asked > 0
