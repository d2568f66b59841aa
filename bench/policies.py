"""The rows with a policy: what it costs to publish, deliver and finish beside a broker that has none."""

from __future__ import annotations

import json
import statistics
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench import load, wire
from bench.load import Load
from bench.measure import TOPIC, Measured, Options, Row, alternating, create_work, measure, middle
from bench.processes import LoadProcesses
from bench.server import Server, brokerd
from bench.throughput import PIPELINED, busy_pair, trial

FAR = 10**12
"""A bound that is never reached."""
POLICIES: dict[str, dict[str, object]] = {
    "none": {},
    "max_attempts": {"max_attempts": 5, "retry_delay": "1s..5m"},
    "msg_ttl": {"msg_ttl": "1h"},
    "drop-oldest": {"max_depth": FAR, "max_bytes": FAR, "overflow": "drop-oldest"},
    "reject": {"max_depth": FAR, "max_bytes": FAR, "overflow": "reject"},
    "sample_lives 1000": {"sample_lives": 1000},
    "sample_lives 1": {"sample_lives": 1},
}


def policies(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure PUBs, then a producer and a consumer of batches, with each policy.

    ``cost_ratio`` is the broker's processor time per message relative to the row without a policy in the same round.
    """
    burst = wire.pub(TOPIC, options.body) * PIPELINED

    def publishing(values: dict[str, object], short: Options) -> Measured:
        with brokerd(options.cores, options.data_path, twin=options.twin) as server:
            create_work(server)
            set_policy(server, values)

            def run() -> Load:
                return processes.run(load.publish_in_bursts, server.tcp, burst, PIPELINED, short.seconds)

            return measure(server, run)

    def flowing(values: dict[str, object], short: Options) -> Measured:
        with brokerd(options.cores, options.data_path, twin=options.twin) as server:
            create_work(server)
            set_policy(server, values)
            return busy_pair(options, processes, server, messages)

    messages = trial(replace(options, seconds=options.seconds / options.rounds), processes)
    works = {f"PUB, {PIPELINED} unanswered": publishing, f"MPUB {options.batch}, one producer, one consumer": flowing}
    for what, work in works.items():
        rounds = alternating(options, *(partial(work, values) for values in POLICIES.values()))
        for name, measured in zip(POLICIES, rounds, strict=True):
            pairs = zip(measured, rounds[0], strict=True)
            ratio = statistics.median(each.us_per_message / without.us_per_message for each, without in pairs)
            yield middle(measured).row(f"policy {name}", what, options, cost_ratio=ratio)


def set_policy(server: Server, values: dict[str, object]) -> None:
    """Set the policy of all channels, unless it is empty."""
    if values:
        host, port = server.http
        url = f"http://{host}:{port}/policy?pattern=*"
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(values).encode(), method="POST")):
            pass
