"""The HTTP endpoints of a drain."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from nsqdaemon.http import HTTPError, Request, Response
from nsqdaemon.http.messages import FLAG_WORDS, JSON_HEADER, NSQ_HEADER
from nsqwire.durations import parse_duration
from nsqwire.gojson import encode
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.broker import Broker


class DrainVerbs:
    """The endpoints ``/drain`` and ``/drain/cancel``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def get(self, request: Request) -> Response:
        """Whether the node drains, and how many messages are left."""
        return self._state()

    def begin(self, request: Request) -> Response:
        """Drain the node; if it is being drained, change the parameters."""
        settings = self._broker.settings
        timeout_s, takes_publishes = settings.drain_timeout.total_seconds(), settings.drain_publishes
        if (text := request.params.get("timeout")) is not None:
            timeout_s = _timeout(text)
        if (word := request.params.get("publishes")) is not None:
            if word not in FLAG_WORDS:
                raise HTTPError(400, "INVALID_ARG_PUBLISHES")
            takes_publishes = FLAG_WORDS[word]
        self._broker.drain.begin(timeout_s=timeout_s, takes_publishes=takes_publishes)
        return self._state()

    def cancel(self, request: Request) -> Response:
        """Register with nsqlookupd and take publishes again."""
        if not self._broker.drain.cancel():
            raise HTTPError(400, "NOT_DRAINING")
        return self._state()

    def _state(self) -> Response:
        return Response(200, encode({"drain": self._broker.drain.to_json()}), (JSON_HEADER, NSQ_HEADER))


def _timeout(text: str) -> Seconds:
    """Raises HTTPError."""
    try:
        timeout = parse_duration(text)
    except ValueError:
        timeout = timedelta(-1)
    if timeout < timedelta(0):
        raise HTTPError(400, "INVALID_ARG_TIMEOUT")
    return timeout.total_seconds()
