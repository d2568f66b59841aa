"""Which nodes and topics there are, from the registries and from the addresses the platform was given."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import httpx
from pydantic import BaseModel, BeforeValidator, ValidationError

from cluster.node import Node, address_of
from cluster.stats import Malformed

logger = logging.getLogger(__name__)

FORGET_AFTER_S = 300.0
"""A node that no registry lists any more stays in the picture for so long, as down if it is."""


NO_ANSWER = (httpx.HTTPError, httpx.InvalidURL, Malformed)
"""What asking a node or a registry can raise."""


class Producer(BaseModel):
    """A node as ``/nodes``, ``/lookup`` and ``/info`` describe it."""

    hostname: str = ""
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str = ""
    topics: Annotated[list[str], BeforeValidator(lambda value: value or [])] = []

    def node(self, address: str | None = None) -> Node:
        """``address`` if it is reached elsewhere than where it says."""
        name = address_of(self.broadcast_address, self.http_port)
        return Node(
            id=name,
            address=address or name,
            hostname=self.hostname,
            broadcast_address=self.broadcast_address,
            tcp_port=self.tcp_port,
            http_port=self.http_port,
            version=self.version,
        )


class _Producers(BaseModel):
    producers: list[Producer]


class _Topics(BaseModel):
    topics: list[str]


class _Channels(BaseModel):
    channels: list[str]


@dataclass(kw_only=True)
class Registry:
    """What one nsqlookupd said last. It is kept while the registry does not answer; ``error`` then says why."""

    address: str
    producers: Sequence[Producer] = ()
    topics: dict[str, list[str]] = field(default_factory=dict)
    """Of topics that no node produces, their channels; of others nothing, since their nodes know better."""
    error: str | None = "has not been asked yet"
    answers: bool | None = None
    """Whether it did last; None before it was asked."""


class Directory:
    """Asks all registries and all given nodes at once; keeps the last answer of each."""

    def __init__(self, *, lookupd: Sequence[str], nsqd: Sequence[str]) -> None:
        self.registries: list[Registry] = []
        self.follow(lookupd)
        self._given: dict[str, Node] = {address: Node(id=address, address=address) for address in nsqd}
        self._seen: dict[str, tuple[float, Node]] = {}

    @property
    def nodes(self) -> list[Node]:
        """Every node known; those with a given address are asked there."""
        nodes = {node.id: node for _, node in self._seen.values()}
        nodes.update({node.id: node for node in self._given.values()})
        return list(nodes.values())

    @property
    def registered(self) -> dict[str, list[str]]:
        """Topics that registries know and no node produces, with their channels."""
        merged: dict[str, set[str]] = {}
        for registry in self.registries:
            for topic, channels in registry.topics.items():
                merged.setdefault(topic, set()).update(channels)
        return {topic: sorted(channels) for topic, channels in merged.items()}

    def follow(self, lookupd: Sequence[str]) -> None:
        """Ask these registries from now on; those known already keep their last answers."""
        known = {registry.address: registry for registry in self.registries}
        self.registries = [known.get(address) or Registry(address=address) for address in lookupd]

    @property
    def complaints(self) -> dict[str, str | None]:
        """What each registry failed with last, by its address; None if it answered."""
        return {registry.address: registry.error for registry in self.registries}

    async def refresh(self, client: httpx.AsyncClient, *, now: float) -> None:
        """Ask again. ``now`` is in seconds, monotonic. Raises nothing: a source that fails keeps its last answer."""
        await asyncio.gather(
            *(self._ask_registry(client, registry) for registry in self.registries),
            *(self._ask_node(client, address) for address in self._given),
        )
        for registry in self.registries:
            for producer in registry.producers:
                node = producer.node()
                self._seen[node.id] = (now, node)
        self._seen = {name: (at, node) for name, (at, node) in self._seen.items() if now - at <= FORGET_AFTER_S}

    async def _ask_registry(self, client: httpx.AsyncClient, registry: Registry) -> None:
        base = f"http://{registry.address}"
        try:
            producers, topics = await asyncio.gather(
                answer(client, f"{base}/nodes", _Producers), answer(client, f"{base}/topics", _Topics)
            )
            produced = {topic for producer in producers.producers for topic in producer.topics}
            idle = [topic for topic in topics.topics if topic not in produced]
            channels = await asyncio.gather(
                *(answer(client, f"{base}/channels", _Channels, topic=topic) for topic in idle)
            )
        except NO_ANSWER as error:
            reason = reason_of(error)
            if registry.answers is not False:
                logger.warning("registry does not answer", extra={"registry": registry.address, "error": reason})
            registry.error = reason
            registry.answers = False
            return
        if registry.answers is False:
            logger.info("registry answers again", extra={"registry": registry.address})
        registry.answers = True
        registry.error = None
        registry.producers = producers.producers
        registry.topics = {topic: found.channels for topic, found in zip(idle, channels, strict=True)}

    async def _ask_node(self, client: httpx.AsyncClient, address: str) -> None:
        try:
            self._given[address] = (await answer(client, f"http://{address}/info", Producer)).node(address)
        except NO_ANSWER:
            return  # the collector's own request finds the same and says so in the node's row


Model = TypeVar("Model", bound=BaseModel)


async def answer(client: httpx.AsyncClient, url: str, model: type[Model], **params: str) -> Model:
    """GET ``url``. Raises NO_ANSWER; Malformed names the key."""
    response = await client.get(url, params=params)
    response.raise_for_status()
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Malformed(f"cannot read its {httpx.URL(url).path}: {where}: {first['msg']}") from None


def reason_of(error: Exception) -> str:
    """One line for an operator: what a node or registry did instead of answering."""
    if isinstance(error, httpx.TimeoutException):
        return "does not answer in time"
    if isinstance(error, httpx.HTTPStatusError):
        return f"answers {error.response.status_code} {error.response.text[:200]}".strip()
    cause = system_error(error)
    if cause is not None:
        # asyncio puts its own words in strerror; a failed name lookup has an errno of its own kind.
        by_name = isinstance(cause, socket.gaierror)
        return (str(cause.strerror) if by_name else os.strerror(cause.errno or 0)).lower()
    return str(error) or type(error).__name__


def system_error(error: BaseException | None) -> OSError | None:
    """The system's own error beneath the layers that wrapped it, if there is one."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, OSError) and error.errno:
            return error
        error = error.__cause__ or error.__context__
    return None
