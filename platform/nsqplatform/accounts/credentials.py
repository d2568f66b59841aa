"""The account of a caller's credentials: one rule for websockets, nsqadmin's endpoints, the API and pages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse, parse_cookie
from django.utils.functional import SimpleLazyObject

from nsqplatform.accounts.connection import Scope, bearer, header
from nsqplatform.accounts.forwarded import peer_of_request, peer_of_scope
from nsqplatform.accounts.header import user_of_header
from nsqplatform.accounts.models import User
from nsqplatform.accounts.sessions import SessionStore
from nsqplatform.accounts.tokens import user_of_token


def user_of(*, token: str | None, named: str, peer: str, request_of_session: Callable[[], HttpRequest]) -> User | None:
    """The account of the bearer token, otherwise of the user header, otherwise of the session.

    ``named`` is the value of the header in which a trusted proxy names the user; empty without the header. ``peer`` is
    the IP address of the connection itself; ``request_of_session`` returns a request with the session, and is called
    only if it is needed. Raises TokenRefused for an invalid token: the cookie beside it may be another user's.
    """
    if token is not None:
        return user_of_token(token)
    user = user_of_header(named, peer)
    if user is not None:
        return user
    of_session = get_user(request_of_session())
    if not isinstance(of_session, User):
        return None
    of_session.via = "session"
    return of_session


def user_of_scope(scope: Scope) -> User | None:
    """The account of an ASGI connection. Raises TokenRefused."""
    named = header(scope, settings.NSQADMIN.acl_http_header.lower().encode("latin-1"))
    return user_of(
        token=bearer(scope), named=named, peer=peer_of_scope(scope), request_of_session=partial(_with_session, scope)
    )


def user_of_request(request: HttpRequest, token: str | None = None) -> User | None:
    """The account of a Django request, whose middleware has found the session. Raises TokenRefused."""
    named = request.headers.get(settings.NSQADMIN.acl_http_header, "")
    return user_of(token=token, named=named, peer=peer_of_request(request), request_of_session=lambda: request)


class SignedIn:
    """Django middleware that sets the user of a request, by header or session: tokens are for the API only
    (accounts.auth). The session is read when the user is needed; the header at once, as it can create an account."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        user = SimpleLazyObject(lambda: user_of_request(request) or AnonymousUser())
        if request.headers.get(settings.NSQADMIN.acl_http_header):
            bool(user)
        request.user = user  # type: ignore[assignment]
        return self.get_response(request)


def _with_session(scope: Scope) -> HttpRequest:
    """A request with the session that the connection's cookie names; without a cookie, with an empty one."""
    request = HttpRequest()
    request.session = SessionStore(parse_cookie(header(scope, b"cookie")).get(settings.SESSION_COOKIE_NAME))
    return request
