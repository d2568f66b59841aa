"""The audit trail: who did what, from where, with what outcome. It includes refused requests."""

from __future__ import annotations

import hashlib
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
from nsqplatform.accounts.models import AuditEntry, ChangedNode, User
from nsqplatform.insertion import insert

logger = logging.getLogger(__name__)

REFUSED = "refused"
REFUSALS = (401, 403, 429)
"""The statuses of refused requests."""
REPEATED_WITHIN_S = 60
"""Equal refusals are recorded once in this time; each one is logged."""
ANONYMOUS_PERIOD_S, MAX_ANONYMOUS = 60, 100
"""At most MAX_ANONYMOUS refusals of unknown callers are recorded within ANONYMOUS_PERIOD_S, so that they do not fill
the database."""
PURGE_INTERVAL_S = 3600
MAX_PARSED_BYTES = 64 * 1024
SAFE = ("GET", "HEAD", "OPTIONS")
LOGGED = ("user", "via", "action", "topic", "channel", "subject", "outcome", "job")


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
    job: int | None = None,
    subject_count: int | None = None,
) -> AuditEntry:
    """Add an entry, log it, and return it. ``user`` is None for an unknown caller; texts that are too long are cut."""
    entry = AuditEntry(
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
        job=job,
        subject_count=subject_count,
    )
    store_all([entry])
    log_entry(entry)
    purge_hourly()
    return entry


_COLUMNS = [field.name for field in AuditEntry._meta.concrete_fields if not field.primary_key]


def store_all(entries: Sequence[AuditEntry]) -> None:
    """Add entries. Several get the same time."""
    if len(entries) == 1:
        entries[0].save(force_insert=True)
    else:
        at = timezone.now()
        for entry in entries:
            entry.at = at
        keys = insert(AuditEntry, _COLUMNS, ([getattr(entry, name) for name in _COLUMNS] for entry in entries))
        for entry, key in zip(entries, keys, strict=True):
            entry.pk = key
    changed = [(entry.pk, node, entry.at) for entry in entries for node in changed_nodes(entry.results)]
    insert(ChangedNode, ("entry", "node", "at"), changed)


def log_entry(entry: AuditEntry) -> None:
    """Log what an entry says."""
    fields = {key: getattr(entry, key) for key in LOGGED}
    logger.info("audit", extra={key: value for key, value in fields.items() if value})


def changed_nodes(results: Sequence[Any]) -> list[str]:
    """The nodes and registries that an action has changed, by its results."""
    return sorted({each["node"][:300] for each in results if each.get("outcome") == "done" and each.get("node")})


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
        if is_repeated(
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


def is_repeated(what: str, *, anonymous: bool) -> bool:
    """Count a refusal. Return whether it is not to be recorded: an equal one was recorded within REPEATED_WITHIN_S, or
    the limit for unknown callers is reached."""
    if not cache.add(f"refused:{hashlib.sha256(what.encode()).hexdigest()}", 1, timeout=REPEATED_WITHIN_S):
        return True
    if not anonymous:
        return False
    return increment("refused-anonymous", expires_s=ANONYMOUS_PERIOD_S) > MAX_ANONYMOUS


def purge_hourly() -> None:
    """Delete entries that are older than ``--audit-retention``, at most once an hour."""
    keep: timedelta = settings.NSQADMIN.audit_retention
    try:
        due = bool(keep) and cache.add("audit-purged", 1, timeout=PURGE_INTERVAL_S)
    except RedisError:
        return
    if due:
        AuditEntry.everywhere.filter(at__lt=timezone.now() - keep).delete()


def printable(text: str) -> str:
    """``text`` with a replacement character for each character that PostgreSQL cannot store or terminals interpret."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def spreadsheet_safe(value: Any) -> Any:
    """Prefix a text that begins like a formula with an apostrophe, because a spreadsheet would execute it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


class RefusalRecorder:
    """Django middleware that records every response with one of REFUSALS."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code in REFUSALS and not getattr(request, "refusal_written", False):
            user = getattr(request, "user", None)
            refused_request(
                user=user if isinstance(user, User) else None,
                method=str(request.method),
                path=request.path,
                body=body_of(request),
                detail=message_of(response),
                remote_address=request.META.get("REMOTE_ADDR", ""),
                is_signed="Authorization" in request.headers,
            )
        return response


def refused_request(
    *, user: User | None, method: str, path: str, body: bytes, detail: str, remote_address: str, is_signed: bool
) -> None:
    """Log and record that an HTTP request was refused, with action and topic if its body has them.

    ``is_signed``: whether it has an ``Authorization`` header.
    """
    asked = requested_action(body)
    refused(
        user=user,
        subject=subject_of(method, path),
        detail=detail,
        remote_address=remote_address,
        action=asked.get("action", "request"),
        topic=asked.get("topic", ""),
        channel=asked.get("channel"),
        attempted=method not in SAFE or is_signed,
    )


def subject_of(method: str, path: str) -> str:
    """Method and path of a request, without the secret in a sign-in link."""
    path = path.removeprefix(settings.NSQADMIN.base)
    return f"{method} {'/signin/…' if path.startswith('/signin/') else path}"


def body_of(request: HttpRequest) -> bytes:
    """The body of a request that changes something; empty if it was not kept or is too long."""
    try:
        return b"" if request.method in SAFE else request.body
    except (RawPostDataException, RequestDataTooBig):
        return b""


def requested_action(body: bytes) -> dict[str, str]:
    """Action, topic and channel, if the body is JSON that contains them."""
    try:
        asked = json.loads(body) if len(body) <= MAX_PARSED_BYTES else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(asked, dict):
        return {}
    return {key: asked[key] for key in ("action", "topic", "channel") if isinstance(asked.get(key), str)}


def message_of(response: HttpResponse) -> str:
    if response.headers.get("Content-Type", "").startswith("application/json") and not response.streaming:
        try:
            return str(json.loads(response.content)["message"])
        except (ValueError, KeyError, TypeError):
            pass
    return response.reason_phrase
