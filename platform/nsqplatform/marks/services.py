"""Posting and deleting marks. Both check permissions and are recorded in the audit trail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404
from django.utils import timezone

from nsqplatform.accounts.audit import record
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require_pattern
from nsqplatform.accounts.roles import Permission
from nsqplatform.marks.models import EVERYTHING, Mark
from nsqplatform.patterns import is_pattern, matcher

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
CLOCKS_DIFFER = timedelta(minutes=1)
"""How much later than here a mark may be: the clock of another machine may be ahead."""


def post(*, text: str, at: datetime | None, topic_pattern: str, by: User, remote_address: str) -> Mark:
    """Save a mark; without ``at``, of now. Marks that were posted before ``--audit-retention`` are deleted.

    Raises PermissionDenied, or ValidationError naming the field.
    """
    if not (text := text.strip()):
        raise ValidationError({"text": "a mark needs a text"})
    if not is_pattern(topic_pattern):
        raise ValidationError({"topic_pattern": f"{topic_pattern!r} is not a glob of topic names, such as orders*"})
    require_pattern(by, Permission.MARK, topic_pattern)
    now = timezone.now()
    if at is not None and at > now + CLOCKS_DIFFER:
        raise ValidationError({"at": "this time is in the future; a mark says what has happened"})
    if at is not None and at < EARLIEST:
        raise ValidationError({"at": "this time is before 1970"})
    mark = Mark(text=text, at=at or now, topic_pattern=topic_pattern, created_by=by.username)
    with transaction.atomic():
        if keep := settings.NSQADMIN.audit_retention:
            Mark.objects.filter(created_at__lt=now - keep).delete()
        mark.save()
        _record("post mark", mark, by, remote_address)
    return mark


def delete(*, mark_id: int, by: User, remote_address: str) -> None:
    """Raises PermissionDenied or Http404."""
    mark = Mark.objects.filter(pk=mark_id).first()
    if mark is None:
        raise Http404(f"there is no mark {mark_id}")
    require_pattern(by, Permission.MARK, mark.topic_pattern)
    with transaction.atomic():
        if not Mark.objects.filter(pk=mark_id).delete()[0]:
            raise Http404(f"there is no mark {mark_id}")  # another request was first
        _record("delete mark", mark, by, remote_address)


def marks(since: datetime, until: datetime, *, topic: str = "", everything: bool = False) -> Iterator[Mark]:
    """Yield the marks from ``since`` on and before ``until``, newest first: of one topic, of ``everything`` (with the
    pattern ``*``), or all."""
    found = Mark.objects.filter(at__gte=since, at__lt=until)
    if everything:
        found = found.filter(topic_pattern=EVERYTHING)
    for mark in found.iterator():
        if not topic or matcher(mark.topic_pattern)(topic):
            yield mark


def _record(action: str, mark: Mark, by: User, remote_address: str) -> None:
    detail = f"{mark.at:%Y-%m-%d %H:%M:%S} UTC, topics {mark.topic_pattern}"
    record(user=by, action=action, subject=mark.text, detail=detail, remote_address=remote_address)
