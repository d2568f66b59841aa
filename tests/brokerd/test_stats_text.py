"""The text form of /stats, compared with nsqd's layout."""

from __future__ import annotations

from brokerd.memory import CollectorPauses, memory_stats
from brokerd.stats import ClientStats, Stats
from brokerd.stats_text import stats_text

STARTED = 1_795_184_228


def client(**figures: object) -> ClientStats:
    """A connection's row: idle except for ``figures``."""
    quiet: dict[str, object] = {
        "client_id": "hostx",
        "hostname": "hostx",
        "version": "V2",
        "remote_address": "127.0.0.1:57574",
        "state": 3,
        "ready_count": 0,
        "in_flight_count": 0,
        "message_count": 0,
        "finish_count": 0,
        "requeue_count": 0,
        "connect_ts": STARTED,
        "sample_rate": 0,
        "user_agent": "",
    }
    return {**quiet, **figures}  # type: ignore[typeddict-item]


def render(stats: Stats) -> str:
    return stats_text(stats, product="nsqd v1.3.0 (built w/python3.11.7)", now=STARTED + 1.9, uptime_ns=1_007_966_954)


def test_a_broker_in_use_reads_as_nsqd_prints_it():
    """Columns, prefixes of paused topics and channels, and blank lines are as scripts that read nsqd's text expect
    them."""
    percentiles = [{"quantile": q, "value": 748_512_795.0} for q in (0.99, 0.95, 0.5)]
    consumer = client(
        user_agent="ua/1.0", ready_count=5, in_flight_count=1, finish_count=1, requeue_count=1, message_count=3
    )
    producer = client(
        hostname="prod",
        remote_address="127.0.0.1:57590",
        user_agent="pp/2",
        pub_counts=[{"topic": "orders", "count": 4}],
    )
    stats: Stats = {
        "version": "1.3.0",
        "health": "OK",
        "start_time": STARTED,
        "topics": [
            {
                "topic_name": "orders",
                "channels": [
                    {
                        "channel_name": "archive",
                        "depth": 0,
                        "backend_depth": 0,
                        "in_flight_count": 1,
                        "deferred_count": 2,
                        "message_count": 4,
                        "requeue_count": 1,
                        "timeout_count": 0,
                        "client_count": 1,
                        "clients": [consumer],
                        "paused": False,
                        "e2e_processing_latency": {"count": 4, "percentiles": percentiles},
                    }
                ],
                "depth": 0,
                "backend_depth": 0,
                "message_count": 4,
                "message_bytes": 20,
                "paused": False,
                "e2e_processing_latency": {"count": 4, "percentiles": percentiles},
            },
            {
                "topic_name": "paused_t",
                "channels": [
                    {
                        "channel_name": "pc",
                        "depth": 0,
                        "backend_depth": 0,
                        "in_flight_count": 0,
                        "deferred_count": 0,
                        "message_count": 0,
                        "requeue_count": 0,
                        "timeout_count": 0,
                        "client_count": 0,
                        "clients": [],
                        "paused": True,
                        "e2e_processing_latency": {"count": 0, "percentiles": None},
                    }
                ],
                "depth": 0,
                "backend_depth": 0,
                "message_count": 0,
                "message_bytes": 0,
                "paused": True,
                "e2e_processing_latency": {"count": 0, "percentiles": None},
            },
        ],
        "producers": [producer],
    }
    body = render(stats).split("\n\nHealth: OK\n", 1)[1]
    assert body == (
        "\nTopics:\n"
        "   [orders         ] depth: 0     be-depth: 0     msgs: 4        e2e%: 748.5ms, 748.5ms, 748.5ms\n"
        "      [archive                  ] depth: 0     be-depth: 0     inflt: 1    def: 2    re-q: 1     timeout: 0"
        "     msgs: 4        e2e%: 748.5ms, 748.5ms, 748.5ms\n"
        "        [V2 hostx:57574 ua/1.0   ] state: 3 inflt: 1    rdy: 5    fin: 1        re-q: 1        msgs: 3"
        "        connected: 1s\n"
        "\n"
        "*P [paused_t       ] depth: 0     be-depth: 0     msgs: 0        e2e%: \n"
        "   *P [pc                       ] depth: 0     be-depth: 0     inflt: 0    def: 0    re-q: 0     timeout: 0"
        "     msgs: 0        e2e%: \n"
        "\n"
        "Producers:\n"
        "   [V2 prod:57590 pp/2      ] msgs: 4        topics: orders=4 connected: 1s\n"
    )


def test_an_idle_broker_says_none_instead_of_empty_lists():
    """Empty lists are named as such, and the head has product, start and uptime."""
    text = render(
        {"version": "1.3.0", "health": "NOK - no space", "start_time": STARTED, "topics": [], "producers": None}
    )
    product, start, uptime, *rest = text.split("\n")
    assert product == "nsqd v1.3.0 (built w/python3.11.7)"
    assert start.startswith("start_time 2026-11-2")
    assert uptime == "uptime 1.007966954s"
    assert "\n".join(rest) == "\nHealth: NOK - no space\n\nTopics: None\n\nProducers: None\n"


def test_memory_is_listed_under_nsqds_names():
    """Each of nsqd's nine keys has its line, padded to the column of values."""
    stats: Stats = {
        "version": "1.3.0",
        "health": "OK",
        "start_time": STARTED,
        "topics": [],
        "memory": memory_stats(CollectorPauses()),
        "producers": None,
    }
    lines = render(stats).split("\nMemory:\n")[1].split("\n\n")[0].splitlines()
    assert [line[:28].strip() for line in lines] == [
        "heap_objects",
        "heap_idle_bytes",
        "heap_in_use_bytes",
        "heap_released_bytes",
        "gc_pause_usec_100",
        "gc_pause_usec_99",
        "gc_pause_usec_95",
        "next_gc_bytes",
        "gc_total_runs",
    ]
    assert all(line[28] == "\t" and int(line[29:]) >= 0 for line in lines)
    assert int(lines[2].split()[1]) > 1_000_000


def test_a_client_on_a_unix_socket_is_named_without_a_port():
    """Its remote address is @, so the port is empty."""
    stats: Stats = {
        "version": "1.3.0",
        "health": "OK",
        "start_time": STARTED,
        "topics": [],
        "producers": [
            client(hostname="", remote_address="@", user_agent="ua", pub_counts=[{"topic": "t", "count": 1}])
        ],
    }
    assert "   [V2 : ua                 ] msgs: 1        topics: t=1 connected: 1s\n" in render(stats)
