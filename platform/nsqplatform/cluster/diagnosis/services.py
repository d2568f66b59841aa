"""The figures of a diagnosis: from the snapshot, the last hour, the audit trail and the channel's clients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from asgiref.sync import async_to_sync

from nsqcluster import ChannelStats, NotInCluster
from nsqcluster.reads import stats
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.cluster import node_client, selectors, store
from nsqplatform.cluster.diagnosis.sentence import ChannelFigures, Diagnosis, Pause, diagnose
from nsqplatform.cluster.history import records
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.cluster.snapshots.table import Row, Table
from nsqwire.units import Seconds, WholeSeconds

MEAN_OF_S = 60
"""Time over which rates are averaged."""
LONGEST_GAP_S = 3 * records.STEP_S
"""During a longer gap between records, it is unknown whether there were consumers."""
CLIENTS_WITHIN_S = 1.0
RATES = ("publish_rate", "finish_rate", "requeue_rate", "timeout_rate")


class Absence(NamedTuple):
    """The time without a consumer; ``is_longer``: it may be longer, because earlier records are missing."""

    seconds: float
    is_longer: bool


def diagnosis_of(topic: str, channel: str, zone: tzinfo) -> Diagnosis:
    """Raises NotInCluster if the snapshot does not have the channel."""
    snapshot = selectors.snapshot()
    row = None if snapshot is None else _row(snapshot.channels, f"{topic}/{channel}")
    if snapshot is None or row is None:
        raise NotInCluster(f"no node of the cluster has channel {channel} of topic {topic}")
    return diagnose(_figures(snapshot, row, topic, channel), zone)


def _figures(snapshot: Snapshot, row: Row, topic: str, channel: str) -> ChannelFigures:
    now = time.time()
    times, metrics = _hour(topic, channel, int(now))
    whole = _row(snapshot.topics, topic)
    nodes = [share["node"] for share in row["nodes"]]
    down = {node["id"] for node in snapshot.nodes.rows if node["state"] == "down"}
    absence = without_consumer(times, metrics["clients"], now)
    rates = {name: mean_of_last(times, metrics[name], now) for name in RATES}
    return ChannelFigures(
        now=datetime.fromtimestamp(now, UTC),
        depth=row["depth"],
        in_flight_count=row["in_flight_count"],
        deferred_count=row["deferred_count"],
        client_count=row["client_count"],
        **{name: row[name] if mean is None else mean for name, mean in rates.items()},
        ready_count=_ready_count(topic, channel, [node for node in nodes if node not in down]),
        pause=_pause(topic, channel) if row["paused"] else None,
        topic_pause=_pause(topic, None) if whole and whole["paused"] else None,
        topic_depth=whole["depth"] if whole else 0,
        paused_nodes=sum(share["paused"] for share in row["nodes"]),
        nodes=len(nodes),
        no_consumer_s=absence and absence.seconds,
        no_consumer_before=absence is not None and absence.is_longer,
        down=tuple(sorted(down.intersection(nodes))),
    )


def _row(table: Table, key: str) -> Row | None:
    place = table.places.get(key)
    return None if place is None else table.row(place)


def _hour(topic: str, channel: str, now: WholeSeconds) -> tuple[list[int], dict[str, list[float | None]]]:
    with store.connect() as redis:
        ring = redis.get(records.key_of("channel", f"{topic}/{channel}"))
    assert ring is None or isinstance(ring, bytes)
    return records.read("channel", ring or b"", now)


def mean_of_last(times: Sequence[int], values: Sequence[float | None], now: Seconds) -> float | None:
    """The mean of the known values of the last MEAN_OF_S; None if there are none."""
    known = [value for at, value in zip(times, values, strict=True) if value is not None and at > now - MEAN_OF_S]
    return sum(known) / len(known) if known else None


def without_consumer(times: Sequence[int], clients: Sequence[float | None], now: Seconds) -> Absence | None:
    """The time without a consumer, up to the newest record; None if that has a consumer, or is too old."""
    since, is_longer = None, True
    for at, count in zip(reversed(times), reversed(clients), strict=True):
        if count is None or (now if since is None else since) - at > LONGEST_GAP_S:
            break
        if count > 0:
            is_longer = False
            break
        since = at
    return None if since is None else Absence(now - since, is_longer)


def _pause(topic: str, channel: str | None) -> Pause:
    """The last pause in the audit trail, unless a later action ended it. nsqadmin and scripts also pause
    channels, directly at the nodes."""
    entries = AuditEntry.objects.filter(topic=topic, outcome__in=("done", "partial"))
    entries = entries.filter(action__in=("pause", "unpause", "delete", "create"))
    entries = entries.filter(channel=channel) if channel is not None else entries.filter(channel__isnull=True)
    last = entries.first()
    return Pause(since=last.at, by=last.user) if last is not None and last.action == "pause" else Pause()


def _ready_count(topic: str, channel: str, nodes: Sequence[str]) -> int | None:
    """The sum of the clients' RDY counts. None unless each of these nodes answers."""
    addresses = selectors.addresses()
    known = {node: addresses[node] for node in nodes if node in addresses}
    answers = async_to_sync(_clients)(known, topic, channel)
    if answers is None or len(known) < len(nodes):
        return None
    return sum(client.ready_count for channel in answers for client in channel.clients)


async def _clients(addresses: dict[str, str], topic: str, channel: str) -> list[ChannelStats] | None:
    async with node_client.client(timeout_s=CLIENTS_WITHIN_S) as client:
        answers = await stats(client, addresses, topic=topic, channel=channel, include_clients=True)
    if answers.failures:
        return None
    return [found for answer in answers.found.values() if (found := answer.channel(topic, channel)) is not None]
