"""How far a stream has read: the topic's number and the next position on each node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypedDict

from nsqanalytics.topics.node import Page


class NodeOffset(TypedDict):
    """The messages before ``position`` were read, of the topic with this number."""

    topic_number: int
    position: int


Offsets = dict[str, NodeOffset]
"""By the node's name. Spark stores them as JSON in its checkpoint."""


class Part(NamedTuple):
    """Messages ``[start, stop)`` of one node.

    ``has_begun`` is false if the stream reads the node's first messages, of which some may have been removed before.
    ``is_reset`` is true if the node's earlier messages went away with their topic.
    """

    node: str
    topic_number: int
    start: int
    stop: int
    has_begun: bool = True
    is_reset: bool = False

    def pieces(self, most: int) -> list[Part]:
        """Cut it into parts of ``most`` messages."""
        starts = range(self.start, self.stop, most)
        return [self._replace(start=start, stop=min(start + most, self.stop)) for start in starts]


def parts(start: Mapping[str, NodeOffset], end: Mapping[str, NodeOffset]) -> list[Part]:
    """Return what lies between two offsets, without empty parts."""
    found = []
    for node, until in end.items():
        since = start.get(node)
        if since is None:
            part = Part(node, until["topic_number"], 0, until["position"], has_begun=False)
        elif since["topic_number"] != until["topic_number"] or since["position"] > until["position"]:
            part = Part(node, until["topic_number"], 0, until["position"], has_begun=False, is_reset=True)
        else:
            part = Part(node, until["topic_number"], since["position"], until["position"])
        if part.start < part.stop or part.is_reset:
            found.append(part)
    return found


def latest(start: Mapping[str, NodeOffset], pages: Mapping[str, Page]) -> Offsets:
    """Return the ends of the logs. A node that is no longer listed keeps its offset."""
    ends = {
        name: NodeOffset(topic_number=page["topic_number"], position=page["end"])
        for name, page in sorted(pages.items())
    }
    return {**start, **ends}


def limited(
    start: Mapping[str, NodeOffset], end: Mapping[str, NodeOffset], most: int, earliest: Mapping[str, int]
) -> Offsets:
    """Return offsets between the two, with at most ``most`` messages after ``start``: the same number of each node, as
    far as it has that many.

    ``earliest`` has the first message that each node still has. On a node that the stream has not read, messages before
    it were removed before the stream began, so the offset is not below it: the next batch would report them as lost.
    """
    begins = {
        part: part.start if part.has_begun else min(max(part.start, earliest.get(part.node, 0)), part.stop)
        for part in parts(start, end)
    }
    waiting = sorted(begins, key=lambda part: part.stop - begins[part])
    found = dict(start)
    left = most
    for number, part in enumerate(waiting):
        taken = min(part.stop - begins[part], left // (len(waiting) - number))
        left -= taken
        position = begins[part] + taken
        if position > part.start or part.is_reset:
            found[part.node] = NodeOffset(topic_number=part.topic_number, position=position)
    return found
