"""``/stats`` as text, in nsqd's layout, because scripts extract columns from it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from brokerd.latency import LatencyStats
from brokerd.stats import ClientStats, Stats, TopicStats
from nsqwire.durations import format_duration
from nsqwire.units import Seconds


def stats_text(stats: Stats, *, product: str, now: Seconds, uptime_ns: int) -> str:
    """Return ``stats`` as text. ``now`` is in Unix seconds; ``product`` is the first line."""
    return "".join(_text_parts(stats, product=product, now=now, uptime_ns=uptime_ns))


def _text_parts(stats: Stats, *, product: str, now: Seconds, uptime_ns: int) -> Iterable[str]:
    start_time = time.localtime(stats["start_time"])
    yield f"{product}\nstart_time {_rfc3339(start_time)}\nuptime {format_duration(uptime_ns)}\n"
    yield f"\nHealth: {stats['health']}\n"
    if "memory" in stats:
        yield "\nMemory:\n"
        for key, value in stats["memory"].items():
            yield f"   {key:<25}\t{value}\n"
    if stats["topics"]:
        yield "\nTopics:"
        for topic in stats["topics"]:
            yield from _topic_lines(topic, now)
    else:
        yield "\nTopics: None\n"
    if stats["producers"]:
        yield "\nProducers:\n"
        for client in stats["producers"]:
            yield f"   {_client_line(client, now)}\n"
    else:
        yield "\nProducers: None\n"


def _topic_lines(topic: TopicStats, now: Seconds) -> Iterable[str]:
    yield (
        f"\n{'*P ' if topic['paused'] else '   '}[{topic['topic_name']:<15}] depth: {topic['depth']:<5} "
        f"be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8} "
        f"e2e%: {_latency_text(topic['e2e_processing_latency'])}\n"
    )
    for channel in topic["channels"]:
        yield (
            f"   {'*P ' if channel['paused'] else '   '}[{channel['channel_name']:<25}] depth: {channel['depth']:<5} "
            f"be-depth: {channel['backend_depth']:<5} inflt: {channel['in_flight_count']:<4} "
            f"def: {channel['deferred_count']:<4} re-q: {channel['requeue_count']:<5} "
            f"timeout: {channel['timeout_count']:<5} msgs: {channel['message_count']:<8} "
            f"e2e%: {_latency_text(channel['e2e_processing_latency'])}\n"
        )
        for client in channel["clients"] or ():
            yield f"        {_client_line(client, now)}\n"


def _client_line(client: ClientStats, now: Seconds) -> str:
    """A connection as a producer if it has published, else as a consumer."""
    _host, _colon, port = client["remote_address"].rpartition(":")
    name = f"{client['hostname']}:{port if _colon else ''} {client['user_agent']}"
    connected = format_duration(max(0, int(now - client["connect_ts"])) * 1_000_000_000)
    if pub_counts := client.get("pub_counts"):
        total = sum(each["count"] for each in pub_counts)
        topics = ",".join(f"{each['topic']}={each['count']}" for each in pub_counts)
        return f"[V2 {name:<21}] msgs: {total:<8} topics: {topics} connected: {connected}"
    return (
        f"[V2 {name:<21}] state: {client['state']} inflt: {client['in_flight_count']:<4} "
        f"rdy: {client['ready_count']:<4} fin: {client['finish_count']:<8} re-q: {client['requeue_count']:<8} "
        f"msgs: {client['message_count']:<8} connected: {connected}"
    )


def _latency_text(latency: LatencyStats) -> str:
    return ", ".join(_latency_value(each["value"]) for each in latency["percentiles"] or ())


def _latency_value(value_ns: float) -> str:
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if value_ns > limit:
            return f"{value_ns / limit:.1f}{unit}"
    return f"{value_ns:.1f}ns"


def _rfc3339(moment: time.struct_time) -> str:
    offset = moment.tm_gmtoff // 60
    zone = "Z" if not offset else f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
    return time.strftime("%Y-%m-%dT%H:%M:%S", moment) + zone
