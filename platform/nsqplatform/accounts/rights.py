"""The permission check that every action makes before it begins, through every interface."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied

from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Permission, allows


def require(user: User, permission: Permission, *, topic: str | None = None) -> None:
    """Raise PermissionDenied with a message unless ``user`` has the permission, with ``topic`` for that topic."""
    if user.may(permission, topic):
        return
    if user.is_active and allows(user.role, permission):
        raise PermissionDenied(f"you may act on topics {', '.join(user.topic_patterns)}, not on {topic}")
    whose = "this token's" if user.via.startswith("token") else "your"
    raise PermissionDenied(f"{whose} role, {user.role}, may not {permission.value}")
