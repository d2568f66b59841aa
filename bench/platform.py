"""The rows for the platform on a large cluster: the duration of a poll, and the age of figures in browsers."""

from __future__ import annotations

import http.client
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from statistics import quantiles

import psutil
from prometheus_client.parser import text_string_to_metric_families

from bench.admin import ask_often
from bench.errors import BenchError
from bench.family import descendants, family_seconds
from bench.load import Load
from bench.measure import Options, Row, ask
from bench.processes import LoadProcesses
from bench.server import Address, Server, nsqadmin
from bench.simulated import topic_name
from bench.watchers import Seen, watch

NODES, CHANNELS, CLIENTS = 20, 5, 50_000
BROWSERS = 200
READY_SECONDS = 90.0
SETTLING_SECONDS = 5.0
"""Waiting time for the whole snapshots sent to all browsers at the start, which are not part of a poll's cost."""
SETTLED_POLLS = 12
MIN_SECONDS = 15.0
FEWER_BROWSERS_SECONDS = 4.0
"""Shortest duration of a run with fewer browsers, which only shows that everything works."""
SIGN_IN = re.compile(r"sign in, once, as \S+: http://[^/]+(\S+)")
POLL_METRIC = "nsq_collector_poll_seconds"


def platform(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure ``nsqadmin`` (Redis, collector, one web process) on a simulated cluster with 200 browsers.

    First most browsers show the page of one topic each; then all show a page of everything.
    """
    size = {"nodes": NODES, "topics": options.topics, "channels": CHANNELS, "clients": CLIENTS}
    with settled_platform(size, SETTLED_POLLS) as (server, cluster, cookie):
        browsers = min(BROWSERS, options.connections)
        pages = [topic_name(number % options.topics) for number in range(browsers)]
        mixed = [None if number % 10 == 0 else page for number, page in enumerate(pages)]
        yield from measured(options, processes, server, cluster, cookie, "browsers on pages", mixed)
        yield from measured(options, processes, server, cluster, cookie, "browsers on everything", [None] * browsers)


@contextmanager
def settled_platform(size: Mapping[str, int], polls: int) -> Iterator[tuple[Server, Server, str]]:
    """Run ``nsqadmin`` on a simulated cluster, and wait until it has polled it ``polls`` times.

    ``size``: the numbers of ``nodes``, ``topics``, ``channels`` of each topic, and ``clients``. Yields the two servers,
    and the cookie of a signed-in user.
    """
    flags = (f"--{name}={value}" for name, value in size.items())
    cluster = Server(["-m", "bench.simulated", *flags], ["HTTP"], own_session=True)
    try:
        host, port = cluster.http
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as home,
            nsqadmin(home, f"--lookupd-http-address={host}:{port}") as server,
        ):
            cookie = sign_in(server)
            wait_for_polls(server.http, size["topics"], polls)
            yield server, cluster, cookie
    finally:
        cluster.kill()


def measured(
    options: Options,
    processes: LoadProcesses,
    server: Server,
    cluster: Server,
    cookie: str,
    name: str,
    topics: list[str | None],
) -> Iterator[Row]:
    seconds = max(options.seconds, MIN_SECONDS if len(topics) == BROWSERS else FEWER_BROWSERS_SECONDS)
    watching: Future[tuple[Seen, float]] = processes.start(watch, server.http, cookie, topics, seconds)
    wait_for_clients(server.http, len(topics), watching)
    before, busy = figures(server.http), Processor(server, cluster)
    asking: Future[Load] = processes.start(ask_sometimes, server.http, "/api/topics", seconds)
    load = asking.result()
    spent, after = busy.spent(), figures(server.http)
    count, total = (after[f"{POLL_METRIC}_{kind}"] - before[f"{POLL_METRIC}_{kind}"] for kind in ("count", "sum"))
    seen, generator = watching.result()
    if seen.closed or not seen.ages_ms:
        raise BenchError(f"{seen.closed} websockets were closed; {len(seen.ages_ms)} figures with a stamp arrived")
    intervals = [late - early for early, late in zip(seen.taken_at_ms, seen.taken_at_ms[1:], strict=False)]
    ages = quantiles(seen.ages_ms, n=100, method="inclusive")
    yield Row(
        name=f"platform, {name}",
        what=f"{NODES} nodes, {options.topics:,} topics × {CHANNELS} channels, {CLIENTS:,} clients, "
        f"{len(topics)} browsers",
        twin=options.twin,
        size=0,
        messages=seen.deltas,
        seconds=seconds,
        broker_us=spent["web"][0] / max(1, seen.deltas) * 1e6,
        broker_busy=spent["collector"][0] / load.seconds,
        load_busy=(generator + spent["cluster"][0]) / seconds,
        p50_us=load.p50_us,
        p99_us=load.p99_us,
        also={
            "figure to browser p50 ms": ages[49],
            "figure to browser p99 ms": ages[98],
            "figure to browser max ms": max(seen.ages_ms),
            "a poll takes ms": total / count * 1000,
            "polls/s": count / load.seconds,
            "between snapshots p50 ms": sorted(intervals)[len(intervals) // 2],
            "between snapshots max ms": max(intervals),
            "deltas missed": seen.missed,
            "whole snapshots sent again": seen.snapshots,
            "kB/s to a browser": seen.nbytes / len(topics) / seconds / 1000,
            **{
                f"{part} {what}": value
                for part, (processor, mebibytes) in spent.items()
                for what, value in (("busy %", processor / load.seconds * 100), ("MiB", mebibytes))
            },
        },
    )


def ask_sometimes(address: Address, path: str, seconds: float) -> Load:
    """GET ten times a second. Raises BenchError for a response that is not 200."""
    return ask_often(address, path, seconds, pause_s=0.1)


class Processor:
    """Processor time from now on, and memory, of the platform's processes and the simulated cluster."""

    def __init__(self, server: Server, cluster: Server) -> None:
        found = {"cluster": psutil.Process(cluster.pid)}
        for child, each in descendants(server.pid):
            words = " ".join(each)
            for part in ("collector", "web", "redis"):
                if f"console.nsq {part}" in words or (part == "redis" and "redis-server" in words):
                    found[part] = child
        if missing := {"collector", "web", "redis"} - set(found):
            raise BenchError(f"nsqadmin runs no {', '.join(sorted(missing))}")
        self._processes = found
        self._before = {part: family_seconds(process.pid) for part, process in found.items()}

    def spent(self) -> dict[str, tuple[float, float]]:
        """Return processor seconds and resident MiB of each."""
        return {
            part: (family_seconds(process.pid) - self._before[part], process.memory_info().rss / (1 << 20))
            for part, process in self._processes.items()
        }


def sign_in(server: Server) -> str:
    """Sign in with the link that nsqadmin prints at its first start, and return the session's cookie."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        for line in list(server.output_tail):
            if found := SIGN_IN.search(line):
                return use_link(server.http, found[1])
        time.sleep(0.1)
    raise BenchError("nsqadmin printed no link to sign in with")


def use_link(address: Address, path: str) -> str:
    """Open the link's page and press its button, as a browser does."""
    connection = http.client.HTTPConnection(*address, timeout=30)
    connection.request("GET", path)
    page = connection.getresponse()
    token = re.search(rb'name="csrfmiddlewaretoken" value="([^"]+)"', page.read())
    csrf = re.search(r"csrftoken=[^;]+", page.headers.get("Set-Cookie") or "")
    if token and csrf:
        headers = {"Cookie": csrf[0], "Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", path, b"csrfmiddlewaretoken=" + token[1], headers)
        answer = connection.getresponse()
        session = re.search(r"sessionid=[^;]+", "; ".join(answer.headers.get_all("Set-Cookie") or []))
        if session:
            return session[0]
    raise BenchError(f"the link {path} did not sign in")


def figures(address: Address) -> dict[str, float]:
    """Return the samples of ``/metrics`` by name and, for buckets, bound."""
    text = ask(address, "GET", "/metrics").decode()
    return {
        sample.name + (f" {sample.labels['le']}" if "le" in sample.labels else ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def wait_for_polls(address: Address, topics: int, polls: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        found = figures(address)
        if found.get("nsq_collector_topics") == topics and found["nsq_collector_poll_seconds_count"] >= polls:
            return
        time.sleep(0.5)
    raise BenchError(f"the collector did not poll {polls} times within {READY_SECONDS:.0f} s")


def wait_for_clients(address: Address, count: int, watching: Future[tuple[Seen, float]]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while figures(address)["nsq_web_websocket_clients"] < count:
        if watching.done():
            watching.result()
        if time.monotonic() > deadline:
            raise BenchError(f"{count} websockets were not open within {READY_SECONDS:.0f} s")
        time.sleep(0.2)
    time.sleep(SETTLING_SECONDS)
