"""The HTTP endpoints of a mirrored node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerd.mirror.errors import NoFollowerInSync
from nsqdaemon.http import HTTPError, Request, Response
from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER
from nsqwire.gojson import encode

if TYPE_CHECKING:
    from brokerd.broker import Broker


class MirrorVerbs:
    """The endpoints ``/mirror`` and ``/mirror/handover``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def get(self, request: Request) -> Response:
        """The figures of ``/stats`` about the mirror; null for a node without one."""
        figures = self._broker.mirror_figures
        return _answer({"mirror": None if figures is None else figures()})

    def hand_over(self, request: Request) -> Response:
        """Let the follower lead. The answer, ``{"to": MEMBER, "epoch": TERM}``, leaves before this member stops."""
        begin = self._broker.begin_hand_over
        if begin is None:
            raise HTTPError(400, "NOT_MIRRORED")
        try:
            return _answer(begin())
        except NoFollowerInSync:
            raise HTTPError(400, "NO_FOLLOWER_IN_SYNC") from None


def _answer(content: dict[str, object]) -> Response:
    return Response(200, encode(content), (JSON_HEADER, NSQ_HEADER))
