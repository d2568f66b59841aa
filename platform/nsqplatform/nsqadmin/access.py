"""Authentication and authorization of requests to nsqadmin's endpoints.

Credentials are tried in this order: a bearer token, the header of a trusted proxy, a session. Without any, the request
has the role of ``--script-role``, by default none. A request without a token must name one of ALLOWED_HOSTS as its
host. As for the API, ``accounts.access`` checks the permission, and that no other site's page can have sent the
request; scripts, which know no CSRF token, need none.
"""

from __future__ import annotations

import time
from functools import cache
from io import BytesIO

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest

from nsqdaemon.http import HTTPError
from nsqplatform.accounts.access import MaybeForged, admit
from nsqplatform.accounts.connection import HTTPScope, bearer, header
from nsqplatform.accounts.credentials import user_of_scope
from nsqplatform.accounts.forwarded import client_of_scope, peer_of_scope
from nsqplatform.accounts.models import User
from nsqplatform.accounts.networks import within
from nsqplatform.accounts.origins import is_own_host, is_own_page
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.accounts.tokens import TokenRefused
from nsqplatform.clusters import current
from nsqplatform.clusters.declaration import DEFAULT

REMEMBERED_S = 1.0
"""Time for which the account of some credentials is cached."""
MAX_REMEMBERED = 1024

SCRIPT = "script"
"""The user in audit entries of requests without sign-in."""


class Access:
    """Finds callers, with a short cache, so that a script's frequent requests do not load the database."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[float, User | None]] = {}

    async def require(self, scope: HTTPScope, permission: Permission) -> User:
        """The caller, which is also stored in ``scope``.

        Raises HTTPError: 401 without an account, 403 without the permission, 400 for another host name.
        """
        if bearer(scope) is None and not is_own_host(scope):
            raise HTTPError(400, "INVALID_HOST")
        user = await self._caller(scope)
        if user is None:
            raise HTTPError(401, "UNAUTHORIZED")
        scope["caller"] = user
        try:
            return admit(
                user,
                permission,
                method=scope["method"],
                request=lambda: ASGIRequest(scope, BytesIO()),
                is_own=lambda: is_from_no_other_site(scope),
            )
        except MaybeForged:
            raise HTTPError(403, "CSRF_FAILED") from None
        except PermissionDenied:
            raise HTTPError(403, "FORBIDDEN") from None

    async def _caller(self, scope: HTTPScope) -> User | None:
        named = settings.NSQADMIN.acl_http_header.lower().encode("latin-1")
        credentials = [header(scope, name) for name in (b"authorization", b"cookie", named)]
        if not any(credentials):
            return script(client_of_scope(scope))
        key = (current.name(), *credentials, client_of_scope(scope), peer_of_scope(scope))
        now = time.monotonic()
        found = self._known.get(key)
        if found is None or now - found[0] > REMEMBERED_S:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            found = self._known[key] = (now, await sync_to_async(signed_in)(scope))
        return found[1]


def signed_in(scope: HTTPScope) -> User | None:
    """The account of the request's credentials. Raises HTTPError 401 for an invalid token."""
    try:
        return user_of_scope(scope) or script(client_of_scope(scope))
    except TokenRefused as error:  # even if --script-role would permit the request without a token
        raise HTTPError(401, f"UNAUTHORIZED: {error}") from None


def script(client: str) -> User | None:
    """The account for a request without sign-in to the default cluster, if the settings permit it."""
    nsqadmin = settings.NSQADMIN
    if current.name() != DEFAULT or nsqadmin.script_role == "none" or not within(client, nsqadmin.script_networks):
        return None
    return _script_of(Role(nsqadmin.script_role))


@cache
def _script_of(role: Role) -> User:
    user = User(username=SCRIPT, role=role)
    user.via = SCRIPT
    return user


def is_from_no_other_site(scope: HTTPScope) -> bool:
    """Whether the headers that browsers add name no other site as that of the page."""
    if header(scope, b"sec-fetch-site") not in ("", "none", "same-origin"):
        return False
    return not header(scope, b"origin") or is_own_page(scope)
