"""How a request to the API says who it comes from (a bearer token, or a session cookie with its CSRF header), and what
an endpoint asks of them: ``@router.get("things", auth=needs(Permission.VIEW))``."""

from __future__ import annotations

from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.tokens import TokenRefused, user_of_token


class Token(HttpBearer):
    """``Authorization: Bearer <token>``. Needs no CSRF header: a browser never sends it by itself."""

    def __init__(self, permission: Permission, *, enough: bool = True) -> None:
        super().__init__()
        self.permission = permission
        self.enough = enough

    def authenticate(self, request: HttpRequest, token: str) -> User:
        try:
            user = user_of_token(token)
        except TokenRefused as error:  # not quietly somebody else, by a cookie that came along
            raise HttpError(401, str(error)) from None
        request.user = user
        if not self.enough:
            raise HttpError(403, "a token cannot do this: sign in")
        require(user, self.permission)
        return user


class Session(APIKeyCookie):
    """The session cookie; anything that changes something needs ``X-CSRFToken`` beside it."""

    param_name = "sessionid"

    def __init__(self, permission: Permission) -> None:
        super().__init__(csrf=False)  # checked below, after the sign-in: without one the answer is 401, not 403
        self.permission = permission

    def authenticate(self, request: HttpRequest, key: str | None) -> User | None:
        user = request.user
        if not isinstance(user, User):
            return None
        if check_csrf(request) is not None:
            raise HttpError(403, "CSRF check failed: send the csrf_token of /api/v1/me as X-CSRFToken")
        user.via = user.via or "session"
        require(user, self.permission)
        return user


def needs(permission: Permission, *, by_token: bool = True) -> list[Token | Session]:
    """What an endpoint declares as its ``auth``. It is checked before the request's body is even read.

    ``by_token`` false is for one's own credentials: a script's token must not outlive itself by making another one.
    """
    return [Token(permission, enough=by_token), Session(permission)]


def caller(request: HttpRequest) -> User:
    """The account that one of the two found; for endpoints, which are never reached without."""
    assert isinstance(request.user, User)
    return request.user
