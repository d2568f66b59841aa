"""``/api/v1/views``: saved views."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router, Status

from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.saved_views import services
from nsqplatform.saved_views.schemas import SavedViewChange, SavedViewIn, SavedViewOut, SavedViewsOut, view_detail

router = Router(tags=["views"])
REFUSALS = {401: Message, 403: Message, 404: Message, 422: InvalidRequest}


@router.get("", auth=needs(Permission.VIEW), response={200: SavedViewsOut, **REFUSALS})
def views(request: HttpRequest) -> SavedViewsOut:
    """The caller's own views, and all shared ones."""
    user = caller(request)
    return SavedViewsOut(views=[view_detail(view, user) for view in services.visible(user)])


@router.get("{int:view_id}", auth=needs(Permission.VIEW), response={200: SavedViewOut, **REFUSALS})
def view(request: HttpRequest, view_id: int) -> SavedViewOut:
    """One view."""
    return view_detail(services.visible_view(caller(request), view_id), caller(request))


@router.post("", auth=needs(Permission.VIEW), response={201: SavedViewOut, **REFUSALS})
def save_view(request: HttpRequest, body: SavedViewIn) -> Status[SavedViewOut]:
    """Save a page's address under a name. Sharing it requires the operator role."""
    saved = services.save(values=body, by=caller(request), remote_address=remote_address(request))
    return Status(201, view_detail(saved, caller(request)))


@router.patch("{int:view_id}", auth=needs(Permission.VIEW), response={200: SavedViewOut, **REFUSALS})
def change_view(request: HttpRequest, view_id: int, body: SavedViewChange) -> SavedViewOut:
    """Rename a view, change its address, share it or not: the caller's own view, or as an admin a shared one."""
    user = caller(request)
    changed = services.change(view_id=view_id, values=body, by=user, remote_address=remote_address(request))
    return view_detail(changed, user)


@router.delete("{int:view_id}", auth=needs(Permission.VIEW), response={204: None, **REFUSALS})
def delete_view(request: HttpRequest, view_id: int) -> Status[None]:
    """Delete a view: the caller's own, or as an admin a shared one."""
    services.delete(view_id=view_id, by=caller(request), remote_address=remote_address(request))
    return Status(204, None)
