"""Sign-in by a header that a proxy sets: ``--acl-http-header``, ``--admin-user`` and the related settings.

The header is trusted only from addresses in ``--trusted-proxy-cidr``, and only if an admin or operator is named or
``--header-sign-in`` is given. Otherwise, anyone who reaches the platform past the proxy could use any account.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse

from nsqplatform.accounts import audit
from nsqplatform.accounts.forwarded import peer_of_request
from nsqplatform.accounts.models import User
from nsqplatform.accounts.networks import within
from nsqplatform.accounts.roles import Role, higher

_valid_name = UnicodeUsernameValidator()


def user_of_header(name: str | None, peer: str) -> User | None:
    """The account that the header names. None without a name, if ``peer`` (an IP) is not trusted, if the settings
    refuse the name, if it is not a valid user name, or if the account is closed.

    The account is created if it does not exist. Its role is the higher one of its own and that in the settings; the
    latter is never stored, so it ends with the setting.
    """
    nsqadmin = settings.NSQADMIN
    if not nsqadmin.believes_header or not name:
        return None
    if not within(peer, nsqadmin.proxy_networks):
        audit.refused(
            user=None,
            action="sign-in",
            subject=f"header naming {name}",
            detail="the sign-in header came from an address that is not trusted",
            remote_address=peer,
        )
        return None
    role = role_of_name(name)
    if role is None or not usable(name):
        return None
    user, made = User.objects.get_or_create(username=name, defaults={"role": Role.VIEWER, "password": "!"})
    if made:
        audit.record(user=user, action="first sign-in by header", subject=name, remote_address=peer)
    if not user.is_active:
        return None
    user.role = higher(Role(user.role), role)
    user.via = "header"
    return user


def role_of_name(name: str) -> Role | None:
    """The role that the settings give to a name in the header; None if they refuse it."""
    nsqadmin = settings.NSQADMIN
    if name in nsqadmin.admin_user:
        return Role.ADMIN
    if name in nsqadmin.operator_user:
        return Role.OPERATOR
    return None if nsqadmin.header_role == "none" else Role(nsqadmin.header_role)


def usable(name: str) -> bool:
    try:
        _valid_name(name)
    except ValidationError:
        return False
    return len(name) <= 150


class HeaderSignIn:
    """Django middleware that signs in a request by its header, regardless of its session cookie."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        name = request.headers.get(settings.NSQADMIN.acl_http_header)
        user = user_of_header(name, peer_of_request(request)) if name else None
        if user is not None:
            request.user = user
        return self.get_response(request)
