"""A receiver of OTLP over HTTP, which parses what it is sent with OpenTelemetry's own schema."""

from __future__ import annotations

import gzip
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

FLOOD_BYTES = 1 << 28


class Pushed(NamedTuple):
    """One request: the attributes of its resource, and its metrics by name."""

    resource: dict[str, str]
    metrics: dict[str, Metric]


class Receiver:
    """Receives metrics on a free port of loopback; ``with`` starts and ends it."""

    def __init__(self) -> None:
        self.pushed: list[Pushed] = []
        self.paths: set[str] = set()
        self.status = 200
        """The status of the answers. Metrics that are refused are not in ``pushed``."""
        self.reason: str | None = None
        """The text after the status; None for that of HTTP."""
        self.location: str | None = None
        """The ``Location`` header of the answers; None: without it."""
        self.floods = False
        """True if the body of an answer does not end."""
        self.flooded_bytes = 0
        """The most that was written of such a body."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.paths.add(self.path)
                status = receiver.status
                if status == 200:
                    encoded = self.headers.get("Content-Encoding") == "gzip"
                    receiver.pushed.append(_parsed(gzip.decompress(body) if encoded else body))
                self.send_response(status, receiver.reason)
                if receiver.location is not None:
                    self.send_header("Location", receiver.location)
                if not receiver.floods:
                    self.send_header("Content-Length", "0")
                self.end_headers()
                if receiver.floods:
                    self._flood()

            def _flood(self) -> None:
                self.close_connection = True
                written = 0
                with suppress(OSError):
                    while written < FLOOD_BYTES:
                        self.wfile.write(bytes(1 << 20))
                        written += 1 << 20
                receiver.flooded_bytes = max(receiver.flooded_bytes, written)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def of(self, service: str) -> list[Pushed]:
        """What a service has pushed, oldest first."""
        return [each for each in list(self.pushed) if each.resource["service.name"] == service]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def _parsed(body: bytes) -> Pushed:
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    return Pushed(attributes, {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics})
