"""Mirrored pairs whose members have different addresses: only one of them is a node of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsqplatform.cluster.readings.reading import NodeView
from nsqwire.units import Seconds


def superseded(views: Sequence[NodeView], listed_at: Callable[[str], Seconds]) -> set[str]:
    """The ids of nodes that are members of a pair which another node represents.

    The messages of both members are the same, and the follower's address leads to the primary, so that both would
    count twice. The node that represents a pair is one that is up, of these one with the latest term, and of these the
    one that the registries have listed last. ``listed_at`` returns the monotonic time at which that was, for a node id.
    """
    of_pair: dict[str, list[NodeView]] = {}
    for view in views:
        if view.latest is not None and view.latest.stats.mirror is not None:
            of_pair.setdefault(view.latest.stats.mirror.pair, []).append(view)

    def rank(view: NodeView) -> tuple[bool, int, Seconds]:
        assert view.latest is not None
        assert view.latest.stats.mirror is not None
        return view.error is None, view.latest.stats.mirror.epoch, listed_at(view.node.id)

    return {
        view.node.id
        for members in of_pair.values()
        if len(members) > 1
        for view in members
        if view is not max(members, key=rank)
    }
