"""Sign-in by a header that a proxy sets: ``--acl-http-header``, ``--admin-user`` and the related settings.

The header is trusted only from addresses in ``--trusted-proxy-cidr``, and only if an admin or operator is named or
``--header-sign-in`` is given. Otherwise, anyone who reaches the platform past the proxy could use any account.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError

from nsqplatform.accounts import audit
from nsqplatform.accounts.models import User
from nsqplatform.accounts.networks import within
from nsqplatform.accounts.roles import Role

_valid_name = UnicodeUsernameValidator()


def user_of_header(name: str | None, peer: str) -> User | None:
    """The account that the header names. None without a name, if ``peer`` (an IP) is not trusted, if the settings
    refuse the name, if it is not a valid user name, or if the account is closed or signs in with the identity provider.

    The account is created if it does not exist. It has the higher of its own role and the role in the settings. The
    latter is not stored, so it applies only while it is set.
    """
    nsqadmin = settings.NSQADMIN
    if not nsqadmin.trusts_header or not name:
        return None
    if not within(peer, nsqadmin.proxy_networks):
        _refused(name, peer, "the sign-in header came from an address that is not trusted")
        return None
    role = role_of_name(name)
    if role is None or not usable(name):
        return None
    accounts = User.objects.select_related("identity")
    user, made = accounts.get_or_create(username=name, defaults={"role": Role.VIEWER, "password": "!"})
    if made:
        audit.record(user=user, action="first sign-in by header", subject=name, remote_address=peer)
    elif hasattr(user, "identity"):  # the proxy and the identity provider may know two people by one name
        _refused(name, peer, "the account of this name signs in with the identity provider")
        return None
    if not user.is_active:
        return None
    user.given = role
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


def has_given_role(name: str) -> bool:
    """Whether the settings give this name a role for sign-in by header."""
    nsqadmin = settings.NSQADMIN
    return bool(nsqadmin.trusts_header) and name in (*nsqadmin.admin_user, *nsqadmin.operator_user)


def _refused(name: str, peer: str, why: str) -> None:
    audit.refused(user=None, action="sign-in", subject=f"header naming {name}", detail=why, remote_address=peer)


def usable(name: str) -> bool:
    try:
        _valid_name(name)
    except ValidationError:
        return False
    return len(name) <= 150
