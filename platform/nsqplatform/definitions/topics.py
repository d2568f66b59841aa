"""The section of topics and channels, which the cluster stores: read by a survey of its servers, changed by actions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied

from nsqcluster import Action, Cluster, ClusterUnreachable, NotInCluster, Survey, outcome_of, perform, survey
from nsqcluster.rows import ChannelNode, TopicNode, stored_count
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import selectors
from nsqplatform.cluster.actions.services import mark_changed
from nsqplatform.definitions.changes import Change, FieldChange, Outcome, Performed
from nsqplatform.definitions.document import ChannelDefinition, TopicDefinition
from nsqplatform.definitions.errors import FieldFault, NotAllKnown

EPHEMERAL = "#ephemeral"
CONCURRENCY = 8
"""Largest number of topics that are changed at the same time."""


@dataclass(kw_only=True)
class Stored:
    """A topic or channel of the cluster. ``messages`` is the number of messages that its deletion deletes."""

    paused_nodes: int
    nodes: int
    messages: int
    channels: dict[str, Stored] = field(default_factory=dict)

    @property
    def paused(self) -> str:
        if 0 < self.paused_nodes < self.nodes:
            return f"on {self.paused_nodes} of {self.nodes} nodes"
        return str(self.paused_nodes > 0).lower()


class Topics:
    """The topics of one survey. ``unanswered`` are the servers that failed, with the reasons."""

    def __init__(self, by: User) -> None:
        self._by = by
        self._cluster = selectors.cluster()
        found = async_to_sync(survey)(self._cluster)
        self.stored = stored_topics(found)
        self.unanswered = [f"{each['target']} {each['node']}: {each['detail']}" for each in found.failures]
        self.unchanged = 0
        self.denied: list[FieldFault] = []

    def exported(self) -> list[TopicDefinition]:
        """Raises NotAllKnown, because a file from which topics are missing would look complete."""
        self.require_complete()
        return [
            TopicDefinition(
                name=name,
                paused=topic.paused_nodes > 0,
                channels=[
                    ChannelDefinition(name=each, paused=channel.paused_nodes > 0)
                    for each, channel in sorted(topic.channels.items())
                ],
            )
            for name, topic in sorted(self.stored.items())
        ]

    def require_complete(self) -> None:
        if self.unanswered:
            raise NotAllKnown(f"the topics are not all known: {'; '.join(self.unanswered)}")

    def plan(self, entries: Sequence[TopicDefinition], *, remove: bool) -> list[Change]:
        """One change for each topic and channel that differs. Changes that the user may not make are in ``denied``.

        Raises NotAllKnown if topics are to be removed and not all are known.
        """
        if remove:
            self.require_complete()
        changes = [change for index, entry in enumerate(entries) for change in self._of_topic(index, entry)]
        changes += self._absent(entries, remove)
        for change in changes:
            if change.actions:
                self._check(change)
        return changes

    def _of_topic(self, index: int, entry: TopicDefinition) -> Iterator[Change]:
        path, topic = f"topics.{index}", self.stored.get(entry.name)
        yield from self._of_one("topics", entry.name, path, entry.paused, topic)
        for place, channel in enumerate(entry.channels):
            stored = topic.channels.get(channel.name) if topic else None
            name = f"{entry.name}/{channel.name}"
            yield from self._of_one("channels", name, f"{path}.channels.{place}", channel.paused, stored)

    def _of_one(self, section: str, name: str, path: str, paused: bool, stored: Stored | None) -> Iterator[Change]:
        before, after = stored.paused if stored else "false", str(paused).lower()
        toggle = [Action.PAUSE if paused else Action.UNPAUSE] if before != after else []
        fields = [FieldChange("paused", before if stored else "", after)] if toggle else []
        if stored is None:
            actions = [Action.CREATE, *toggle]
            yield Change(section=section, name=name, verb="create", path=path, fields=fields, actions=actions)
        elif toggle:
            yield Change(section=section, name=name, verb="change", path=path, fields=fields, actions=toggle)
        else:
            self.unchanged += 1

    def _absent(self, entries: Sequence[TopicDefinition], remove: bool) -> Iterator[Change]:
        defined = {entry.name: {channel.name for channel in entry.channels} for entry in entries}
        for name, topic in sorted(self.stored.items()):
            if name not in defined:
                yield absent("topics", name, topic, remove)
                continue
            for each, channel in sorted(topic.channels.items()):
                if each not in defined[name]:
                    yield absent("channels", f"{name}/{each}", channel, remove)

    def _check(self, change: Change) -> None:
        try:
            require(self._by, Permission.ACT, topic=change.name.partition("/")[0])
        except PermissionDenied as error:
            self.denied.append(FieldFault(change.path or change.section, f"{change.name}: {error}"))

    def perform(self, changes: Sequence[Change]) -> None:
        """Make the changes, several topics at a time, and set the outcome and the results of each."""
        by_topic: defaultdict[str, list[Change]] = defaultdict(list)
        for change in changes:
            if change.actions:
                by_topic[change.name.partition("/")[0]].append(change)
        if not by_topic:
            return
        async_to_sync(_perform_all)(self._cluster, list(by_topic.values()))
        mark_changed()


def absent(section: str, name: str, stored: Stored, remove: bool) -> Change:
    """The change of a topic or channel that the file lacks."""
    return Change(
        section=section,
        name=name,
        verb="remove" if remove else "keep",
        messages=stored.messages if remove else 0,
        actions=[Action.DELETE] if remove else [],
    )


def stored_topics(found: Survey) -> dict[str, Stored]:
    """The topics of a survey by name, without ephemeral ones."""
    topics = {
        row["name"]: stored_part(row["nodes"], row["depth"] + row["channel_depth"] + row["dead_count"])
        for row in found.topic_rows()
        if not row["name"].endswith(EPHEMERAL)
    }
    for row in found.channel_rows():
        if row["topic"] in topics and not row["name"].endswith(EPHEMERAL):
            topics[row["topic"]].channels[row["name"]] = stored_part(row["nodes"], stored_count(row))
    return topics


def stored_part(shares: Sequence[TopicNode] | Sequence[ChannelNode], messages: int) -> Stored:
    return Stored(paused_nodes=sum(share["paused"] for share in shares), nodes=len(shares), messages=messages)


async def _perform_all(cluster: Cluster, topics: Sequence[Sequence[Change]]) -> None:
    slots = asyncio.Semaphore(CONCURRENCY)

    async def one(changes: Sequence[Change]) -> None:
        async with slots:
            for change in changes:
                await _perform(cluster, change)

    await asyncio.gather(*map(one, topics))


async def _perform(cluster: Cluster, change: Change) -> None:
    for action in change.actions:
        try:
            results = await perform(cluster, action, *change.topic_and_channel)
            change.performed.append(Performed(action, results))
            change.results += results
        except (NotInCluster, ClusterUnreachable) as error:
            change.performed.append(Performed(action, (), str(error)))
            change.detail = f"{action} failed: {error}"
    change.outcome = _outcome(change)


def _outcome(change: Change) -> Outcome:
    if change.detail:
        return "partial" if any(each["outcome"] == "done" for each in change.results) else "failed"
    return outcome_of(change.results)
