"""Admins' management of accounts: invite, change, close. Each change is recorded in the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from django.core.exceptions import ValidationError
from django.db import transaction
from typing_extensions import TypedDict

from nsqplatform.accounts import audit
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.accounts.schemas import ClusterRole
from nsqplatform.accounts.services import INVITATION_LIFETIME, create_account, one_time_link
from nsqplatform.accounts.sessions import end_sessions
from nsqplatform.clusters import current
from nsqplatform.patterns import is_pattern


class StoredRole(TypedDict):
    """A role in one cluster, as in User.cluster_roles."""

    role: str
    topic_patterns: list[str]


ClusterRoles: TypeAlias = Mapping[str, StoredRole]
"""As User.cluster_roles."""
MAX_PATTERNS = 50


def checked_patterns(patterns: Sequence[str]) -> list[str]:
    """The globs in order, without duplicates. Raises ValidationError naming one that can match no topic."""
    if len(patterns) > MAX_PATTERNS:
        raise ValidationError({"topic_patterns": f"at most {MAX_PATTERNS}"})
    for pattern in patterns:
        if not is_pattern(pattern):
            raise ValidationError({"topic_patterns": f"{pattern!r} is not a glob of topic names, such as orders*"})
    return list(dict.fromkeys(patterns))


def stored_roles(roles: Mapping[str, ClusterRole]) -> ClusterRoles:
    """The roles of a request or of a file of definitions, as accounts store them."""
    return {
        cluster: StoredRole(role=each.role, topic_patterns=list(each.topic_patterns)) for cluster, each in roles.items()
    }


def checked_roles(roles: ClusterRoles) -> ClusterRoles:
    """The roles in single clusters. Raises ValidationError for a cluster that is not declared, or a wrong pattern."""
    for cluster in roles:
        if cluster not in current.names():
            raise ValidationError({"cluster_roles": f"there is no cluster {cluster!r}"})
    return {name: {**of, "topic_patterns": checked_patterns(of["topic_patterns"])} for name, of in roles.items()}


def invite(
    *,
    by: User,
    username: str,
    role: Role,
    topic_patterns: Sequence[str],
    everywhere: bool = True,
    cluster_roles: ClusterRoles | None = None,
    remote_address: str,
) -> tuple[User, str]:
    """Create an account without a password. Return it, and the path of a link that signs it in once.

    Raises PermissionDenied; ValidationError for a name that is taken or malformed, a malformed pattern, or a cluster
    that is not declared.
    """
    require(by, Permission.ADMINISTER)
    patterns = checked_patterns(topic_patterns)
    with transaction.atomic():
        user = create_account(
            username=username,
            role=role,
            topic_patterns=patterns,
            everywhere=everywhere,
            cluster_roles=checked_roles(cluster_roles or {}),
        )
        link = one_time_link(user, lifetime=INVITATION_LIFETIME)
        audit.record(user=by, action="invite", subject=username, detail=described(user), remote_address=remote_address)
    return user, link


def new_link(*, by: User, user: User, remote_address: str) -> str:
    """Create another sign-in link, for an owner who lost the first one or the password.

    Raises PermissionDenied; ValidationError for a closed account.
    """
    require(by, Permission.ADMINISTER)
    if not user.is_active:
        raise ValidationError("this account is closed: open it first")
    link = one_time_link(user, lifetime=INVITATION_LIFETIME)
    audit.record(user=by, action="sign-in link", subject=user.username, remote_address=remote_address)
    return link


def change(
    *,
    by: User,
    user_id: int,
    role: Role | None = None,
    topic_patterns: Sequence[str] | None = None,
    everywhere: bool | None = None,
    cluster_roles: ClusterRoles | None = None,
    is_active: bool | None = None,
    remote_address: str,
) -> User:
    """Change the given values. Closing an account ends its sessions and links.

    Raises PermissionDenied and User.DoesNotExist; ValidationError for a malformed pattern, if no admin would remain, or
    if ``by`` closes their own account.
    """
    require(by, Permission.ADMINISTER)
    with transaction.atomic():
        user = User.objects.select_for_update().get(pk=user_id)
        before = described(user)
        if role is not None:
            user.role = role
        if topic_patterns is not None:
            user.topic_patterns = checked_patterns(topic_patterns)
        if everywhere is not None:
            user.everywhere = everywhere
        if cluster_roles is not None:
            user.cluster_roles = checked_roles(cluster_roles)
        if is_active is not None:
            user.is_active = is_active
        save_person(user, by=by)
        record_change(user, before=before, by=by, remote_address=remote_address)
    return user


def record_change(user: User, *, before: str, by: User, remote_address: str, reason: str = "") -> None:
    """Add the change of an account to the audit trail, unless it is as before. ``before``: what ``described``
    returned."""
    after = described(user)
    if after != before:
        detail = f"{before} → {after}{reason and ', '}{reason}"
        audit.record(
            user=by, action="change account", subject=user.username, detail=detail, remote_address=remote_address
        )


def save_person(user: User, *, by: User) -> None:
    """Save role, patterns and whether the account is open, without an audit entry. Closing ends its sessions and links.

    Needs a transaction. Raises ValidationError if no admin would remain, or if ``by`` closes their own account.
    """
    admins = list(User.objects.select_for_update().filter(role=Role.ADMIN, everywhere=True, is_active=True))
    if [admin.pk for admin in admins] == [user.pk] and not (
        user.role == Role.ADMIN and user.everywhere and user.is_active
    ):
        raise ValidationError("this is the last admin: make another one first")
    if user.pk == by.pk and not user.is_active:
        raise ValidationError("you cannot close your own account")
    user.save(update_fields=["role", "topic_patterns", "everywhere", "cluster_roles", "is_active"])
    if not user.is_active:
        end_sessions(user)
        user.one_time_links.all().delete()


def described(user: User) -> str:
    own = [f"{_role_on(of['role'], of['topic_patterns'])} in {name}" for name, of in sorted(user.cluster_roles.items())]
    general = [_role_on(user.role, user.topic_patterns)] if user.everywhere else []
    return f"{', '.join(general + own) or 'no role'}{'' if user.is_active else ', closed'}"


def _role_on(role: str, patterns: Sequence[str]) -> str:
    return f"{role} on {', '.join(patterns)}" if role == Role.OPERATOR and patterns else role
