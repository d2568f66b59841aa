"""The permission check that every action makes before it begins, through every interface."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied

from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Permission, allows, covers_pattern
from nsqplatform.clusters import current


def require_pattern(user: User, permission: Permission, pattern: str) -> None:
    """Raise PermissionDenied unless ``user`` has the permission on all topics that match the glob ``pattern``."""
    require(user, permission)
    rights = user.rights
    if not covers_pattern(rights.role, rights.topic_patterns, pattern):
        raise PermissionDenied(f"you may act on topics {', '.join(rights.topic_patterns)}, not on all of {pattern}")


def require(user: User, permission: Permission, *, topic: str | None = None) -> None:
    """Raise PermissionDenied with a message unless ``user`` has the permission; with ``topic``, on that topic."""
    if user.may(permission, topic):
        return
    rights = user.rights_over_platform if permission is Permission.ADMINISTER else user.rights
    if user.is_active and allows(rights.role, permission):
        raise PermissionDenied(f"you may act on topics {', '.join(rights.topic_patterns)}, not on {topic}")
    whose = "this token's" if user.is_by_token else "your"
    if not user.rights.role:
        raise PermissionDenied(f"{whose} account has no role in the cluster {current.title()}")
    raise PermissionDenied(f"{whose} role, {user.rights.role}, may not {permission.value}")
