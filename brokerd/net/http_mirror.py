"""The HTTP endpoint of a mirrored node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerd.mirror.errors import NoFollowerInSync
from nsqdaemon.http import HTTPError, Request, Response
from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER
from nsqwire.gojson import encode

if TYPE_CHECKING:
    from brokerd.broker import Broker


class MirrorVerbs:
    """The endpoint ``/mirror/handover``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def hand_over(self, request: Request) -> Response:
        """Let the follower lead. The answer, ``{"to": MEMBER, "epoch": TERM}``, leaves before this member stops."""
        begin = self._broker.begin_hand_over
        if begin is None:
            raise HTTPError(400, "NOT_MIRRORED")
        try:
            return Response(200, encode(begin()), (JSON_HEADER, NSQ_HEADER))
        except NoFollowerInSync:
            raise HTTPError(400, "NO_FOLLOWER_IN_SYNC") from None
