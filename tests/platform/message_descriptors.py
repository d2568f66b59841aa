"""Descriptors and bodies of a message type in Protocol Buffers, as protoc would write them."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

F = FieldDescriptorProto
MONEY, ORDER = "shop.v1.Money", "shop.v1.Order"


def descriptors(*, with_imports: bool = True) -> bytes:
    """A FileDescriptorSet of an order whose total is a message of an imported file."""
    money = FileDescriptorProto(name="money.proto", package="shop.v1", syntax="proto3")
    field(money.message_type.add(name="Money"), "cents", 1, F.TYPE_INT64)
    order = FileDescriptorProto(name="order.proto", package="shop.v1", syntax="proto3", dependency=["money.proto"])
    message = order.message_type.add(name="Order")
    field(message, "id", 1, F.TYPE_UINT64)
    field(message, "note", 2, F.TYPE_STRING)
    field(message, "total", 3, F.TYPE_MESSAGE, type_name=f".{MONEY}")
    field(message, "tags", 4, F.TYPE_STRING, label=F.LABEL_REPEATED)
    return FileDescriptorSet(file=[money, order] if with_imports else [order]).SerializeToString()


def field(message, name: str, number: int, type: int, **more) -> None:
    message.field.add(name=name, number=number, type=type, **({"label": F.LABEL_OPTIONAL} | more))


def order_body(*, id: int, note: str, cents: int, tags: list[str]) -> bytes:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    of = GetMessageClass(pool.FindMessageTypeByName(ORDER))
    return of(id=id, note=note, total={"cents": cents}, tags=tags).SerializeToString()
