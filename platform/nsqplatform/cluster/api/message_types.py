"""Message types: descriptors with which the web app decodes Protocol Buffers."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import AfterValidator, Field

from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Line, Message
from nsqplatform.cluster.messages import types
from nsqplatform.cluster.models import MessageType
from nsqplatform.unix_time import unix_ms
from nsqwire.units import Milliseconds

router = Router(tags=["messages"])
REFUSALS = {401: Message, 403: Message}


def _descriptors(encoded: str) -> str:
    types.read(encoded)
    return encoded


class MessageTypeIn(Schema):
    topic_pattern: Line = Field(min_length=1, max_length=64, description="a glob, as in operators' topic patterns")
    name: Line = Field(min_length=1, max_length=200, description="full name of a message type, such as shop.v1.Order")
    descriptors: Annotated[str, AfterValidator(_descriptors)] = Field(
        min_length=1,
        max_length=2 * types.LARGEST_BYTES,
        description="base64 of a FileDescriptorSet of at most 1 MiB, imports included",
    )


class MessageTypeOut(Schema):
    id: int
    topic_pattern: str
    name: str
    created_by: str
    created_at: Milliseconds = Field(description="Unix milliseconds")


class MessageTypesOut(Schema):
    types: list[MessageTypeOut] = Field(description="by topic pattern and name")


@router.get("message-types", auth=needs(Permission.READ), response={200: MessageTypesOut, **REFUSALS})
def list_message_types(request: HttpRequest) -> MessageTypesOut:
    """All message types, without their descriptors."""
    return MessageTypesOut(types=[described(each) for each in MessageType.objects.defer("descriptors")])


@router.get(
    "message-types/{int:type_id}/descriptors",
    auth=needs(Permission.READ),
    response={200: None, 404: Message, **REFUSALS},
)
def message_type_descriptors(request: HttpRequest, type_id: int) -> HttpResponse:
    """The FileDescriptorSet as it was uploaded."""
    return HttpResponse(types.descriptors_of(type_id), content_type="application/octet-stream")


@router.post(
    "message-types", auth=needs(Permission.DESCRIBE), response={201: MessageTypeOut, 422: InvalidRequest, **REFUSALS}
)
def create_message_type(request: HttpRequest, body: MessageTypeIn) -> tuple[int, MessageTypeOut]:
    """Create a message type. The web app decodes the messages of matching topics as this type. A file that is invalid
    or lacks the type is refused."""
    made = types.create(
        user=caller(request),
        topic_pattern=body.topic_pattern,
        name=body.name,
        descriptors=body.descriptors,
        remote_address=remote_address(request),
    )
    return 201, described(made)


@router.delete(
    "message-types/{int:type_id}",
    auth=needs(Permission.DESCRIBE),
    response={204: None, 404: Message, **REFUSALS},
)
def delete_message_type(request: HttpRequest, type_id: int) -> tuple[int, None]:
    """Delete a message type. Messages are no longer decoded as this type."""
    types.delete(user=caller(request), type_id=type_id, remote_address=remote_address(request))
    return 204, None


def described(of: MessageType) -> MessageTypeOut:
    return MessageTypeOut.model_validate(
        {
            "id": of.pk,
            "topic_pattern": of.topic_pattern,
            "name": of.name,
            "created_by": of.created_by,
            "created_at": unix_ms(of.created_at),
        }
    )
