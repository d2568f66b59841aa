"""Actions on many topics or channels, with one request to a server for all of them.

Only this project's nsqd and nsqlookupd support such requests. Go's refuse them with 404, and then get a request for
each name. The results are those of :func:`nsqcluster.actions.perform` and :func:`nsqcluster.actions.tombstone`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from nsqcluster import reads
from nsqcluster.actions import Action, announced, of_holders, params_of, somewhere, verb_of
from nsqcluster.client import Client, Params, url_of
from nsqcluster.cluster import Cluster, Target
from nsqcluster.decoding import decode
from nsqcluster.discovery import nodes_of
from nsqcluster.errors import Refused, RequestFailed
from nsqcluster.pairs import pair_ids, second_members
from nsqcluster.posts import failed, post_everywhere
from nsqcluster.producers import Producer, Producers
from nsqcluster.results import Result, merged
from nsqcluster.targets import FIND_S, ClusterUnreachable, NotInCluster, Targets
from nsqwire.units import Seconds

MAX_NAMES: Final = 1000
"""The servers' limit for one request."""
NAME_S: Final[Seconds] = 0.02
"""What each name adds to the longest duration of a request."""

T = TypeVar("T")


class Name(NamedTuple):
    """A topic, or a channel of it."""

    topic: str
    channel: str | None = None

    def __str__(self) -> str:
        """``topic`` or ``topic/channel``, as in a request."""
        return f"{self.topic}/{self.channel}" if self.channel else self.topic


Results = list[Result] | NotInCluster | ClusterUnreachable
"""The results of one name, or the error that ``perform`` raises for it."""


class _NameError(Struct):
    name: str
    status: int
    message: str


class _Answer(Struct):
    """Response to an action: the errors of the names that failed."""

    errors: list[_NameError]


class _LookedUp(Struct):
    """Response to ``/topics/lookup``: for each topic that exists, the numbers of its nodes in ``producers``."""

    producers: list[Producer]
    topics: dict[str, list[int]]


class Bulk:
    """Acts on many names, at most MAX_NAMES in one call, and remembers the servers that need a request for each."""

    def __init__(self, http: Client) -> None:
        self._http = http
        self._single: set[str] = set()
        """Addresses of the servers that need a request for each name."""

    @property
    def is_one_by_one(self) -> bool:
        """Whether some server has needed a request for each name."""
        return bool(self._single)

    async def perform(self, cluster: Cluster, action: Action, names: Sequence[Name]) -> dict[Name, Results]:
        """Perform an action other than ``create`` on every node that has the topics now.

        The names are either all topics or all channels. As by ``perform``, the nodes are found first, and topics and
        channels are deleted from the registries before the nodes.
        """
        verb = verb_of(action, names[0].channel)
        found: dict[Name, Results] = {}
        targets: dict[Name, Targets] = {}
        by_topic = await self.find(cluster, list(dict.fromkeys(name.topic for name in names)))
        for name in names:
            each = by_topic[name.topic]
            if isinstance(each, Targets):
                targets[name] = each
            else:
                found[name] = each
        before = {name: each.complaints for name, each in targets.items()}
        if action is Action.DELETE and targets:
            registries = {address: address for address in cluster.lookupd}
            done = await self._post(
                cluster, "nsqlookupd", registries, {address: [*targets] for address in registries}, verb, {}
            )
            before = {name: merged(results, done[name]) for name, results in before.items()}
        of_node: defaultdict[str, list[Name]] = defaultdict(list)
        addresses: dict[str, str] = {}
        for name, each in targets.items():
            for node, address in each.nodes.items():
                addresses[node] = address
                of_node[node].append(name)
        done = await self._post(cluster, "nsqd", addresses, of_node, verb, {})
        for name, each in targets.items():
            try:
                found[name] = somewhere(before[name] + of_holders(done[name], each), *name)
            except NotInCluster as error:
                found[name] = error
        return found

    async def tombstone(self, cluster: Cluster, node: str, topics: Sequence[str]) -> dict[str, list[Result]]:
        """Remove topics from one node, as nsqadmin does: tombstone them in every registry, and delete them on the
        node."""
        names = [Name(topic) for topic in topics]
        registries = {address: address for address in cluster.lookupd}
        marked = await self._post(
            cluster,
            "nsqlookupd",
            registries,
            dict.fromkeys(registries, names),
            "/topic/tombstone",
            {"node": announced(node)},
        )
        where = {node: cluster.address(node)}
        done = await self._post(cluster, "nsqd", where, {node: names}, "/topic/delete", {})
        return {name.topic: marked[name] + done[name] for name in names}

    async def find(
        self, cluster: Cluster, topics: Sequence[str]
    ) -> dict[str, Targets | NotInCluster | ClusterUnreachable]:
        """Find the nodes that have each topic, as :func:`nsqcluster.targets.find`, whose errors are values here."""
        looked_up, known, pairs = await asyncio.gather(
            _all({address: self._lookup(address, topics) for address in cluster.lookupd}),
            _all({name: self._known(address, topics) for name, address in cluster.given.items()}),
            pair_ids(self._http, cluster.given, FIND_S),
        )
        lookups = {topic: _answers(looked_up, topic) for topic in topics}
        registered = {
            name: node.address
            for answers in lookups.values()
            for name, node in nodes_of(answers.found, cluster.address).items()
        }
        seconds = await second_members(self._http, pairs, registered, FIND_S)
        known = {name: answer for name, answer in known.items() if name not in seconds}
        found: dict[str, Targets | NotInCluster | ClusterUnreachable] = {}
        for topic in topics:
            try:
                found[topic] = Targets.of(cluster, topic, lookups[topic], _answers(known, topic))
            except (NotInCluster, ClusterUnreachable) as error:
                found[topic] = error
        return found

    async def _lookup(self, registry: str, topics: Sequence[str]) -> dict[str, Producers | RequestFailed]:
        """The producers of each topic in a registry, or the failure."""

        async def at_once() -> dict[str, Producers | RequestFailed]:
            path = "/topics/lookup"
            answer = decode(await self._send(registry, path, topics, {}, FIND_S), _LookedUp, path)
            unknown = Refused(url_of(registry, path), 404, "TOPIC_NOT_FOUND")
            found: dict[str, Producers | RequestFailed] = dict.fromkeys(topics, unknown)
            for topic, numbers in answer.topics.items():
                found[topic] = Producers(producers_or_null=[answer.producers[number] for number in numbers])
            return found

        return await self._at_once_or_each(
            registry, topics, at_once, lambda topic: reads.lookup(self._http, registry, topic, FIND_S)
        )

    async def _known(self, address: str, topics: Sequence[str]) -> dict[str, bool | RequestFailed]:
        """Whether a node has each topic, or the failure."""

        async def at_once() -> dict[str, bool | RequestFailed]:
            errors = await self._errors(address, "/topics/find", topics, {}, FIND_S)
            return {topic: topic not in errors for topic in topics}

        async def one(topic: str) -> bool:
            stats = await reads.stats(self._http, {address: address}, topic=topic, timeout_s=FIND_S)
            for error in stats.failures.values():
                raise error
            return any(each.topic_name == topic for each in stats.found[address].topics)

        return await self._at_once_or_each(address, topics, at_once, one)

    async def _at_once_or_each(
        self,
        address: str,
        topics: Sequence[str],
        at_once: Callable[[], Awaitable[dict[str, T | RequestFailed]]],
        one: Callable[[str], Awaitable[T]],
    ) -> dict[str, T | RequestFailed]:
        """Ask a server for all topics at once, or for each if it does not support that."""
        if address not in self._single:
            try:
                return await at_once()
            except RequestFailed as error:
                if not _is_unsupported(error):
                    return dict.fromkeys(topics, error)
                self._single.add(address)
        answers = await reads.gather({topic: one(topic) for topic in topics})
        return {**answers.found, **answers.failures}

    async def _post(
        self,
        cluster: Cluster,
        target: Target,
        addresses: Mapping[str, str],
        names: Mapping[str, Sequence[Name]],
        verb: str,
        params: Mapping[str, str],
    ) -> dict[Name, list[Result]]:
        """POST the verb to servers, each for its names, and return the results of each name, sorted by server."""
        servers = sorted(addresses.items())
        found = await asyncio.gather(
            *(
                self._post_to(cluster, target, server, address, names[server], verb, params)
                for server, address in servers
            )
        )
        results: dict[Name, list[Result]] = defaultdict(list)
        for each in found:
            for name, result in each.items():
                results[name].append(result)
        return results

    async def _post_to(
        self,
        cluster: Cluster,
        target: Target,
        server: str,
        address: str,
        names: Sequence[Name],
        verb: str,
        params: Mapping[str, str],
    ) -> dict[Name, Result]:
        if address not in self._single:
            path = verb.replace("/topic/", "/topics/").replace("/channel/", "/channels/")
            try:
                errors = await self._errors(address, path, map(str, names), params, cluster.step_s)
            except RequestFailed as error:
                if not _is_unsupported(error):
                    return dict.fromkeys(names, failed(server, target, error))
                self._single.add(address)
            else:
                done = Result(node=server, target=target, outcome="done", detail="")
                refused = {name: errors[text] for name in names if errors and (text := str(name)) in errors}
                return {name: failed(server, target, refused[name]) if name in refused else done for name in names}
        where = {server: address}
        each = await asyncio.gather(
            *(
                post_everywhere(self._http, target, where, verb, {**params_of(*name, verb), **params}, cluster.step_s)
                for name in names
            )
        )
        return {name: result for name, [result] in zip(names, each, strict=True)}

    async def _errors(
        self, address: str, path: str, names: Iterable[str], params: Params, within_s: Seconds
    ) -> dict[str, RequestFailed]:
        """POST names, and return the errors of those that failed. Raises RequestFailed."""
        answer = decode(await self._send(address, path, names, params, within_s), _Answer, path)
        url = url_of(address, path)
        return {each.name: Refused(url, each.status, each.message) for each in answer.errors}

    async def _send(
        self, address: str, path: str, names: Iterable[str], params: Params, within_s: Seconds
    ) -> bytearray:
        lines = [*names]
        timeout_s = within_s + len(lines) * NAME_S
        return await self._http.post(address, path, params, "\n".join(lines).encode(), timeout_s=timeout_s)


def _is_unsupported(error: RequestFailed) -> bool:
    """Whether a server does not have a path. A proxy before it may answer in its own words."""
    return isinstance(error, Refused) and error.status in (404, 405)


async def _all(calls: Mapping[str, Awaitable[T]]) -> dict[str, T]:
    return dict(zip(calls, await asyncio.gather(*calls.values()), strict=True))


def _answers(by_server: Mapping[str, Mapping[str, T | RequestFailed]], topic: str) -> reads.Answers[T]:
    """The answers of all servers for one topic."""
    answers: reads.Answers[T] = reads.Answers()
    for server, found in by_server.items():
        each = found[topic]
        if isinstance(each, RequestFailed):
            answers.failures[server] = each
        else:
            answers.found[server] = each
    return answers
