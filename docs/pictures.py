"""Takes the pictures in docs/images: a platform of its own with the demo's traffic, and Chromium in front of it.

make pictures                                    those that README and guides show, into docs/images
.venv/bin/python docs/pictures.py --all DIR      every page, from top to bottom, into DIR

The reports' pictures show weeks of readings that this script generates; everything else is real.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from playwright.sync_api import Browser, Page, WebSocketRoute, sync_playwright
from playwright.sync_api import Error as PlaywrightError

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from nsqanalytics.archive import ArchiveWriter  # noqa: E402
from nsqanalytics.schema import Sample  # noqa: E402
from nsqwire.histogram import Histogram  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
SCHEMES = ("light", "dark")
FLAGS = (
    "--nsqd-tcp-address",
    "--nsqd-http-address",
    "--lookupd-tcp-address",
    "--lookupd-http-address",
    "--http-address",
)
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
REPORTS_S = 1800
HISTORY_MS = 60_000
"""Time for which a browser shows the overview first, so that the small charts have data."""
SETTLING_MS = 1500
"""Time for the requests of a page, and for the next poll of the collector."""


@dataclass(frozen=True)
class Shot:
    """A picture of ``path``, after ``then`` was done there. A ``{name}`` in a path is replaced by a value known at run
    time."""

    name: str
    path: str
    then: Callable[[Page], None] | None = None


def press(name: str) -> Callable[[Page], None]:
    """Press the first button of this name."""
    return lambda page: page.get_by_role("button", name=name).first.click()


def scroll_to(chart: str) -> Callable[[Page], None]:
    """Scroll to the panel of the first chart whose title begins with ``chart``."""
    script = "chart => chart.closest('.panel').scrollIntoView()"
    return lambda page: page.get_by_role("img", name=re.compile(f"^{chart}")).first.evaluate(script)


def choose_rows(page: Page) -> None:
    for row in page.get_by_role("row").all()[1:3]:
        row.get_by_role("checkbox").check()


def find(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("pause orders")


def cut(page: Page) -> None:
    """Break the websocket, and let no further one connect."""
    made: list[WebSocketRoute] = []

    def once(browser: WebSocketRoute) -> None:
        if made:
            browser.close()
        else:
            browser.connect_to_server()
        made.append(browser)

    page.route_web_socket(re.compile("/ws/cluster"), once)
    page.reload()
    page.get_by_text("Live", exact=True).wait_for()
    made[0].close()
    page.get_by_role("button", name="Try now").wait_for()


def never(page: Page) -> None:
    """Let no websocket connect."""
    page.route_web_socket(re.compile("/ws/cluster"), lambda browser: browser.close())
    page.reload()
    page.get_by_role("button", name="Try now").wait_for()


EMPTY = (
    Shot("empty-overview", "/"),
    Shot("empty-topics", "/topics"),
    Shot("empty-channels", "/channels"),
    Shot("empty-dead", "/dead"),
    Shot("empty-clients", "/clients"),
    Shot("empty-node", "/nodes/{node}"),
    Shot("empty-counter", "/counter"),
    Shot("empty-alerts", "/alerts"),
    Shot("empty-history", "/alerts?tab=history"),
    Shot("empty-rules", "/alerts?tab=rules"),
    Shot("empty-silences", "/alerts?tab=silences"),
    Shot("empty-notifiers", "/alerts?tab=notifiers"),
    Shot("empty-reports", "/reports"),
)
SHOTS = (
    Shot("overview", "/"),
    Shot("topics", "/topics"),
    Shot("topics-chosen", "/topics", choose_rows),
    Shot("topic", "/topics/thumbnails"),
    Shot("publish", "/topics/orders?publish=on"),
    Shot("tail", "/topics/orders?tail=on"),
    Shot("delete", "/topics/orders", press("Delete")),
    Shot("unknown-topic", "/topics/nothing"),
    Shot("channel", "/topics/thumbnails/resize"),
    Shot("rewind", "/topics/thumbnails/resize", press("Rewind")),
    Shot("messages", "/topics/thumbnails/resize?messages=ready"),
    Shot("in-flight", "/topics/orders/warehouse?messages=in_flight"),
    Shot("deferred", "/topics/emails/sender?messages=deferred"),
    Shot("channels", "/channels"),
    Shot("dead", "/dead"),
    Shot("clients", "/clients"),
    Shot("nodes", "/nodes"),
    Shot("node", "/nodes/{node}"),
    Shot("unknown-node", "/nodes/nobody"),
    Shot("counter", "/counter"),
    Shot("alerts", "/alerts"),
    Shot("alert", "/alerts?alert={alert}"),
    Shot("history", "/alerts?tab=history"),
    Shot("rules", "/alerts?tab=rules"),
    Shot("rule", "/alerts?tab=rules", press("Edit Backlog")),
    Shot("silences", "/alerts?tab=silences"),
    Shot("silence", "/alerts?tab=silences", press("New silence")),
    Shot("notifiers", "/alerts?tab=notifiers"),
    Shot("notifier", "/alerts?tab=notifiers", press("New notifier")),
    Shot("objectives", "/objectives"),
    Shot("objective", "/objectives/{objective}"),
    Shot("reports", "/reports"),
    Shot("schedule", "/reports", press("New schedule")),
    Shot("unknown-run", "/reports/runs/999999"),
    Shot("columns", "/reports/columns"),
    Shot("audit", "/audit"),
    Shot("people", "/people"),
    Shot("invite", "/people", press("Invite")),
    Shot("person", "/people", press("Manage mara")),
    Shot("account", "/account"),
    Shot("definitions", "/definitions"),
    Shot("policies", "/policies"),
    Shot("masks", "/masks"),
    Shot("mask", "/masks", press("New mask")),
    Shot("token", "/account", press("New token")),
    Shot("palette", "/topics", find),
    Shot("keys", "/topics", lambda page: page.keyboard.press("?")),
    Shot("menu", "/", press("Menu")),
    Shot("missing", "/no/such/page"),
    Shot("cut", "/topics", cut),
    Shot("never", "/topics", never),
)
RUNS = (
    Shot("run-latency", "/reports/runs/{latency}"),
    Shot("run-latency-charts", "/reports/runs/{latency}", scroll_to("Latency percentiles")),
    Shot("run-throughput", "/reports/runs/{throughput}"),
    Shot("run-throughput-charts", "/reports/runs/{throughput}", scroll_to("Messages per second")),
    Shot("run-objectives", "/reports/runs/{objectives}"),
    Shot("run-capacity", "/reports/runs/{capacity}"),
    Shot("run-forecast", "/reports/runs/{forecast}?of=orders+%2F+billing&figure=in_rate"),
    Shot("run-anomalies", "/reports/runs/{anomalies}?of=orders+%2F+billing&figure=in_rate"),
    Shot("run-dead", "/reports/runs/{dead}"),
    Shot("run-lives", "/reports/runs/{lives}"),
    Shot("run-compare", "/reports/runs/{compare}"),
    Shot("run-failed", "/reports/runs/{failed}"),
    Shot("archive", "/reports/archive", lambda page: page.get_by_role("heading", name="The last days").wait_for()),
    Shot("life", "/life?topic={topic}&message={message}"),
)
PAIR = (Shot("pair", "/nodes/{node}"), Shot("pair-hand-over", "/nodes/{node}", press("Hand over")))
ALONE = (Shot("pair-alone", "/nodes/{node}"),)
SIGN_IN = (Shot("signin", "/signin"), Shot("signin-refused", "/signin", press("Sign in")))

OBJECTIVES: tuple[dict[str, Any], ...] = (
    {
        "name": "Orders in time",
        "kind": "latency",
        "threshold_ms": 5000,
        "target_percent": 99,
        "topic_pattern": "orders",
    },
    {"name": "E-mails are sent", "kind": "success", "target_percent": 90, "topic_pattern": "emails", "window_days": 7},
    {"name": "Deliveries succeed", "kind": "success", "target_percent": 98.5},
)
COUNTED_S = 300
"""Longest wait for the first minutes of the objectives."""
LOADED_MS = 120_000
"""Longest wait for what a page loads. A busy machine may take long."""
RULES: tuple[dict[str, Any], ...] = (
    {
        "name": "Old messages",
        "severity": "critical",
        "scope": "channel",
        "metric": "oldest_age_s",
        "threshold": 30,
        "description": "Check the channel's consumers, their messages in flight, and whether messages time out.",
        "notifiers": ["on call"],
    },
    {"name": "Backlog", "scope": "channel", "metric": "depth", "threshold": 500, "hold_s": 10},
    {"name": "Requeues", "scope": "channel", "metric": "requeue_rate", "threshold": 0.5, "hold_s": 5},
    {"name": "Falls behind", "scope": "channel", "metric": "depth", "threshold": 100, "hold_s": 86_400},
    {"name": "Node missing", "severity": "critical", "scope": "node", "metric": "down", "hold_s": 30},
    {
        "name": "Error budget: fast burn",
        "severity": "critical",
        "scope": "objective",
        "metric": "burn_1h",
        "threshold": 14.4,
    },
    {"name": "Error budget: burn", "severity": "critical", "scope": "objective", "metric": "burn_6h", "threshold": 6},
    {"name": "Error budget: slow burn", "scope": "objective", "metric": "burn_3d", "threshold": 1},
)
"""Rules of which several fire with the traffic of the demo. One has a hold time of a day, so that it is pending."""
REPORTS: dict[str, dict[str, Any]] = {
    "latency": {"window": "1h", "period": "2d", "compared_with": "period"},
    "throughput": {"window": "1h", "period": "2d", "compared_with": "period"},
    "objectives": {"window": "1h", "period": "7d", "latency_ms": 15000, "backlog": 5000},
    "capacity": {"period": "7d"},
    "forecast": {"period": "28d"},
    "anomalies": {"period": "7d"},
    "dead": {"period": "2d", "compared_with": "period"},
    "lives": {"period": "1h"},
    "compare": {"period": "1d", "before": "1d"},
}
SAMPLED = {"sample_lives": 5}
"""The policy of all topics, for the lives of messages."""
DAYS, EARLIER_WEEKS = 9, 6
"""Days with a reading a minute, and weeks before them with the totals of each hour."""
CHANNELS = {
    ("page_views", "analytics"): (40.0, 45),
    ("page_views", "archive"): (150.0, 45),
    ("orders", "billing"): (80.0, 15),
    ("orders", "warehouse"): (400.0, 15),
    ("emails", "sender"): (250.0, 6),
    ("thumbnails", "resize"): (500.0, 9),
}
"""The median latency in ms and the messages a second, by topic and channel of the demo."""
CALL = """async ([method, path, body]) => {
    const me = await (await fetch('/api/v1/me')).json();
    const headers = {'Content-Type': 'application/json', 'X-CSRFToken': me.csrf_token};
    const answer = await fetch('/api/v1/' + path, {method, headers, body: body && JSON.stringify(body)});
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${path}: ${text}`);
    return text ? JSON.parse(text) : null;
}"""


def shown() -> set[str]:
    """The names of the files that README and guides show."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    return {name for page in pages for name in re.findall(r"images/([a-z-]+\.png)", page.read_text())}


def free_addresses() -> dict[str, str]:
    """A free address for each of the flags."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in FLAGS]
        return {flag: f"127.0.0.1:{each.getsockname()[1]}" for flag, each in zip(FLAGS, sockets, strict=True)}


@contextlib.contextmanager
def running(*words: str, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``manage.py nsq WORDS`` for the duration of the block."""
    command = [sys.executable, ROOT / "manage.py", "nsq", *words]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def signin_link(log: Path) -> str:
    """Wait until the platform is ready, and return the link that it printed. Raises TimeoutError."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := re.search(r"http://\S+/signin/\S+", log.read_text()):
            return found[0]
        time.sleep(0.2)
    raise TimeoutError(f"nsq up is not ready:\n{log.read_text()}")


def business(rng: random.Random, hours: int, began: datetime) -> Callable[[datetime], float]:
    """Return how busy the demo's channels are at a time, 1 on average: most at noon, in one hour much like in the one
    before. In three hours of the last week, some days before its end, there are three times as many messages."""
    demands, demand = [], 1.0
    for _ in range(hours):
        demand = 0.7 * demand + 0.3 * rng.lognormvariate(0, 0.4)
        demands.append(demand)
    for hour in range(hours - 100, hours - 97):
        demands[hour] *= 3

    def busy(at: datetime) -> float:
        noon = math.sin((at.hour + at.minute / 60 - 6) / 12 * math.pi)
        return demands[int((at - began).total_seconds() // 3600)] * (1 + 0.7 * noon)

    return busy


def waiting(rate: float, busy: float) -> float:
    """Return the messages that wait in a channel: more than its consumers can handle, while it is busy."""
    return max(0.0, busy - 1.4) * rate * 200


def write_example_history(archive: Path, node: str) -> None:
    """Write an archive of the demo's channels: DAYS with higher latencies while there are more messages, and
    EARLIER_WEEKS before them."""
    rng = random.Random(4)
    until = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=5)
    read_since = until - timedelta(days=DAYS)
    began = (read_since - timedelta(weeks=EARLIER_WEEKS)).replace(minute=0)
    busy = business(rng, (until - began) // timedelta(hours=1) + 1, began)
    write_earlier_hours(archive, node, began, read_since, busy)
    write_readings(archive, node, read_since, busy, rng)


def write_earlier_hours(
    archive: Path, node: str, began: datetime, until: datetime, busy: Callable[[datetime], float]
) -> None:
    """Write the rollups of the hours that end before ``until``, whose samples have expired."""
    at = began
    while at + timedelta(hours=1) <= until.replace(minute=0):
        middle = at + timedelta(minutes=30)
        rows: list[dict[str, object]] = []
        for (topic, channel), (_, rate) in [
            *CHANNELS.items(),
            *{(of, ""): rest for (of, _), rest in CHANNELS.items()}.items(),
        ]:
            count = round(3600 * rate * busy(middle))
            depth = waiting(rate, busy(middle)) if channel else 0.0
            rows.append(
                {"window_start": at, "last_at": middle, "node": node, "topic": topic, "channel": channel}
                | {"in_count": count, "in_bytes": 0 if channel else 220 * count, "out_count": count if channel else 0}
                | {"requeue_count": count // 50, "timeout_count": count // 400, "sample_count": 60}
                | {"depth_max": round(depth), "depth_last": round(depth), "depth_area": 3600.0 * depth}
                | {"observed_s": 3600.0, "client_area": 7200.0}
            )
        folder = archive / "rollups" / "hourly" / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / "0000000000000000.parquet")
        at += timedelta(hours=1)


def write_readings(
    archive: Path, node: str, began: datetime, busy_at: Callable[[datetime], float], rng: random.Random
) -> None:
    """Write a reading a minute, from ``began`` on."""
    finished = {of: Histogram() for of in CHANNELS}
    received = dict.fromkeys(CHANNELS, 0)
    writer, samples = ArchiveWriter(str(archive)), list[Sample]()
    for minute in range(DAYS * 24 * 60):
        at = began + timedelta(minutes=minute)
        busy = busy_at(at)
        topics: dict[str, Sample] = {}
        for of, (median_ms, rate) in CHANNELS.items():
            count = round(rate * busy * rng.uniform(0.8, 1.2))
            slow = busy**1.5 * rng.lognormvariate(0, 0.15)
            for _ in range(count):
                finished[of].record(int(median_ms * slow * rng.lognormvariate(0, 0.6) * 1e6), 60)
            done = finished[of].count
            depth = round(waiting(rate, busy) * rng.uniform(0.9, 1.1))
            received[of] = max(received[of], done + depth)
            dense = finished[of].to_json()
            topic = Sample(taken_at=at, node=node, boot_id="1", started_at=began, topic=of[0])
            topics[of[0]] = replace(topic, message_count=received[of], message_bytes=received[of] * 220)
            samples.append(
                replace(
                    topic,
                    channel=of[1],
                    depth=received[of] - done,
                    client_count=2,
                    message_count=received[of],
                    finish_count=done,
                    requeue_count=done // 50,
                    timeout_count=done // 400,
                    oldest_unfinished_age_ns=int((1 + depth / rate) * 1e9),
                    dead_count=done // 2000,
                    died_count=done // 2000,
                    hist_zero_count=dense["zero_count"],
                    hist_offset=dense["offset"],
                    hist_counts=dense["counts"],
                )
            )
        samples += topics.values()
    writer.write(samples)


def sample_lives(node: str) -> None:
    """Have the node record what happens to some messages of all topics."""
    address = f"http://{node}/policy?pattern=%2A&channel=%2A"
    with urllib.request.urlopen(address, data=json.dumps(SAMPLED).encode(), timeout=30):
        pass


def most_eventful(archive: Path) -> dict[str, str]:
    """Return ``topic`` and ``message`` of the archived life with most events that has ended."""
    events = ds.dataset(archive / "lives", partitioning="hive", exclude_invalid_files=True).to_table()
    lives: dict[tuple[str, str], list[str]] = {}
    for row in events.select(["topic", "message_id", "event"]).to_pylist():
        lives.setdefault((row["topic"], row["message_id"]), []).append(row["event"])
    ended = {of: each for of, each in lives.items() if "published" in each and each.count("finished") > 0}
    topic, message = max(ended, key=lambda of: len(ended[of]))
    return {"topic": topic, "message": message}


def create_examples(call: Callable[..., Any]) -> None:
    """Create accounts, a token, objectives, rules, a notifier that fails, a silence, marks, and entries of the audit
    trail."""
    for person in (
        {"username": "mara", "role": "operator", "topic_patterns": ["orders*", "emails"]},
        {"username": "viktor", "role": "viewer"},
    ):
        call("POST", "people", person)
    call("POST", "account/tokens", {"name": "deploy script", "role": "operator"})
    call("POST", "alerts/notifiers", {"name": "on call", "kind": "webhook", "url": "http://127.0.0.1:9/hook"})
    for objective in OBJECTIVES:
        call("POST", "objectives", objective)
    for rule in RULES:
        call("POST", "alerts/rules", rule)
    for text, minutes in (("deploy 1.2", 0), ("deploy 1.1", 26 * 60)):
        call("POST", "marks", {"text": text, "at": int((time.time() - minutes * 60) * 1000)})
    until = int((time.time() + 7200) * 1000)
    call("POST", "alerts/silences", {"topic_pattern": "emails", "ends_at": until, "reason": "the mail server moves"})
    for action in ("pause", "unpause"):
        call("POST", "actions", {"action": action, "topic": "orders", "channel": "billing"})


def set_schedules(call: Callable[..., Any], *, enabled: bool) -> None:
    for schedule in call("GET", "reports/schedules")["schedules"]:
        call("PATCH", f"reports/schedules/{schedule['id']}", {"enabled": enabled})


def request_reports(call: Callable[..., Any]) -> dict[str, str]:
    """Request a run of each report, and one that fails; return the ids of the runs."""
    set_schedules(call, enabled=False)  # so that none runs meanwhile
    bodies = {name: {"job": name, "parameters": parameters} for name, parameters in REPORTS.items()}
    bodies["failed"] = {"job": "capacity", "time_limit_s": 10}  # it takes longer, so the run fails
    return {name: str(call("POST", "reports/runs", body)["id"]) for name, body in bodies.items()}


def wait_for_objectives(call: Callable[..., Any]) -> str:
    """Wait until each objective has counted messages; return the id of the first. Raises TimeoutError."""
    deadline = time.monotonic() + COUNTED_S
    while True:
        objectives = call("GET", "objectives")["objectives"]
        if all(each["left_percent"] is not None for each in objectives):
            return str(objectives[0]["id"])
        if time.monotonic() > deadline:
            raise TimeoutError(f"the objectives have counted nothing after {COUNTED_S} s: {objectives}")
        time.sleep(1)


def wait_until_loaded(page: Page) -> None:
    """Wait until no part of the page says that it is loading, and then for the next poll of the collector."""
    page.wait_for_function("() => !/\\bLoading\\b.*…/.test(document.body.innerText)", timeout=LOADED_MS)
    page.wait_for_timeout(SETTLING_MS)


def wait_for_reports(call: Callable[..., Any]) -> None:
    """Wait until no run is queued or running. Raises TimeoutError."""
    deadline = time.monotonic() + REPORTS_S
    while any(run["state"] in ("queued", "running") for run in call("GET", "reports/runs")["runs"]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the reports are not over after {REPORTS_S} s")
        time.sleep(1)


def sign_in(browser: Browser, site: str, link: str) -> Page:
    """Use the link that a platform has printed, and return the page."""
    page = browser.new_page()
    page.goto(link)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site}/")
    return page


class Camera:
    """Takes pictures into a folder: those whose file names are ``wanted``. ``whole``: from the top to the bottom of a
    page."""

    def __init__(self, browser: Browser, site: str, into: Path, wanted: Callable[[str], object], whole: bool) -> None:
        self._browser, self._site, self._into, self._wanted, self._whole = browser, site, into, wanted, whole
        self.missed: list[str] = []

    def at(self, site: str) -> Camera:
        """The same camera in front of another platform."""
        return Camera(self._browser, site, self._into, self._wanted, self._whole)

    def due(self, shots: tuple[Shot, ...]) -> dict[tuple[str, str], dict[str, Shot]]:
        """The wanted shots by file name, by size and scheme."""
        found = {
            (size, scheme): {file: shot for shot in shots if self._wanted(file := f"{shot.name}-{size}-{scheme}.png")}
            for size in SIZES
            for scheme in SCHEMES
        }
        return {of: files for of, files in found.items() if files}

    def take(self, shots: tuple[Shot, ...], signed_in: Any, names: Mapping[str, str], look_ms: float = 0) -> None:
        for (size, scheme), files in self.due(shots).items():
            context = self._browser.new_context(
                viewport=SIZES[size], color_scheme=scheme, storage_state=signed_in, base_url=self._site
            )
            page = context.new_page()
            page.goto("/")
            page.add_style_tag(content=".toasts { display: none !important }")  # their messages differ from run to run
            page.wait_for_timeout(look_ms)
            for file, shot in files.items():
                self._shoot(page, shot, names, file)
            context.close()

    def _shoot(self, page: Page, shot: Shot, names: Mapping[str, str], file: str) -> None:
        # A link instead of a page load, so that the app keeps the history that its charts show.
        page.evaluate(
            """(path) => { const link = document.body.appendChild(document.createElement('a'));
                           link.href = path; link.click(); link.remove(); }""",
            shot.path.format(**names),
        )
        page.mouse.move(0, 0)
        page.wait_for_timeout(SETTLING_MS)
        wait_until_loaded(page)
        if shot.then is not None:
            try:
                shot.then(page)
            except PlaywrightError as error:  # the other pictures are still taken
                self.missed.append(file)
                print(f"pictures: {file}: {error}", file=sys.stderr)
                return
            wait_until_loaded(page)
        page.screenshot(path=self._into / file, full_page=self._whole)
        page.keyboard.press("Escape")


def take_pair(camera_of: Callable[[str], Camera], browser: Browser) -> list[str]:
    """Take the pictures of a mirrored pair, of a platform of its own. Returns the names of those that are missing."""
    addresses = free_addresses()
    site = f"http://{addresses['--http-address']}"
    camera = camera_of(site)
    if not any(camera.due(PAIR + ALONE)):
        return []
    with tempfile.TemporaryDirectory(prefix="nsq-") as home, contextlib.ExitStack() as stack:
        log = Path(home, "up.log")
        words = [word for flag, address in addresses.items() for word in (flag, address)]
        without = ("--without", "worker,dispatcher,beat")
        stack.enter_context(running("up", "--mirrored", "--home", home, *words, *without, log=log))
        page = sign_in(browser, site, signin_link(log))
        demo = [f"{flag}={addresses[flag]}" for flag in ("--nsqd-tcp-address", "--nsqd-http-address")]
        stack.enter_context(running("demo", *demo, log=Path(home, "demo.log")))
        names = {"node": addresses["--nsqd-http-address"].replace(":", "%3A")}
        page.goto(f"{site}/nodes/{names['node']}")
        page.get_by_text("mirrored", exact=True).wait_for(timeout=LOADED_MS)
        camera.take(PAIR, page.context.storage_state(), names, look_ms=HISTORY_MS)
        follower = re.search(r"● brokerd-2 +running +pid (\d+)", log.read_text())
        assert follower is not None
        os.kill(int(follower[1]), signal.SIGSTOP)
        try:
            page.get_by_text("under-replicated", exact=True).wait_for(timeout=LOADED_MS)
            camera.take(ALONE, page.context.storage_state(), names, look_ms=HISTORY_MS)
        finally:
            os.kill(int(follower[1]), signal.SIGCONT)
    return camera.missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=Path, metavar="DIR", help="take every page, into this folder")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only names that match")
    parser.add_argument("--warm-up", type=float, default=90, help="seconds of traffic before the first picture (90)")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="Chromium's executable (from PATH)")
    options = parser.parse_args()
    if options.browser is None:
        print("pictures: there is no chromium on PATH; name one with --browser", file=sys.stderr)
        return 1
    if options.all:
        into, taken = options.all, None
    else:
        into, taken = IMAGES, shown()

    def wanted(name: str) -> bool:
        return re.match(options.only, name) is not None and (taken is None or name in taken)

    into.mkdir(parents=True, exist_ok=True)
    addresses = free_addresses()
    node = addresses["--nsqd-http-address"]
    with tempfile.TemporaryDirectory(prefix="nsq-") as home, contextlib.ExitStack() as stack:
        log = Path(home, "up.log")
        words = [word for flag, address in addresses.items() for word in (flag, address)]
        graphite = {"NSQADMIN_GRAPHITE_URL": "http://graphite.example.org"} if options.all else {}
        stack.enter_context(running("up", "--home", home, *words, log=log, **graphite))
        link = signin_link(log)
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=options.browser, args=CHROMIUM_FLAGS
        )
        site = f"http://{addresses['--http-address']}"
        camera = Camera(browser, site, into, wanted, whole=bool(options.all))
        camera.take(SIGN_IN, None, {})
        page = sign_in(browser, site, link)
        signed_in = page.context.storage_state()

        def call(method: str, path: str, body: Any = None) -> Any:
            return page.evaluate(CALL, [method, path, body])

        names = {"node": node.replace(":", "%3A")}
        camera.take(EMPTY, signed_in, names)
        sample_lives(node)
        write_example_history(Path(home, "archive"), node)
        demo = [f"{flag}={addresses[flag]}" for flag in ("--nsqd-tcp-address", "--nsqd-http-address")]
        stack.enter_context(running("demo", *demo, log=Path(home, "demo.log")))
        began = time.monotonic()
        time.sleep(5)
        create_examples(call)
        names |= request_reports(call)
        time.sleep(max(0.0, began + options.warm_up - time.monotonic()))
        [alert, *_] = call("GET", "alerts")["alerts"]
        names |= {"alert": str(alert["id"]), "objective": wait_for_objectives(call)}
        camera.take(SHOTS, signed_in, names, look_ms=HISTORY_MS)
        if any(camera.due(RUNS)):
            wait_for_reports(call)
            set_schedules(call, enabled=True)  # the archive's page names the one that removes old data
            names |= most_eventful(Path(home, "archive"))
        camera.take(RUNS, signed_in, names)
        missed = camera.missed + take_pair(camera.at, browser)
        browser.close()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
