"""Django's database sessions, with columns for account, address and browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import SESSION_KEY, login
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions
from django.http import HttpRequest
from django.utils import timezone

from nsqplatform.accounts.models import Session, User
from nsqplatform.accounts.tokens import hashed

SEEN_NOTED_EVERY = timedelta(minutes=1)
"""``seen_at`` is written at most this often."""


class SessionStore(DatabaseSessions):
    """The session store. SESSION_ENGINE names this module, and Django requires this class name."""

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        row = super().create_model_instance(data)
        assert isinstance(row, Session)
        if SESSION_KEY in data:
            row.user_id = int(data[SESSION_KEY])
            row.seen_at = timezone.now()
            row.address, row.user_agent = data.get("address", ""), data.get("user_agent", "")
            signed_in_at = data.get("signed_in_at")
            row.signed_in_at = datetime.fromtimestamp(signed_in_at, UTC) if signed_in_at else row.seen_at
        return row

    def _get_session_from_db(self) -> Session | None:
        row: Session | None = super()._get_session_from_db()  # type: ignore[misc]  # the stubs leave it out
        now = timezone.now()
        if row is not None and row.user_id and (row.seen_at is None or now - row.seen_at > SEEN_NOTED_EVERY):
            Session.objects.filter(pk=row.pk).update(seen_at=now)
        return row


def open_session(request: HttpRequest, user: User) -> None:
    """Sign ``user`` in with a new session key, so that a key known to an attacker is of no use."""
    Session.objects.filter(expire_date__lt=timezone.now()).delete()  # expired sessions
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    request.session.cycle_key()
    request.session["signed_in_at"] = timezone.now().timestamp()
    request.session["address"] = request.META.get("REMOTE_ADDR", "")[:64]
    request.session["user_agent"] = request.headers.get("User-Agent", "")[:200]


def public_id(session: Session) -> str:
    """The session's id in the API, which cannot be used to sign in."""
    return hashed(session.session_key)[:16]


def open_sessions(user: User) -> list[Session]:
    """The account's open sessions, the most recently seen first."""
    return list(user.sessions.filter(expire_date__gt=timezone.now()).order_by("-seen_at"))


def end_session(user: User, identifier: str) -> Session | None:
    """End a session and return it; None if there is none with this id."""
    for session in open_sessions(user):
        if public_id(session) == identifier:
            Session.objects.filter(pk=session.pk).delete()
            return session
    return None


def end_sessions(user: User, *, but: str | None = None) -> int:
    """End all of the account's sessions except that with the key ``but``, and return their number."""
    ended, _ = user.sessions.exclude(session_key=but or "").delete()
    return ended
