"""The arbiter's record of a pair cannot be written while the lease is renewed: publishers wait, and the primary says
so."""

from __future__ import annotations

import asyncio
import signal
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.arbiters import arbiter_at
from tests.harness.pair import LONG_LEASE
from tests.harness.waiting import DEADLINE_S, wait_until

if TYPE_CHECKING:
    from tests.harness.etcd import EtcdServer
    from tests.mirror.conftest import StartPair

REASON = "MIRROR: publishes wait, as the arbiter has not recorded who is in sync: the arbiter's record"


def test_a_record_that_was_overwritten_is_named_and_publishes_go_on_once_it_is_restored(
    start_pair: StartPair, etcd_server: EtcdServer
) -> None:
    """The follower is lost meanwhile, so that publishes need a new record. ``/ping`` says it."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    pair.wait_until_in_sync()
    [arbiter] = [flag.removeprefix("--arbiter=") for flag in primary.command if flag.startswith("--arbiter=")]
    record = asyncio.run(arbiter_at(arbiter, timeout_s=DEADLINE_S, access=ArbiterAccess()).read()).record
    assert record is not None
    key = b64encode(f"/nsq/{arbiter.rpartition('/')[2]}/record".encode()).decode()
    etcd_server.post("/v3/kv/put", key=key, value=b64encode(b"garbage").decode())
    pair.other(primary).end(signal.SIGKILL)
    with ThreadPoolExecutor(1) as publisher:
        published = publisher.submit(primary.post, "/pub", b"x", topic="t")
        wait_until(lambda: primary.request("GET", "/ping").text == "OK - under_replicated", "it says so")
        primary.wait_for_log(REASON)
        assert not published.done()
        etcd_server.post("/v3/kv/put", key=key, value=b64encode(record.to_bytes()).decode())
        assert published.result(DEADLINE_S) == "OK"
    assert sum(REASON in line for line in primary.log) == 1
