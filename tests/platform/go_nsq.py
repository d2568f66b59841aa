"""The HTTP side of a Go cluster: nsqd and nsqlookupd as version 1.3.0 answers.

No histograms, no boot_id, no ages: what the platform must do without on nodes that are not ours.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Upstream:
    """An HTTP server on a free port of 127.0.0.1. ``posts`` are the paths and first parameter values POSTed to it."""

    takes_bodies: tuple[str, ...] = ("/pub", "/mpub")
    """The paths whose POSTs go to ``publish``."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str]]] = []
        self.status: dict[str, tuple[int, str]] = {}
        """Path to the status and message it is refused with."""
        self.hold: threading.Event | None = None
        """While set to an unset event, no request is answered."""
        self.delay_s = 0.0
        """How long it takes to answer a POST."""
        self.port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def get(self, path: str, query: dict[str, str]) -> Any:
        raise NotImplementedError

    def post(self, path: str, query: dict[str, str]) -> tuple[int, str]:
        return 200, ""

    def publish(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, str]:
        return 404, "NOT_FOUND"

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
                missing = "TOPIC_NOT_FOUND" if path == "/lookup" else "NOT_FOUND"
                if found is None:
                    self.answer(404 if status == 200 else status, json.dumps({"message": message or missing}).encode())
                else:
                    self.answer(200, found if isinstance(found, bytes) else json.dumps(found).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path, query = self.split()
                time.sleep(upstream.delay_s)
                publishes = path in upstream.takes_bodies
                status, message = upstream.status.get(path) or (
                    upstream.publish(path, query, body) if publishes else upstream.post(path, query)
                )
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
        """Refuse connections and close the open ones, like a process that died."""
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
        self.published: list[tuple[str, int, bytes]] = []
        """Topic, deferral in milliseconds and body of each message that it took."""
        self.described: dict[str, Any] = {}
        """What /info and the registries say beside, or in place of, the usual."""
        super().__init__()

    def topic(self, name: str, **figures: Any) -> dict[str, Any]:
        """Add a topic, or change its figures."""
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
        """Add a channel, or change its figures."""
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
            "tcp_port": self.port + 1,
        } | self.described

    def get(self, path: str, query: dict[str, str]) -> Any:
        if path == "/info":
            return self.describe() | {"start_time": self.start_time}
        if path != "/stats":
            return None
        topics = json.loads(json.dumps(list(self.topics.values())))
        if "topic" in query:
            topics = [topic for topic in topics if topic["topic_name"] == query["topic"]]
        if "channel" in query:
            for topic in topics:
                topic["channels"] = [each for each in topic["channels"] if each["channel_name"] == query["channel"]]
        self.clients_asked_for = query.get("include_clients") != "false"
        if not self.clients_asked_for:
            for topic in topics:
                for channel in topic["channels"]:
                    channel["clients"] = None
        return {"version": "1.3.0", "health": "OK", "start_time": self.start_time, "topics": topics, "producers": None}

    def publish(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, str]:
        """nsqd's /pub with ``defer``, and its binary /mpub."""
        bodies = [body]
        if path == "/mpub":
            assert query["binary"] == "true"
            bodies, at = [], 4
            for _ in range(int.from_bytes(body[:4], "big")):
                size = int.from_bytes(body[at : at + 4], "big")
                bodies.append(body[at + 4 : at + 4 + size])
                at += 4 + size
            assert at == len(body)
        if any(len(each) > 1 << 20 for each in bodies):
            return 413, "MSG_TOO_BIG"
        defer_ms = int(query.get("defer", 0))
        if defer_ms > 3_600_000:
            return 400, "INVALID_DEFER"
        topic = self.topic(query["topic"])
        topic["message_count"] += len(bodies)
        self.published += [(query["topic"], defer_ms, each) for each in bodies]
        return 200, ""

    def post(self, path: str, query: dict[str, str]) -> tuple[int, str]:
        topic = self.topics.get(query.get("topic", ""))
        kind, _, verb = path.strip("/").partition("/")
        if kind not in ("topic", "channel") or verb not in ("create", "delete", "empty", "pause", "unpause"):
            return 404, "NOT_FOUND"
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
    """nsqlookupd's HTTP side: the given nodes with their topics, and topics without nodes."""

    def __init__(self, nodes: list[GoNode]) -> None:
        self.nodes = nodes
        self.idle: dict[str, list[str]] = {}
        self.tombstones: set[tuple[str, str]] = set()
        super().__init__()

    def get(self, path: str, query: dict[str, str]) -> Any:
        if path == "/nodes":
            return {
                "producers": [
                    node.describe()
                    | {
                        "remote_address": f"127.0.0.1:{50000 + number}",
                        "topics": list(node.topics),
                        "tombstones": [(topic, node.address) in self.tombstones for topic in node.topics],
                    }
                    for number, node in enumerate(self.nodes)
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
        elif path == "/topic/tombstone":
            self.tombstones.add((query["topic"], query["node"]))
        elif path != "/channel/delete":
            return 404, "NOT_FOUND"
        return 200, ""


class GoCluster:
    """Two nodes and the registry that lists them."""

    def __init__(self) -> None:
        self.nodes = [GoNode("alpha"), GoNode("beta")]
        self.registry = GoRegistry(self.nodes)

    @property
    def everything(self) -> list[Upstream]:
        return [*self.nodes, self.registry]
