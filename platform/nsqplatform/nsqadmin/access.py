"""Authentication and authorization of requests to nsqadmin's endpoints.

Credentials are tried in this order: a bearer token, the header of a trusted proxy, a session. Without any, the request
has the role of ``--script-role``, by default none. A request without a token must name one of ALLOWED_HOSTS as its host
and, if it changes something, must not come from a page of another site, because browsers send the other credentials by
themselves.
"""

from __future__ import annotations

import time
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.http.request import split_domain_port, validate_host
from ninja.utils import check_csrf

from nsqdaemon.http import HTTPError
from nsqplatform.accounts.forwarded import peer_of_scope
from nsqplatform.accounts.header import user_of_scope
from nsqplatform.accounts.models import User
from nsqplatform.accounts.networks import within
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.accounts.sessions import SessionStore
from nsqplatform.accounts.tokens import TokenRefused, bearer_token, user_of_token

REMEMBERED_S = 1.0
"""Time for which the account of some credentials is cached."""
MAX_REMEMBERED = 1024

SCRIPT = "script"
"""The user in audit entries of requests without sign-in."""


class Access:
    """Finds callers, with a short cache, so that a script's frequent requests do not burden the database."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes | None, ...], tuple[float, User | None]] = {}

    async def require(self, scope: dict[str, Any], permission: Permission) -> User:
        """The caller, which is also stored in ``scope``.

        Raises HTTPError: 401 without an account, 403 without the permission, 400 for another host name.
        """
        headers = dict(scope["headers"])
        bearer = bearer_token(headers.get(b"authorization", b"").decode("latin-1")) is not None
        if not bearer:
            forbid_other_hosts(headers)
        user = await self._caller(scope, headers)
        if user is None:
            raise HTTPError(401, "UNAUTHORIZED")
        scope["caller"] = user
        if not user.may(permission):
            raise HTTPError(403, "FORBIDDEN")
        if not bearer and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            forbid_other_sites(headers)
        return user

    async def _caller(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> User | None:
        client = client_of(scope)
        named = settings.NSQADMIN.acl_http_header.lower().encode("latin-1")
        credentials = [headers.get(name) for name in (b"authorization", b"cookie", named)]
        if not any(credentials):
            return script(client)
        key = (*credentials, client.encode(), peer_of_scope(scope).encode(), scope["method"].encode())
        now = time.monotonic()
        found = self._known.get(key)
        if found is None or now - found[0] > REMEMBERED_S:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            found = self._known[key] = (now, await sync_to_async(signed_in)(scope, headers))
        return found[1]


def signed_in(scope: dict[str, Any], headers: dict[bytes, bytes]) -> User | None:
    """The account of the request's credentials. Raises HTTPError: 401 for an invalid token, 403 for a session without
    its CSRF token."""
    token = bearer_token(headers.get(b"authorization", b"").decode("latin-1"))
    if token is not None:
        try:
            return user_of_token(token)
        except TokenRefused as error:  # even if --script-role would permit the request without a token
            raise HTTPError(401, f"UNAUTHORIZED: {error}") from None
    if (named := user_of_scope(scope)) is not None:
        return named
    request = ASGIRequest(scope, BytesIO())
    request.session = SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    user = get_user(request)
    if not isinstance(user, User):
        return script(client_of(scope))
    if scope["method"] not in ("GET", "HEAD", "OPTIONS") and check_csrf(request) is not None:
        raise HTTPError(403, "CSRF_FAILED")
    user.via = "session"
    return user


def script(client: str) -> User | None:
    """The account for a request without sign-in, if the settings permit it."""
    nsqadmin = settings.NSQADMIN
    if nsqadmin.script_role == "none" or not within(client, nsqadmin.script_networks):
        return None
    user = User(username=SCRIPT, role=Role(nsqadmin.script_role))
    user.via = SCRIPT
    return user


def client_of(scope: dict[str, Any]) -> str:
    """The request's IP address, from accounts.forwarded."""
    return str((scope.get("client") or [""])[0])


def forbid_other_hosts(headers: dict[bytes, bytes]) -> None:
    """Refuse requests for other host names. Otherwise a site whose name resolves to this server could send requests
    from its pages as if they were ours."""
    host, _ = split_domain_port(headers.get(b"host", b"").decode("latin-1"))
    if host and not validate_host(host, settings.ALLOWED_HOSTS):
        raise HTTPError(400, "INVALID_HOST")


def forbid_other_sites(headers: dict[bytes, bytes]) -> None:
    """Refuse requests from pages of other sites, by the headers that browsers add."""
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        raise HTTPError(403, "FORBIDDEN")
    origin = headers.get(b"origin")
    if origin is not None and urlsplit(origin.decode("latin-1")).netloc.encode("latin-1") != headers.get(b"host"):
        raise HTTPError(403, "FORBIDDEN")
