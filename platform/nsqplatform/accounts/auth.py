"""Authentication of API requests, by bearer token or by session cookie with CSRF header, and the permission that an
endpoint requires: ``@router.get("things", auth=needs(Permission.VIEW))``."""

from __future__ import annotations

from typing import TypedDict

from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import APIKeyCookie, HttpBearer

from nsqplatform.accounts.access import admit
from nsqplatform.accounts.credentials import user_of_request
from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.tokens import TokenRefused


class Token(HttpBearer):
    """``Authorization: Bearer <token>``. Needs no CSRF header: a browser never sends it by itself.

    ``enough`` is false for endpoints that refuse every token with 403.
    """

    def __init__(self, permission: Permission, *, enough: bool = True) -> None:
        super().__init__()
        self.permission = permission
        self.enough = enough

    def authenticate(self, request: HttpRequest, token: str) -> User:
        try:
            user = user_of_request(request, token)
        except TokenRefused as error:  # do not fall back to a cookie, which may be another user's
            raise HttpError(401, str(error)) from None
        assert user is not None
        request.user = user
        if not self.enough:
            raise HttpError(403, "this cannot be done with a token: sign in")
        return admit(user, self.permission, method=str(request.method), request=lambda: request)


class Session(APIKeyCookie):
    """The session cookie. Requests that change something also need ``X-CSRFToken``."""

    param_name = "sessionid"

    def __init__(self, permission: Permission) -> None:
        super().__init__(csrf=False)  # checked below, after the session: without a session the response is 401, not 403
        self.permission = permission

    def authenticate(self, request: HttpRequest, key: str | None) -> User | None:
        user = request.user  # by accounts.credentials.SignedIn
        if not isinstance(user, User):
            return None
        return admit(user, self.permission, method=str(request.method), request=lambda: request)


def needs(permission: Permission, *, by_token: bool = True) -> list[Token | Session]:
    """The ``auth`` of an endpoint. It is checked before the request's body is read.

    ``by_token`` is false for endpoints that manage the caller's credentials: a token must not be able to create a token
    that outlives it.
    """
    return [Token(permission, enough=by_token), Session(permission)]


def caller(request: HttpRequest) -> User:
    """The authenticated account. For endpoints, which always have one."""
    assert isinstance(request.user, User)
    return request.user


def remote_address(request: HttpRequest) -> str:
    """The IP address of the client, for the audit trail; behind trusted proxies, as ``accounts.forwarded`` finds it."""
    return str(request.META.get("REMOTE_ADDR", ""))


class Actor(TypedDict):
    """The caller and their address, as keyword arguments of a service."""

    by: User
    remote_address: str


def actor(request: HttpRequest) -> Actor:
    return {"by": caller(request), "remote_address": remote_address(request)}
