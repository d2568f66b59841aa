"""Bodies of the saved views' API."""

from __future__ import annotations

import re
from typing import Annotated

from ninja import Schema
from pydantic import AfterValidator, ConfigDict, Field

from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.accounts.schemas import Line
from nsqplatform.saved_views.models import SavedView

_ADDRESS = re.compile(r"/(?![/\\])[^\s\\#]*")


def _page_of_this_site(address: str) -> str:
    """Refuse addresses of other sites: browsers read ``//host`` and ``/\\host`` as such."""
    if not _ADDRESS.fullmatch(address):
        raise ValueError("this is not the path of a page, such as /topics?q=orders")
    return address


Address = Annotated[Line, AfterValidator(_page_of_this_site)]


class SavedViewIn(Schema):
    model_config = ConfigDict(extra="forbid")

    name: Line = Field(min_length=1, max_length=100)
    address: Address = Field(max_length=2000, description="path and query of a page, such as /topics?q=orders")
    is_shared: bool = Field(False, description="for all users, not only for its owner")


class SavedViewChange(SavedViewIn):
    """Only the given values are changed."""

    name: Line = Field("", min_length=1, max_length=100)
    address: Address = Field("/", max_length=2000)


class SavedViewOut(Schema):
    id: int
    name: str
    address: str
    is_shared: bool
    owner: str = Field(description="empty for a shared view without an owner")
    is_own: bool
    may_change: bool = Field(description="whether the caller may rename, change and delete it")


class SavedViewsOut(Schema):
    views: list[SavedViewOut] = Field(description="the caller's own and all shared ones, by name")


def may_change(view: SavedView, user: User) -> bool:
    """Owners may change their views, shared ones only while they may share; admins may change all shared views."""
    if view.owner_id == user.pk:
        return not view.is_shared or user.may(Permission.SHARE)
    return view.is_shared and user.may(Permission.SHARE) and user.rights.role == Role.ADMIN


def view_detail(view: SavedView, user: User) -> SavedViewOut:
    return SavedViewOut(
        id=view.pk,
        name=view.name,
        address=view.address,
        is_shared=view.is_shared,
        owner=view.owner.username if view.owner else "",
        is_own=view.owner_id == user.pk,
        may_change=may_change(view, user),
    )
