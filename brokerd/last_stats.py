"""The last figures of a broker process, which the next process returns on request.

A process that ends on a signal writes ``last-stats.json`` after its last connection is closed: its ``/stats`` with
histograms and without clients. The next process renames the file to ``previous-stats.json`` and returns its contents,
so that a reader of counters gets the increase between its last poll and the end of the process. A killed process
leaves no such file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from brokerd.data_path import LAST_STATS, PREVIOUS_STATS, STATS_WRITING
from brokerd.file_header import JSON_MEMBER, STATS, WRITTEN
from brokerd.latency import RecentLatencies
from brokerd.stats import Stats, StatsQuery, health_of, topic_stats
from nsqwire.gojson import encode
from nsqwire.version import NSQ_VERSION

if TYPE_CHECKING:
    from brokerd.broker import Broker

_OPENING: Final = JSON_MEMBER + WRITTEN[STATS.kind].rstrip(b"\n") + b'",'

log = logging.getLogger("brokerd")


def write_last_stats(broker: Broker, data_path: Path) -> None:
    """Write the figures of the broker to a file. A failure is logged, and does not change the exit status."""
    query, latencies = StatsQuery(include_clients=False, include_histograms=True), RecentLatencies([])
    stats: Stats = {
        "version": NSQ_VERSION,
        "health": health_of(broker),
        "start_time": int(broker.start_time),
        "topics": [topic_stats(topic, query, latencies) for _, topic in sorted(broker.topics.items())],
        "producers": None,
        "node_id": broker.node_id,
        "boot_id": broker.boot_id,
        "uptime_ns": time.monotonic_ns() - broker.started_ns,
        "lost_message_count": broker.storage.lost_message_count,
    }
    aside = data_path / STATS_WRITING
    try:
        broker.storage.require_data_path()
        aside.write_bytes(_OPENING + encode(stats).removeprefix(b"{"))
        aside.replace(data_path / LAST_STATS)
    except OSError as error:
        log.warning("cannot keep the last figures: %s", error)
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def take_over(data_path: Path) -> None:
    """Rename the file of the process that ended last; if that process left none, remove the file of the one before."""
    try:
        if (data_path / LAST_STATS).exists():
            (data_path / LAST_STATS).replace(data_path / PREVIOUS_STATS)
        else:
            (data_path / PREVIOUS_STATS).unlink(missing_ok=True)
    except OSError as error:
        log.warning("cannot take over the last figures: %s", error)


def previous_stats(data_path: Path) -> bytes:
    """The previous process's figures as JSON, or ``null`` if there are none."""
    try:
        kept = (data_path / PREVIOUS_STATS).read_bytes()
        if kept.startswith(JSON_MEMBER):
            kept = b"{" + kept[len(_OPENING) :]
        json.loads(kept)
    except (OSError, ValueError, RecursionError):  # a crash of the machine may have left half a file
        return b"null"
    return kept
