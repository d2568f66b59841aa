"""Pushes metrics by OTLP over HTTP, with OpenTelemetry's exporter (the extra ``otel``).

A daemon writes the text of ``/metrics`` to a child process (:mod:`nsqdaemon.otlp.pusher`). The child parses, encodes
and sends it, so that this does not block the daemon's event loop. The platform, which has few metrics, does the same in
a thread (:mod:`nsqdaemon.otlp.thread`).
"""

from __future__ import annotations

import importlib.util
import struct
from typing import Final
from urllib.parse import urlsplit

SIZE: Final = struct.Struct(">I")
"""Length prefix of each text that a daemon writes to the child process, in bytes."""


class OTLPUnusable(Exception):
    """Metrics cannot be pushed as configured; the text is the reason."""


def check_endpoint(endpoint: str) -> None:
    """Raise OTLPUnusable unless ``endpoint`` is an HTTP URL and the exporter is installed."""
    try:
        parts = urlsplit(endpoint)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_url = is_url and not any(map(str.isspace, endpoint))
    except ValueError:
        is_url = False
    if not is_url:
        raise OTLPUnusable(f"{endpoint!r} is not an http:// or https:// URL, such as http://127.0.0.1:4318")
    try:
        found = importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise OTLPUnusable("OpenTelemetry's exporter is not installed: pip install 'nsq-common[otel]'")
