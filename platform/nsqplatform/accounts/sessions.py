"""Django's database sessions, with columns for account, address and browser.

The key of a session, which its cookie contains, is not stored: the row has a hash of it. A copy of the database signs
nobody in.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import SESSION_KEY, login
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions
from django.http import HttpRequest
from django.utils import timezone

from nsqplatform.accounts.models import Session, User
from nsqplatform.accounts.tokens import hashed

SEEN_INTERVAL = timedelta(minutes=1)
"""``seen_at`` is written at most this often."""


class SessionStore(DatabaseSessions):
    """The session store. SESSION_ENGINE names this module, and Django requires this class name."""

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def exists(self, session_key: str) -> bool:
        return super().exists(stored_key(session_key))

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key is not None:
            super().delete(stored_key(key))

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        row = super().create_model_instance(data)
        assert isinstance(row, Session)
        row.session_key = stored_key(row.session_key)
        if SESSION_KEY in data:
            row.user_id = int(data[SESSION_KEY])
            row.seen_at = timezone.now()
            row.address, row.user_agent = data.get("address", ""), data.get("user_agent", "")
            signed_in_at = data.get("signed_in_at")
            row.signed_in_at = datetime.fromtimestamp(signed_in_at, UTC) if signed_in_at else row.seen_at
        return row

    def _get_session_from_db(self) -> Session | None:
        now = timezone.now()
        key = stored_key(self.session_key or "")
        row = Session.objects.filter(session_key=key, expire_date__gt=now).first()
        if row is None:
            self._session_key = None  # Django then creates a session with a new key
        elif row.user_id and (row.seen_at is None or now - row.seen_at > SEEN_INTERVAL):
            Session.objects.filter(pk=row.pk).update(seen_at=now)
        return row


def stored_key(session_key: str) -> str:
    """The key of the row of a session: the first 160 bits of the key's SHA-256, which fill Django's column."""
    return hashed(session_key)[:40]


def open_session(request: HttpRequest, user: User) -> None:
    """Sign ``user`` in with a new session key, so that a key known to an attacker is of no use."""
    Session.objects.filter(expire_date__lt=timezone.now()).delete()  # expired sessions
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    request.session.cycle_key()
    request.session.set_expiry(None)  # that of the settings, not that of a sign-in with an identity provider
    request.session["signed_in_at"] = timezone.now().timestamp()
    request.session["address"] = request.META.get("REMOTE_ADDR", "")[:64]
    request.session["user_agent"] = request.headers.get("User-Agent", "")[:200]


def public_id(session: Session) -> str:
    """The session's id in the API."""
    return session.session_key[:16]


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
    ended, _ = user.sessions.exclude(session_key=stored_key(but or "")).delete()
    return ended
