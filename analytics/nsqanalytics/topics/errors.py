"""Why a topic cannot be read; each error is one sentence for the analyst."""

from __future__ import annotations


class TopicUnreadable(Exception):
    """A topic that cannot be read; the text says on which node, and why."""


class TopicNotFound(TopicUnreadable):
    """The topic does not exist: on any node, or on one that had it."""


class NodeUnreadable(TopicUnreadable):
    """A node or registry that does not answer, or not as brokerd or nsqlookupd does."""


class MessagesRemoved(TopicUnreadable):
    """Messages that the query has still to read are no longer in the log."""


class BadOption(ValueError):
    """An option of the data source that is missing, unknown or has a wrong value."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"option {name}: {reason}")
