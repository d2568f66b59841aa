"""Whatever is sent to the platform's API, it answers as its OpenAPI document says, and a bystander is served.

``FUZZ_SECONDS`` is the time, ``FUZZ_SEED`` the seed. ``python -m tests.failures.fuzz`` runs longer.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.failures.fuzz_platform import fuzz_platform
from tests.failures.tally import record
from tests.harness.process import ROOT

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
"""With 0, each operation gets a few requests."""
SEED = int(os.environ.get("FUZZ_SEED") or secrets.randbelow(10**9))

pytestmark = pytest.mark.timeout(600 + 2 * SECONDS)


def operation_count(home: Path) -> int:
    """Return the number of operations in the platform's OpenAPI document, which is exported without a fuzzer."""
    command = [sys.executable, "manage.py", "export_openapi_schema", "--api", "nsqplatform.console.api.api"]
    environment = {**os.environ, "NSQ_HOME": str(home)}
    exported = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    return sum(len(methods) for methods in json.loads(exported.stdout)["paths"].values())


def test_whatever_is_sent_every_operation_answers_as_documented_and_a_bystander_is_served(tmp_path: Path) -> None:
    """No server error, no answer unlike its schema, no error without a message; afterwards, every list is readable."""
    done = fuzz_platform(SECONDS, SEED)
    record(
        "fuzz: platform, HTTP",
        tries=done.conversations,
        lost=done.asked - done.answered - done.unexpected,
        unexpected=done.unexpected + len(done.failures),
        seed=SEED,
    )
    assert not done.failures, "\n".join([f"FUZZ_SEED={SEED}", *done.failures])
    assert done.conversations >= 2 * operation_count(tmp_path)
    assert (done.answered, done.unexpected) == (done.asked, 0), f"FUZZ_SEED={SEED}"
    assert done.asked > 0
