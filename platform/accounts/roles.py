"""Who may do what. The one place with the rule."""

from __future__ import annotations

from enum import Enum

from django.db.models import TextChoices


class Role(TextChoices):
    """From the least to the most."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Permission(Enum):
    """What a role allows; the value completes "you may not …" in the message of a refusal."""

    VIEW = "look at the cluster"
    ACT = "pause, empty, delete or create anything"
    REPORT = "run or schedule reports"
    ADMINISTER = "manage accounts"


LEAST_ROLE: dict[Permission, Role] = {
    Permission.VIEW: Role.VIEWER,
    Permission.ACT: Role.OPERATOR,
    Permission.REPORT: Role.OPERATOR,
    Permission.ADMINISTER: Role.ADMIN,
}

_RANK = {role: rank for rank, role in enumerate(Role)}


def allows(role: str, permission: Permission) -> bool:
    """Tell whether ``role`` reaches what ``permission`` asks for; an unknown role reaches nothing."""
    return role in Role.values and _RANK[Role(role)] >= _RANK[LEAST_ROLE[permission]]
