"""Masks: values that are hidden in the bodies and headers of messages."""

from __future__ import annotations

from typing import Literal

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Line, Message
from nsqplatform.cluster.messages import masks
from nsqplatform.cluster.messages.hidden_paths import Visibility
from nsqplatform.cluster.messages.mask_values import HeaderNames, MaskValues, Paths
from nsqplatform.cluster.models import Mask
from nsqplatform.unix_time import unix_ms
from nsqwire.units import Milliseconds

router = Router(tags=["messages"])
MAX_PREVIEWED = 16_384


class MaskChange(Schema):
    """Only the given values are changed."""

    topic_pattern: Line = Field("", min_length=1, max_length=64)
    paths: Paths = []
    visible_to: Literal["operator", "admin"] = "admin"
    visible_headers: HeaderNames = []


class MaskPreviewIn(Schema):
    paths: Paths
    body: str = Field(max_length=MAX_PREVIEWED, description="a message's body, as text")


class MaskPreviewOut(Schema):
    body: str = Field(description="the body as lower roles see it; empty if it is withheld")
    visibility: Visibility


class MaskOut(Schema):
    id: int
    topic_pattern: str
    paths: list[str]
    visible_to: Literal["operator", "admin"]
    visible_headers: list[str] = Field(description="names of the headers whose values are not hidden")
    created_by: str
    created_at: Milliseconds = Field(description="Unix milliseconds")


class MasksOut(Schema):
    masks: list[MaskOut]


@router.get("masks", auth=needs(Permission.VIEW), response={200: MasksOut, 401: Message, 403: Message})
def list_masks(request: HttpRequest) -> MasksOut:
    """All masks, by topic pattern."""
    return MasksOut(masks=[described(mask) for mask in Mask.objects.all()])


@router.post(
    "masks",
    auth=needs(Permission.MASK),
    response={201: MaskOut, 401: Message, 403: Message, 422: InvalidRequest},
)
def create_mask(request: HttpRequest, body: MaskValues) -> tuple[int, MaskOut]:
    """Create a mask. It hides values in the messages of matching topics from lower roles, in every interface of the
    platform, from now on."""
    mask = masks.create(user=caller(request), mask=Mask(**body.dict()), remote_address=remote_address(request))
    return 201, described(mask)


@router.patch(
    "masks/{int:mask_id}",
    auth=needs(Permission.MASK),
    response={200: MaskOut, 401: Message, 403: Message, 404: Message, 422: InvalidRequest},
)
def change_mask(request: HttpRequest, mask_id: int, body: MaskChange) -> MaskOut:
    """Change the topics, paths, role or visible headers of a mask."""
    mask = masks.change(
        user=caller(request),
        mask_id=mask_id,
        values=body.dict(exclude_unset=True),
        remote_address=remote_address(request),
    )
    return described(mask)


@router.post(
    "masks/preview",
    auth=needs(Permission.MASK),
    response={200: MaskPreviewOut, 401: Message, 403: Message, 422: InvalidRequest},
)
def preview_mask(request: HttpRequest, body: MaskPreviewIn) -> MaskPreviewOut:
    """Return a body as a mask with these paths would show it. Nothing is stored."""
    visible = masks.checked_paths(body.paths).visible(body.body.encode())
    return MaskPreviewOut(body=visible.body.decode(), visibility=visible.visibility)


@router.delete(
    "masks/{int:mask_id}",
    auth=needs(Permission.MASK),
    response={204: None, 401: Message, 403: Message, 404: Message},
)
def delete_mask(request: HttpRequest, mask_id: int) -> tuple[int, None]:
    """Delete a mask. Its values are shown again from now on."""
    masks.delete(user=caller(request), mask_id=mask_id, remote_address=remote_address(request))
    return 204, None


def described(mask: Mask) -> MaskOut:
    return MaskOut.model_validate(
        {
            "id": mask.pk,
            "topic_pattern": mask.topic_pattern,
            "paths": mask.paths,
            "visible_to": mask.visible_to,
            "visible_headers": mask.visible_headers,
            "created_by": mask.created_by,
            "created_at": unix_ms(mask.created_at),
        }
    )
