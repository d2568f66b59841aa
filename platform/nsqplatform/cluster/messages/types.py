"""Protocol Buffers message types of topics: checking, creating and deleting them. The web app decodes bodies with them.

Bodies are not decoded here: a browser decodes only the bytes that its user may see, so masks apply as usual.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence

from django.core.exceptions import ValidationError
from django.http import Http404
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from nsqplatform.accounts import audit
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require, require_pattern
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster.models import MessageType
from nsqplatform.patterns import is_pattern

LARGEST_BYTES = 1 << 20
MAX_TYPES = 200
"""In one cluster."""


class InvalidDescriptors(ValueError):
    """An upload is not a FileDescriptorSet; the text says why."""


def create(*, user: User, topic_pattern: str, name: str, descriptors: str, remote_address: str) -> MessageType:
    """Store ``descriptors``, base64 of a FileDescriptorSet. Raises PermissionDenied, and ValidationError by field."""
    require(user, Permission.DESCRIBE)
    if not is_pattern(topic_pattern):
        raise ValidationError({"topic_pattern": f"{topic_pattern!r} is not a glob of topic names, such as orders*"})
    require_pattern(user, Permission.DESCRIBE, topic_pattern)
    try:
        found, files = read(descriptors)
    except InvalidDescriptors as error:
        raise ValidationError({"descriptors": str(error)}) from None
    _require_type(files, name)
    if MessageType.objects.count() >= MAX_TYPES:
        raise ValidationError(f"there are {MAX_TYPES} message types; delete one first")
    made = MessageType.objects.create(
        topic_pattern=topic_pattern, name=name, descriptors=found, created_by=user.username
    )
    _record(user, "create message type", made, remote_address)
    return made


def delete(*, user: User, type_id: int, remote_address: str) -> None:
    """Raises PermissionDenied and Http404."""
    require(user, Permission.DESCRIBE)
    found = MessageType.objects.defer("descriptors").filter(pk=type_id).first()
    if found is None:
        raise Http404(f"there is no message type {type_id}")
    require_pattern(user, Permission.DESCRIBE, found.topic_pattern)
    found.delete()
    _record(user, "delete message type", found, remote_address)


def descriptors_of(type_id: int) -> bytes:
    """Raises Http404."""
    found = MessageType.objects.filter(pk=type_id).first()
    if found is None:
        raise Http404(f"there is no message type {type_id}")
    return bytes(found.descriptors)


def read(encoded: str) -> tuple[bytes, Sequence[FileDescriptorProto]]:
    """Decode base64 of a FileDescriptorSet. Return its bytes and its files. Raises InvalidDescriptors."""
    try:
        found = b64decode(encoded, validate=True)
    except ValueError:
        raise InvalidDescriptors("not base64") from None
    if len(found) > LARGEST_BYTES:
        raise InvalidDescriptors(f"{len(found):,} bytes; at most {LARGEST_BYTES:,} are permitted")
    try:
        files = FileDescriptorSet.FromString(found).file
    except DecodeError:
        files = ()
    if not files:
        raise InvalidDescriptors("not a FileDescriptorSet, as protoc --descriptor_set_out writes it")
    return found, files


def _require_type(files: Sequence[FileDescriptorProto], name: str) -> None:
    """Raise ValidationError if an imported file is missing, a file is invalid, or no file has the message type."""
    pool = DescriptorPool()
    present = {file.name for file in files}
    for file in files:
        if missing := [each for each in file.dependency if each not in present]:
            raise ValidationError(
                {"descriptors": f"{file.name} imports {missing[0]}, which is absent; protoc needs --include_imports"}
            )
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise ValidationError({"descriptors": f"{file.name}: {error}"}) from None
    try:
        pool.FindMessageTypeByName(name)
    except KeyError:
        names = [f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.message_type]
        known = f"; it has {', '.join(names[:10])}{' and others' if len(names) > 10 else ''}"
        raise ValidationError({"name": f"the file has no message type {name}{known if names else ''}"}) from None


def _record(user: User, action: str, of: MessageType, remote_address: str) -> None:
    audit.record(user=user, action=action, subject=of.topic_pattern, detail=of.name, remote_address=remote_address)
