"""The kinds of jobs. :mod:`nsqplatform.jobs.kinds.kind` says how to add one."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from nsqcluster import Action
from nsqplatform.cluster.messages.actions import MessageAction
from nsqplatform.cluster.messages.dead import DeadAction
from nsqplatform.jobs.kinds.actions import Tombstone, TopicOrChannelAction
from nsqplatform.jobs.kinds.dead import DeadKind
from nsqplatform.jobs.kinds.kind import Kind
from nsqplatform.jobs.kinds.messages import MessagesKind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        TopicOrChannelAction(Action.PAUSE, is_repeatable=True),
        TopicOrChannelAction(Action.UNPAUSE, is_repeatable=True),
        # Emptied again, a topic would lose the messages published since.
        TopicOrChannelAction(Action.EMPTY, is_repeatable=False),
        TopicOrChannelAction(Action.DELETE, is_repeatable=True),
        Tombstone(),
        *(MessagesKind(action) for action in MessageAction),
        *(DeadKind(action) for action in DeadAction),
    )
}
"""By name."""


def find_kind(name: str) -> Kind:
    """The kind of this name. Raises ValidationError."""
    if name not in KINDS:
        raise ValidationError({"kind": f"there is no kind {name!r}; there are {', '.join(KINDS)}"})
    return KINDS[name]
