"""The account of an ASGI connection's credentials. Django's requests have ``accounts.auth`` and its middleware."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest, parse_cookie

from nsqplatform.accounts.connection import Scope, bearer, header
from nsqplatform.accounts.forwarded import peer_of_scope
from nsqplatform.accounts.header import user_of_header
from nsqplatform.accounts.models import User
from nsqplatform.accounts.sessions import SessionStore
from nsqplatform.accounts.tokens import user_of_token


def user_of_scope(scope: Scope) -> User | None:
    """The account of the bearer token, else the one that a trusted proxy names, else that of the session.

    Raises TokenRefused for an invalid token: the cookie beside it may be another user's.
    """
    token = bearer(scope)
    if token is not None:
        return user_of_token(token)
    named = header(scope, settings.NSQADMIN.acl_http_header.lower().encode("latin-1"))
    return user_of_header(named, peer_of_scope(scope)) or user_of_cookie(header(scope, b"cookie"))


def user_of_cookie(cookie: str) -> User | None:
    """The account of the session in a ``Cookie`` header."""
    key = parse_cookie(cookie).get(settings.SESSION_COOKIE_NAME)
    if not key:
        return None
    request = HttpRequest()
    request.session = SessionStore(key)
    user = get_user(request)
    if not isinstance(user, User):
        return None
    user.via = "session"
    return user
