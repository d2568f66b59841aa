"""The nodes that a topic is read from: those that the options name, or those that registries do."""

from __future__ import annotations

from typing import Any

from nsqanalytics.topics.address import Address
from nsqanalytics.topics.connection import Connection
from nsqanalytics.topics.errors import NodeUnreadable, TopicNotFound
from nsqanalytics.topics.node import Node, Page
from nsqanalytics.topics.options import Options


def positions(options: Options) -> dict[str, Page]:
    """Return where the requested messages are on each node that has the topic, by the node's name.

    Raises TopicNotFound if none has it, and NodeUnreadable for a node that does not answer.
    """
    found: dict[str, Page] = {}
    addresses = _addresses(options)
    for address in addresses:
        try:
            found[address.name] = Node(address, options).positions()
        except TopicNotFound:
            continue
    if not found:
        where = ", ".join(address.name for address in addresses)
        raise TopicNotFound(f"there is no topic {options.topic} on {where}")
    return found


def node(name: str, options: Options) -> Node:
    """Return the node with this name; it may be one that no registry lists any more."""
    by_name = {address.name: address for address in options.nodes}
    return Node(by_name.get(name) or Address.parse(name), options)


def _addresses(options: Options) -> tuple[Address, ...]:
    if options.nodes:
        return options.nodes
    found: dict[Address, None] = {}
    failures: list[NodeUnreadable] = []
    for registry in options.registries:
        try:
            found |= dict.fromkeys(_producers(registry, options))
        except NodeUnreadable as error:
            failures.append(error)
    if len(failures) == len(options.registries):
        raise NodeUnreadable("; ".join(map(str, failures)))
    if not found:
        names = ", ".join(registry.name for registry in options.registries)
        raise TopicNotFound(
            "; ".join([f"no node has registered the topic {options.topic} with {names}", *map(str, failures)])
        )
    return tuple(found)


def _producers(registry: Address, options: Options) -> list[Address]:
    connection = Connection(registry, options.tls, options.timeout_s)
    try:
        status, body = connection.get("/lookup", {"topic": options.topic})
    finally:
        connection.close()
    try:
        if status == 404 and body["message"] == "TOPIC_NOT_FOUND":
            return []
        return [_address(producer) for producer in body["producers"]]
    except (TypeError, KeyError, ValueError):
        raise NodeUnreadable(f"{registry.name} does not answer /lookup as nsqlookupd does") from None


def _address(producer: Any) -> Address:
    return Address(str(producer["broadcast_address"]), int(producer["http_port"]))
