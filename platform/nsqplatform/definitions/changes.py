"""Changes: how the platform's definitions differ from a file's, and the outcome of each difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import BaseModel

from nsqcluster import Action, Result
from nsqcluster.policies import Patterns, Values

Verb = Literal["create", "change", "remove", "keep"]
"""``keep``: the file lacks this existing entry, and the import does not prune."""
Outcome = Literal["planned", "done", "partial", "failed"]


@dataclass(frozen=True)
class FieldChange:
    """A value before and after the change, as the file writes it; empty: none."""

    field: str
    before: str
    after: str


class Performed(NamedTuple):
    """An action on the cluster that an import has attempted. ``error`` is the reason why nothing was changed; empty if
    there are results."""

    action: Action
    results: Sequence[Result]
    error: str = ""


class PolicyChange(NamedTuple):
    """What an import makes of a policy. ``values`` None: it is deleted."""

    patterns: Patterns
    values: Values | None


@dataclass(kw_only=True)
class Change:
    """One entry that differs. ``path`` is its place in the file, empty if the file lacks it; ``messages`` is the number
    of messages that its removal deletes; ``results`` are those of the cluster's servers."""

    section: str
    name: str
    verb: Verb
    path: str = ""
    fields: Sequence[FieldChange] = ()
    messages: int = 0
    outcome: Outcome = "planned"
    detail: str = ""
    results: list[Result] = field(default_factory=list)
    actions: Sequence[Action] = ()
    """Actions on the cluster that make the change, in order."""
    performed: list[Performed] = field(default_factory=list)
    """Those that were attempted."""
    policy: PolicyChange | None = None
    """Of a change of a policy."""

    @property
    def is_of_cluster(self) -> bool:
        """Whether nodes make the change, not the database."""
        return bool(self.actions) or self.policy is not None

    @property
    def topic_and_channel(self) -> tuple[str, str | None]:
        """Of a topic or channel, whose name is ``topic`` or ``topic/channel``."""
        topic, _, channel = self.name.partition("/")
        return topic, channel or None


def differences(before: BaseModel | None, after: BaseModel, secret: Mapping[str, str]) -> list[FieldChange]:
    """The fields whose values differ. Of a new entry (``before`` is None), these are the fields that differ from their
    defaults.

    ``secret`` maps each field whose value must not be shown to the text that is shown as ``after``."""
    found = []
    for name, described in type(after).model_fields.items():
        new = getattr(after, name)
        old = getattr(before, name) if before is not None else described.get_default(call_default_factory=True)
        if new == old or (before is None and described.is_required()):
            continue
        masked = secret.get(name) if new else None
        found.append(FieldChange(name, "" if before is None else _shown(old, name in secret), masked or _shown(new)))
    return found


def _shown(value: object, hidden: bool = False) -> str:
    if value is None or value == "" or value == []:
        return ""
    if hidden:
        return "another URL"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
