"""Roles, their permissions, and the topics to which these apply."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import NamedTuple

from django.conf import settings
from django.db.models import TextChoices


class Role(TextChoices):
    """In order of increasing permissions."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Rights(NamedTuple):
    """The role of an account in one cluster, and the topics to which it applies. ``role`` is empty without access."""

    role: str
    topic_patterns: tuple[str, ...] = ()


class Permission(Enum):
    """A permission of roles; the value completes "may not …" in the message of a refusal."""

    VIEW = "view the cluster"
    ACT = "act on topics and channels"
    PUBLISH = "publish messages"
    READ = "read messages"
    REPORT = "run reports"
    SCHEDULE = "schedule reports"
    MAINTAIN = "compact, roll up or drop parts of the archive"
    ATTEND = "acknowledge, close or silence alerts"
    ALERT = "define alert rules, notifiers and objectives"
    SHARE = "share saved views"
    MARK = "post or delete marks"
    MASK = "define masks"
    DESCRIBE = "define message types"
    ADMINISTER = "manage accounts"


_LEAST_ROLE: dict[Permission, Role] = {
    Permission.VIEW: Role.VIEWER,
    Permission.ACT: Role.OPERATOR,
    Permission.PUBLISH: Role.OPERATOR,
    Permission.REPORT: Role.OPERATOR,
    Permission.SCHEDULE: Role.ADMIN,
    Permission.MAINTAIN: Role.ADMIN,
    Permission.ATTEND: Role.OPERATOR,
    Permission.ALERT: Role.ADMIN,
    Permission.SHARE: Role.OPERATOR,
    Permission.MARK: Role.OPERATOR,
    Permission.MASK: Role.ADMIN,
    Permission.DESCRIBE: Role.OPERATOR,
    Permission.ADMINISTER: Role.ADMIN,
}

_RANK = {role: rank for rank, role in enumerate(Role)}


def least_role(permission: Permission) -> Role:
    """The lowest role with the permission. For READ it is ``--message-role``, because bodies can be confidential."""
    return Role(settings.NSQADMIN.message_role) if permission is Permission.READ else _LEAST_ROLE[permission]


def allows(role: str, permission: Permission) -> bool:
    """Return whether ``role`` has ``permission``; an unknown role has none."""
    return is_at_least(role, least_role(permission))


def is_at_least(role: str, least: Role) -> bool:
    """Return whether ``role`` is ``least`` or higher; an unknown role is not."""
    return role in Role.values and _RANK[Role(role)] >= _RANK[least]


def covers(role: str, patterns: Sequence[str], topic: str) -> bool:
    """Return whether the permissions of ``role`` apply to ``topic``.

    An operator's patterns are shell globs (``orders.*``); without patterns, all topics match. Viewers cannot change
    anything, and admins are not restricted.
    """
    if role != Role.OPERATOR or not patterns:
        return True
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


def covers_pattern(role: str, patterns: Sequence[str], pattern: str) -> bool:
    """Return whether the permissions of ``role`` apply to all topics that match the glob ``pattern``.

    A glob with ``?`` or ``[`` among ``patterns`` covers only itself; ``*`` also covers the wildcards of others.
    """
    if role != Role.OPERATOR or not patterns:
        return True
    wide = [own for own in patterns if not set(own) & set("?[")]
    return pattern in patterns or any(fnmatchcase(pattern, own) for own in wide)


def higher(one: Role, other: Role) -> Role:
    return max(one, other, key=_RANK.__getitem__)


def lower(one: Role, other: Role) -> Role:
    return min(one, other, key=_RANK.__getitem__)
