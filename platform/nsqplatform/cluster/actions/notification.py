"""Posts actions to ``--notification-http-endpoint`` in the background. Failures are logged and have no other effect."""

from __future__ import annotations

import logging
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx
from django.conf import settings
from django.http import HttpRequest

from nsqplatform.accounts.models import User
from nsqplatform.clusters import current

logger = logging.getLogger(__name__)

MAX_WAITING = 1000
"""Maximum number of queued notifications; further ones are dropped and logged."""
TIMEOUT_S = 5.0

_sender = ThreadPoolExecutor(1, thread_name_prefix="notification")
_slots = threading.BoundedSemaphore(MAX_WAITING)


class Origin(NamedTuple):
    """The request that caused an action. ``peer`` is ``address:port``; ``url`` is the full URL."""

    user: str
    peer: str
    user_agent: str
    url: str

    @classmethod
    def of(cls, *, user: User, peer: str, url: str, headers: Mapping[str, str]) -> Origin:
        return cls(
            user=basic_user(headers.get("Authorization", "")) or (user.username if user.pk else ""),
            peer=peer,
            user_agent=headers.get("User-Agent", ""),
            url=url.replace("http://", "https://", 1) if headers.get("X-Scheme") == "https" else url,
        )


def basic_user(authorization: str) -> str:
    """The user name of HTTP Basic credentials."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(encoded, validate=True).decode().partition(":")[0]
    except ValueError:
        return ""


def notify(origin: Origin, action: str, topic: str, channel: str | None = None, node: str = "") -> None:
    """Queue a notification, if there is an endpoint: ``{action, topic, channel, node, timestamp, user, remote_ip,
    user_agent, url, via}``.

    ``action`` is nsqadmin's name, such as ``pause_channel``; ``channel``, ``node``, ``user`` are left out when empty.
    """
    endpoint = settings.NSQADMIN.notification_http_endpoint
    if not endpoint:
        return
    fields: dict[str, str | int] = {
        "action": action,
        "topic": topic,
        "channel": channel or "",
        "node": node,
        "timestamp": int(time.time()),
        "user": origin.user,
        "remote_ip": origin.peer,
        "user_agent": origin.user_agent,
        "url": origin.url,
        "via": socket.gethostname(),
    }
    fields = {key: value for key, value in fields.items() if value or key not in ("channel", "node", "user")}
    if not _slots.acquire(blocking=False):
        logger.error("notification dropped: the endpoint is too slow", extra={"action": action, "topic": topic})
        return
    _sender.submit(send, endpoint, fields)


def send(endpoint: str, fields: Mapping[str, str | int]) -> None:
    try:
        response = httpx.post(endpoint, json=fields, timeout=TIMEOUT_S, trust_env=False)
        response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        logger.error("notification failed", extra={"endpoint": endpoint, "error": str(error)})
    finally:
        _slots.release()


def notify_all(origin: Origin, action: str, topic: str, channel: str | None) -> None:
    """Notify of a platform action under nsqadmin's names. Creating a channel creates its topic too."""
    if channel is None or action == "create":
        notify(origin, f"{action}_topic", topic)
    if channel is not None:
        notify(origin, f"{action}_channel", topic, channel)


def outside_path(request: HttpRequest) -> str:
    """Path and query as the client sent them, including the cluster's prefix."""
    base: str = settings.NSQADMIN.base
    return f"{base}{current.path()}{request.get_full_path().removeprefix(base)}"


def origin_of(request: HttpRequest) -> Origin:
    """The origin of a request to the platform's API. Django does not provide the peer's port."""
    assert isinstance(request.user, User)
    return Origin.of(
        user=request.user,
        peer=request.META.get("REMOTE_ADDR", ""),
        url=request.build_absolute_uri(outside_path(request)),
        headers=request.headers,
    )
