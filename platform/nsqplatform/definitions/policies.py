"""The section of policies, which the cluster's nodes store: read from all nodes, and changed on all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied

from nsqcluster import ClusterUnreachable, NotInCluster, outcome_of
from nsqcluster.policies import (
    Patterns,
    Policies,
    PolicyRefused,
    PolicyRow,
    Values,
    delete_policy,
    rank_of_change,
    read_policies,
    row_patterns,
    set_policy,
    text_of_value,
)
from nsqcluster.survey import Failure
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require_pattern
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import selectors
from nsqplatform.definitions.changes import Change, FieldChange, PolicyChange
from nsqplatform.definitions.document import PolicyDefinition
from nsqplatform.definitions.errors import FieldFault, NotAllKnown

DRIFT = "differs between nodes"


class NodePolicies:
    """The policies of all nodes at one time. ``unanswered`` are the servers that failed, with the reasons."""

    def __init__(self, by: User) -> None:
        self._by = by
        self._cluster = selectors.cluster()
        try:
            self._found = async_to_sync(read_policies)(self._cluster)
        except ClusterUnreachable as error:
            silent = [Failure(node=each["node"], target=each["target"], detail=each["detail"]) for each in error.silent]
            self._found = Policies(failures=silent)
        self.stored = {row_patterns(row): row for row in self._found.rows()}
        self.unanswered = [f"{each['target']} {each['node']}: {each['detail']}" for each in self._found.failures]
        self.unchanged = 0
        self.denied: list[FieldFault] = []

    def exported(self) -> list[PolicyDefinition] | None:
        """The policies with the values of most nodes; None if no node has policies, as Go's nsqd.

        Raises NotAllKnown, because a file from which policies are missing would look complete.
        """
        self.require_complete()
        if not self._found.by_node:
            return None
        return [
            PolicyDefinition(
                topic_pattern=row["topic_pattern"], channel_pattern=row["channel_pattern"], policy=row["policy"]
            )
            for row in self.stored.values()
        ]

    def require_complete(self) -> None:
        if self.unanswered:
            raise NotAllKnown(f"the policies are not all known: {'; '.join(self.unanswered)}")

    def plan(self, entries: Sequence[PolicyDefinition], *, remove: bool) -> list[Change]:
        """One change for each policy that differs. Changes that the user may not make are in ``denied``.

        Raises NotAllKnown if policies are to be removed and not all are known.
        """
        if remove:
            self.require_complete()
        changes = [change for index, entry in enumerate(entries) for change in self._of_one(index, entry)]
        defined = {Patterns(entry.topic_pattern, entry.channel_pattern) for entry in entries}
        changes += [absent(key, remove) for key in self.stored if key not in defined]
        for change in changes:
            if change.policy is not None:
                self._check(change, change.policy)
        return changes

    def _of_one(self, index: int, entry: PolicyDefinition) -> Iterator[Change]:
        patterns = Patterns(entry.topic_pattern, entry.channel_pattern)
        stored = self.stored.get(patterns)
        if stored is not None and not stored["drift"] and stored["policy"] == entry.policy:
            self.unchanged += 1
            return
        yield Change(
            section="policies",
            name=patterns.as_name(),
            verb="create" if stored is None else "change",
            path=f"policies.{index}",
            fields=differing(stored, entry.policy),
            policy=PolicyChange(patterns, entry.policy),
        )

    def _check(self, change: Change, policy: PolicyChange) -> None:
        try:
            require_pattern(self._by, Permission.ACT, policy.patterns.topic)
        except PermissionDenied as error:
            self.denied.append(FieldFault(change.path or change.section, f"{change.name}: {error}"))

    def perform(self, changes: Sequence[Change]) -> None:
        """Make the changes, and set the outcome and the results of each."""
        policies = [(change, change.policy) for change in changes if change.policy is not None]
        for change, policy in sorted(policies, key=lambda each: self._rank(each[1])):
            self._perform(change, policy)

    def _rank(self, policy: PolicyChange) -> int:
        stored = self.stored.get(policy.patterns)
        return rank_of_change(None if stored is None else stored["policy"], policy.values)

    def _perform(self, change: Change, policy: PolicyChange) -> None:
        try:
            if policy.values is None:
                change.results = async_to_sync(delete_policy)(self._cluster, policy.patterns)
            else:
                change.results = async_to_sync(set_policy)(self._cluster, policy.patterns, policy.values)
            change.outcome = outcome_of(change.results)
        except (NotInCluster, ClusterUnreachable, PolicyRefused) as error:
            change.detail, change.outcome = str(error), "failed"


def absent(patterns: Patterns, remove: bool) -> Change:
    """The change of a policy that the file lacks."""
    return Change(
        section="policies",
        name=patterns.as_name(),
        verb="remove" if remove else "keep",
        policy=PolicyChange(patterns, None) if remove else None,
    )


def differing(stored: PolicyRow | None, wanted: Values) -> list[FieldChange]:
    """The keys whose values differ; all of them if the nodes differ."""
    before: Mapping[str, str] = {}
    if stored is not None and not stored["drift"]:
        before = {key: text_of_value(value) for key, value in stored["policy"].items()}
    elif stored is not None:
        before = dict.fromkeys([*stored["policy"], *wanted], DRIFT)
    after = {key: text_of_value(value) for key, value in wanted.items()}
    return [
        FieldChange(key, before.get(key, ""), after.get(key, ""))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
