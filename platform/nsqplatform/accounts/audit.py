"""The audit trail: who did what, from where, with what outcome. It includes refused requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.core.exceptions import RequestDataTooBig
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException
from django.utils import timezone
from redis.exceptions import RedisError

from nsqplatform.accounts.counters import increment
from nsqplatform.accounts.models import AuditEntry, User

logger = logging.getLogger(__name__)

REFUSED = "refused"
REPEATED_WITHIN_S = 60
"""Equal refusals are recorded once in this time; each one is logged."""
ANONYMOUS_PERIOD_S, MAX_ANONYMOUS = 60, 100
"""At most MAX_ANONYMOUS refusals of unknown callers are recorded within ANONYMOUS_PERIOD_S, so that they do not fill
the database."""
PURGED_EVERY_S = 3600
BODY_LOOKED_AT = 64 * 1024
SAFE = ("GET", "HEAD", "OPTIONS")


def record(
    *,
    user: User | None,
    action: str,
    outcome: str = "done",
    topic: str = "",
    channel: str | None = None,
    subject: str = "",
    detail: str = "",
    results: Sequence[Any] = (),
    remote_address: str = "",
) -> AuditEntry:
    """Add an entry, log it, and return it. ``user`` is None for an unknown caller; texts that are too long are cut."""
    entry = AuditEntry.objects.create(
        user=user.username if user else "",
        via=user.via if user else "",
        action=action[:32],
        topic=printable(topic)[:200],
        channel=None if channel is None else printable(channel)[:200],
        subject=printable(subject)[:200],
        outcome=outcome,
        detail=printable(detail)[:500],
        results=list(results),
        remote_address=remote_address[:64],
    )
    fields = {key: getattr(entry, key) for key in ("user", "via", "action", "topic", "channel", "subject", "outcome")}
    logger.info("audit", extra={key: value for key, value in fields.items() if value})
    purge_now_and_then()
    return entry


def refused(
    *,
    user: User | None,
    subject: str,
    detail: str,
    remote_address: str,
    action: str = "request",
    topic: str = "",
    channel: str | None = None,
    attempted: bool = True,
) -> None:
    """Log that a request was refused, and record it in the audit trail. ``user`` is None for an unknown caller, whose
    refusal is recorded only if it ``attempted`` to change something or to sign in.

    Raises nothing, so that a request is refused even if neither Redis nor the database answers.
    """
    logger.warning(
        "refused",
        extra={
            "user": user.username if user else "",
            "action": action,
            "subject": printable(subject),
            "detail": printable(detail),
            "peer": remote_address,
        },
    )
    if user is None and not attempted:
        return
    try:
        if repeated(
            f"{user and user.username}\n{remote_address}\n{action}\n{subject}\n{topic}", anonymous=user is None
        ):
            return
        record(
            user=user,
            action=action,
            outcome=REFUSED,
            topic=topic,
            channel=channel,
            subject=subject,
            detail=detail,
            remote_address=remote_address,
        )
    except (RedisError, DatabaseError) as error:
        logger.error("a refusal could not be recorded in the audit trail", extra={"error": str(error)})


def repeated(what: str, *, anonymous: bool) -> bool:
    """Count a refusal. Return whether it is not to be recorded: an equal one was recorded within REPEATED_WITHIN_S, or
    the limit for unknown callers is reached."""
    if not cache.add(f"refused:{hash_of(what)}", 1, timeout=REPEATED_WITHIN_S):
        return True
    if not anonymous:
        return False
    return increment("refused-anonymous", expires_s=ANONYMOUS_PERIOD_S) > MAX_ANONYMOUS


def hash_of(text: str) -> str:
    from nsqplatform.accounts.tokens import hashed

    return hashed(text)


def purge_now_and_then() -> None:
    """Delete entries that are older than ``--audit-retention``, at most once an hour."""
    keep: timedelta = settings.NSQADMIN.audit_retention
    try:
        due = bool(keep) and cache.add("audit-purged", 1, timeout=PURGED_EVERY_S)
    except RedisError:
        return
    if due:
        AuditEntry.objects.filter(at__lt=timezone.now() - keep).delete()


def printable(text: str) -> str:
    """``text`` with a replacement character for each character that PostgreSQL cannot store or terminals interpret."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


class RefusalsWritten:
    """Django middleware that records every 401, 403 and 429 response."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code in (401, 403, 429) and not getattr(request, "refusal_written", False):
            asked = what_was_asked(request)
            user = getattr(request, "user", None)
            refused(
                user=user if isinstance(user, User) else None,
                subject=subject_of(str(request.method), request.path),
                detail=message_of(response),
                remote_address=request.META.get("REMOTE_ADDR", ""),
                action=asked.get("action", "request"),
                topic=asked.get("topic", ""),
                channel=asked.get("channel"),
                attempted=request.method not in SAFE or "Authorization" in request.headers,
            )
        return response


def subject_of(method: str, path: str) -> str:
    """Method and path of a request, without the secret in a sign-in link."""
    path = path.removeprefix(settings.NSQADMIN.base)
    return f"{method} {'/signin/…' if path.startswith('/signin/') else path}"


def what_was_asked(request: HttpRequest) -> dict[str, str]:
    """Action, topic and channel, if the body is JSON that contains them."""
    if request.method in SAFE:
        return {}
    try:
        body = json.loads(request.body) if len(request.body) <= BODY_LOOKED_AT else None
    except (ValueError, RecursionError, RawPostDataException, RequestDataTooBig):
        return {}
    if not isinstance(body, dict):
        return {}
    return {key: body[key] for key in ("action", "topic", "channel") if isinstance(body.get(key), str)}


def message_of(response: HttpResponse) -> str:
    if response.headers.get("Content-Type", "").startswith("application/json") and not response.streaming:
        try:
            return str(json.loads(response.content)["message"])
        except (ValueError, KeyError, TypeError):
            pass
    return response.reason_phrase
