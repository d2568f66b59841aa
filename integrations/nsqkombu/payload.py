"""A kombu message as the body of an NSQ message: JSON, with kombu's own keys.

    {"body": "[[2, 3], {}, …]", "content-type": "application/json", "content-encoding": "utf-8",
     "headers": {"task": "add", "id": "…", "eta": null, …}, "properties": {"delivery_mode": 2, …}}

A text body is not encoded, so that the platform shows a task's arguments. Binary bodies (pickle, compression) are
encoded as base64, and ``properties.body_encoding`` is ``base64``.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from kombu.utils.json import dumps

Payload = dict[str, Any]

MARKER_PREFIX = b'{"nsqkombu-marker":'


def encode(payload: Payload) -> bytes:
    """Return the body of the NSQ message."""
    text: str = dumps(payload)
    return text.encode()


def decode(body: bytes) -> Payload:
    """Return the kombu message in a body. If kombu did not publish it, it becomes the body of a binary message.

    Celery then logs it as unknown and rejects it, instead of failing.
    """
    try:
        payload = json.loads(body)
        if isinstance(payload["properties"], dict) and isinstance(payload.setdefault("headers", {}), dict):
            payload["properties"].setdefault("delivery_info", {})
            return dict(payload)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return {
        "body": base64.b64encode(body).decode(),
        "content-type": "application/octet-stream",
        "content-encoding": "binary",
        "headers": {},
        "properties": {"body_encoding": "base64", "delivery_info": {}},
    }


def time_left(payload: Payload, now: datetime | None = None) -> timedelta:
    """Return how long the message's ``eta`` header is ahead of this machine's clock; zero without one, or if past."""
    eta = payload["headers"].get("eta")
    if not eta:
        return timedelta(0)
    try:
        due = eta if isinstance(eta, datetime) else datetime.fromisoformat(eta)
    except (TypeError, ValueError):
        return timedelta(0)  # Celery reports it
    if due.tzinfo is None:
        due = due.replace(tzinfo=UTC)
    return max(due - (now or datetime.now(UTC)), timedelta(0))


def new_marker() -> bytes:
    """Return a unique message body."""
    return MARKER_PREFIX + f'"{uuid4()}"}}'.encode()


def is_marker(body: bytes) -> bool:
    """Whether a message is a marker, of this process or of another."""
    return body.startswith(MARKER_PREFIX)
