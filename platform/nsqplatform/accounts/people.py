"""Admins' management of accounts: invite, change, close. Each change is recorded in the audit trail."""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.core.exceptions import ValidationError
from django.db import transaction

from nsqplatform.accounts import audit
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.accounts.services import INVITATION_LIFETIME, create_account, one_time_link
from nsqplatform.accounts.sessions import end_sessions

MAX_PATTERNS = 50
_pattern = re.compile(r"[.a-zA-Z0-9_\-#*?\[\]!]{1,64}")


def is_pattern(text: str) -> bool:
    """Whether this glob can match the name of a topic or channel."""
    return _pattern.fullmatch(text) is not None


def checked_patterns(patterns: Sequence[str]) -> list[str]:
    """The globs in order, without duplicates. Raises ValidationError naming one that can match no topic."""
    if len(patterns) > MAX_PATTERNS:
        raise ValidationError({"topic_patterns": f"at most {MAX_PATTERNS}"})
    for pattern in patterns:
        if not is_pattern(pattern):
            raise ValidationError({"topic_patterns": f"{pattern!r} is no glob of topic names, such as orders.*"})
    return list(dict.fromkeys(patterns))


def invite(
    *, by: User, username: str, role: Role, topic_patterns: Sequence[str], remote_address: str
) -> tuple[User, str]:
    """Create an account without a password. Return it, and the path of a link that signs it in once.

    Raises PermissionDenied; ValidationError for a name that is taken or malformed, or a malformed pattern.
    """
    require(by, Permission.ADMINISTER)
    patterns = checked_patterns(topic_patterns)
    with transaction.atomic():
        user = create_account(username=username, role=role, topic_patterns=patterns)
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
    is_active: bool | None = None,
    remote_address: str,
) -> User:
    """Change the given values. Closing an account ends its sessions and links.

    Raises PermissionDenied and User.DoesNotExist; ValidationError for a malformed pattern, if no admin would remain, or
    if ``by`` closes their own account.
    """
    require(by, Permission.ADMINISTER)
    with transaction.atomic():
        admins = list(
            User.objects.select_for_update().filter(role=Role.ADMIN, is_active=True).values_list("pk", flat=True)
        )
        user = User.objects.select_for_update().get(pk=user_id)
        before = described(user)
        if role is not None:
            user.role = role
        if topic_patterns is not None:
            user.topic_patterns = checked_patterns(topic_patterns)
        if is_active is not None:
            user.is_active = is_active
        if admins == [user.pk] and not (user.role == Role.ADMIN and user.is_active):
            raise ValidationError("this is the last admin: make another one first")
        if user.pk == by.pk and not user.is_active:
            raise ValidationError("you cannot close your own account")
        user.save(update_fields=["role", "topic_patterns", "is_active"])
        if not user.is_active:
            end_sessions(user)
            user.one_time_links.all().delete()
        after = described(user)
        if after != before:
            audit.record(
                user=by,
                action="change account",
                subject=user.username,
                detail=f"{before} → {after}",
                remote_address=remote_address,
            )
    return user


def described(user: User) -> str:
    limit = f" on {', '.join(user.topic_patterns)}" if user.role == Role.OPERATOR and user.topic_patterns else ""
    return f"{user.role}{limit}{'' if user.is_active else ', closed'}"
