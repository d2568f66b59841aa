"""Masks of topics: creating, changing and deleting them, and the paths that they hide from one person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404

from nsqplatform.accounts import audit
from nsqplatform.accounts.current_user import user_now
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission, Role, is_at_least
from nsqplatform.cluster.messages.hidden_paths import HiddenPaths, InvalidPath, checked_path
from nsqplatform.cluster.models import Mask
from nsqplatform.patterns import is_pattern


def hidden_paths(user: User, topic: str) -> HiddenPaths:
    """The paths that are hidden from ``user`` in the bodies of ``topic``, and the headers that are not.

    Every interface that returns bodies or headers calls this function, and applies the result to each of them.
    Raises PermissionDenied if the user may not read the topic.
    """
    require(user, Permission.READ, topic=topic)
    masks = [each for each in Mask.objects.all() if fnmatchcase(topic, each.topic_pattern)]
    hidden = [each for each in masks if not is_at_least(user.rights.role, Role(each.visible_to))]
    return HiddenPaths([path for each in hidden for path in each.paths], headers_of_all(hidden))


def headers_of_all(masks: Iterable[Mask]) -> Sequence[str]:
    """The headers that every one of the masks leaves visible."""
    common: list[str] | None = None
    for mask in masks:
        names = mask.visible_headers
        common = list(names) if common is None else [name for name in common if name in names]
    return common or []


def hidden_paths_now(user: User, topic: str) -> HiddenPaths:
    """As ``hidden_paths``, with the user's current role, which may have changed while a long response is sent."""
    return hidden_paths(user_now(username=user.username, via=user.via), topic)


def create(*, user: User, mask: Mask, remote_address: str) -> Mask:
    """Save a new mask, which applies at once. Raises PermissionDenied, and ValidationError by field."""
    require(user, Permission.MASK)
    checked_mask(mask)
    mask.created_by = user.username
    with transaction.atomic():
        mask.save()
        _record(user, "create mask", mask, described(mask), remote_address)
    return mask


def change(*, user: User, mask_id: int, values: Mapping[str, object], remote_address: str) -> Mask:
    """Change the fields in ``values``. Raises PermissionDenied, Http404, and ValidationError by field."""
    require(user, Permission.MASK)
    mask = _mask(mask_id)
    before = described(mask)
    for field, value in values.items():
        setattr(mask, field, value)
    checked_mask(mask)
    after = described(mask)
    with transaction.atomic():
        mask.save()
        _record(user, "change mask", mask, after if after == before else f"{before} → {after}", remote_address)
    return mask


def checked_mask(mask: Mask) -> Mask:
    """Return the mask if it can hide something. Raises ValidationError by field."""
    if not is_pattern(mask.topic_pattern):
        raise ValidationError(
            {"topic_pattern": f"{mask.topic_pattern!r} is not a glob of topic names, such as orders*"}
        )
    checked_paths(mask.paths)
    return mask


def checked_paths(paths: Sequence[str]) -> HiddenPaths:
    """The paths as HiddenPaths. Raises ValidationError that names each invalid path by its index."""
    faults = {}
    for index, path in enumerate(paths):
        try:
            checked_path(path)
        except InvalidPath as error:
            faults[f"paths.{index}"] = str(error)
    if faults:
        raise ValidationError(faults)
    return HiddenPaths(paths)


def delete(*, user: User, mask_id: int, remote_address: str) -> None:
    """Delete a mask, so that its values are shown again. Raises PermissionDenied and Http404."""
    require(user, Permission.MASK)
    mask = _mask(mask_id)
    with transaction.atomic():
        mask.delete()
        _record(user, "delete mask", mask, described(mask), remote_address)


def described(mask: Mask) -> str:
    shown = f"; shows headers {', '.join(mask.visible_headers)}" if mask.visible_headers else ""
    return f"{', '.join(mask.paths)}; visible to {mask.visible_to}{shown}"


def _mask(mask_id: int) -> Mask:
    mask = Mask.objects.filter(pk=mask_id).first()
    if mask is None:
        raise Http404(f"there is no mask {mask_id}")
    return mask


def _record(user: User, action: str, mask: Mask, detail: str, remote_address: str) -> None:
    audit.record(user=user, action=action, subject=mask.topic_pattern, detail=detail, remote_address=remote_address)
