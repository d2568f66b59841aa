"""Saving, changing and deleting views. Each checks permissions and is recorded in the audit trail."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import Http404

from nsqplatform.accounts.audit import record
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.saved_views.models import SavedView
from nsqplatform.saved_views.schemas import SavedViewChange, SavedViewIn, may_change

MAX_OWN = 200


def visible(user: User) -> QuerySet[SavedView]:
    """The user's own views, and all shared ones."""
    return SavedView.objects.filter(Q(owner=user) | Q(is_shared=True)).select_related("owner")


def visible_view(user: User, view_id: int) -> SavedView:
    """Raises Http404, also for another user's view that is not shared."""
    found = visible(user).filter(pk=view_id).first()
    if found is None:
        raise Http404(f"there is no view {view_id}, or it is not shared with you")
    return found


def save(*, values: SavedViewIn, by: User, remote_address: str) -> SavedView:
    """Save a view. Raises PermissionDenied, or ValidationError naming the field."""
    if values.is_shared:
        require(by, Permission.SHARE)
    if by.saved_views.count() >= MAX_OWN:
        raise ValidationError(f"you have {MAX_OWN} views; delete one first")
    view = save_view(SavedView(owner=by, **values.dict()))
    _record("save view", view, by, remote_address)
    return view


def change(*, view_id: int, values: SavedViewChange, by: User, remote_address: str) -> SavedView:
    """Change the values that are set. Raises PermissionDenied, Http404, or ValidationError naming the field."""
    view = _changeable(view_id, by)
    if values.is_shared:
        require(by, Permission.SHARE)
    for name in values.model_fields_set:
        setattr(view, name, getattr(values, name))
    save_view(view)
    _record("change view", view, by, remote_address)
    return view


def delete(*, view_id: int, by: User, remote_address: str) -> None:
    """Raises PermissionDenied or Http404."""
    view = _changeable(view_id, by)
    view.delete()
    _record("delete view", view, by, remote_address)


def save_view(view: SavedView) -> SavedView:
    """Save the view. Raises ValidationError for a name that is empty or taken, and for a view that is not shared and
    has no owner."""
    view.name = view.name.strip()
    if not view.name:
        raise ValidationError({"name": "a view needs a name"})
    if not view.is_shared and view.owner is None:
        raise ValidationError({"is_shared": "this view has no owner: nobody could see it"})
    try:
        with transaction.atomic():
            view.save()
    except IntegrityError:
        what = "a shared view" if view.is_shared or view.owner is None else f"a view of {view.owner.username}"
        raise ValidationError({"name": f"there is {what} named {view.name!r} already"}) from None
    return view


def _changeable(view_id: int, by: User) -> SavedView:
    view = visible_view(by, view_id)
    if view.is_shared:
        require(by, Permission.SHARE)
    if not may_change(view, by):
        raise PermissionDenied("only its owner and admins may change a shared view")
    return view


def _record(action: str, view: SavedView, by: User, remote_address: str) -> None:
    detail = f"{'shared' if view.is_shared else 'own'}: {view.address}"
    record(user=by, action=action, subject=view.name, detail=detail, remote_address=remote_address)
