"""How a request to the API says who it comes from: a bearer token, or a session cookie with its CSRF header."""

from __future__ import annotations

from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from accounts.models import User
from accounts.services import user_of_token


class Token(HttpBearer):
    """``Authorization: Bearer <token>``. Needs no CSRF header: a browser never sends it by itself."""

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        user = user_of_token(token)
        if user is not None:
            request.user = user
        return user


class Session(APIKeyCookie):
    """The session cookie; anything that changes something needs ``X-CSRFToken`` beside it."""

    param_name = "sessionid"

    def __init__(self) -> None:
        super().__init__(csrf=False)  # checked below, after the sign-in: without one the answer is 401, not 403

    def authenticate(self, request: HttpRequest, key: str | None) -> User | None:
        user = request.user
        if not isinstance(user, User):
            return None
        if check_csrf(request) is not None:
            raise HttpError(403, "CSRF check failed: send the csrf_token of /api/v1/me as X-CSRFToken")
        return user


def caller(request: HttpRequest) -> User:
    """The account that one of the two found; for endpoints, which are never reached without."""
    assert isinstance(request.user, User)
    return request.user
