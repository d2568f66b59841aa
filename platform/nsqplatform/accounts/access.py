"""Access to endpoints: whether a caller may send a request, for the API, nsqadmin's endpoints and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from ninja.utils import check_csrf

from nsqplatform.accounts.audit import SAFE
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission


class MaybeForged(PermissionDenied):
    """A request that changes something, and that another site's page could have made the caller's browser send."""


def admit(
    user: User,
    permission: Permission,
    *,
    method: str,
    request: Callable[[], HttpRequest],
    is_own: Callable[[], bool] | None = None,
) -> User:
    """Return ``user`` if it may send a request. Raises MaybeForged and PermissionDenied.

    A browser sends all credentials but bearer tokens by itself. With these, a request that changes something must have
    the CSRF token, for which ``request`` is called. If ``is_own`` is given, callers without a session, such as scripts,
    need no token; ``is_own`` returns whether the request is from no page, or from a page of this platform.
    """
    if method not in SAFE and not user.is_by_token:
        if is_own is None or user.via == "session":
            if check_csrf(request()) is not None:
                raise MaybeForged("CSRF check failed: send the csrf_token of /api/v1/me as X-CSRFToken")
        elif not is_own():
            raise MaybeForged("sent by a page of another site")
    require(user, permission)
    return user
