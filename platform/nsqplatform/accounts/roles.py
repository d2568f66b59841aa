"""Who may do what, and to which topics. The one place with the rule."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from fnmatch import fnmatchcase

from django.conf import settings
from django.db.models import TextChoices


class Role(TextChoices):
    """From the least to the most."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Permission(Enum):
    """What a role allows; the value completes "may not …" in the message of a refusal."""

    VIEW = "look at the cluster"
    ACT = "pause, empty, delete or create anything"
    PUBLISH = "publish messages"
    READ = "look into messages"
    REPORT = "run reports"
    SCHEDULE = "schedule reports"
    MAINTAIN = "compact, roll up or drop parts of the archive"
    ATTEND = "acknowledge, close or silence alerts"
    ALERT = "define alert rules and notifiers"
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
    Permission.ADMINISTER: Role.ADMIN,
}

_RANK = {role: rank for rank, role in enumerate(Role)}


def least_role(permission: Permission) -> Role:
    """Who may; who may look into messages is for ``--message-role`` to say, since bodies can be confidential."""
    return Role(settings.NSQADMIN.message_role) if permission is Permission.READ else _LEAST_ROLE[permission]


def allows(role: str, permission: Permission) -> bool:
    """Tell whether ``role`` reaches what ``permission`` asks for; an unknown role reaches nothing."""
    return role in Role.values and _RANK[Role(role)] >= _RANK[least_role(permission)]


def covers(role: str, patterns: Sequence[str], topic: str) -> bool:
    """Tell whether what ``role`` allows reaches ``topic``.

    An operator's patterns are globs as a shell has them (``orders.*``); without any, all topics are theirs. Viewers
    change nothing anyway, and admins, who could lift the limit, have none.
    """
    if role != Role.OPERATOR or not patterns:
        return True
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


def higher(one: Role, other: Role) -> Role:
    return max(one, other, key=_RANK.__getitem__)


def lower(one: Role, other: Role) -> Role:
    return min(one, other, key=_RANK.__getitem__)
