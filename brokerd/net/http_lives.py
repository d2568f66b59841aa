"""The HTTP endpoint of the lives of sampled messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

from brokerd.net.http_topics import bounded
from nsqdaemon.http import Request, Response
from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER
from nsqwire.gojson import encode_without_floats

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.lives import LifeEvent

MOST_EVENTS: Final = 2000
"""Maximum number of events in one response, so that a request does not delay deliveries."""
_MOST_NUMBER: Final = 2**63 - 1


class LifeEndpoint:
    """``/lives``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def lives(self, request: Request) -> Response:
        """The events of sampled messages from the number ``from`` on. Reading them changes nothing."""
        start = bounded(request, "from", default=0, most=_MOST_NUMBER)
        limit = bounded(request, "limit", default=MOST_EVENTS, most=MOST_EVENTS)
        lives = self._broker.runtime.lives
        page = lives.page(start, limit)
        answer = {
            "node_id": self._broker.node_id,
            "boot_id": self._broker.boot_id,
            "end": lives.end,
            "next": page.next,
            "lost": page.lost,
            "events": [_row(each) for each in page.events],
        }
        return Response(200, encode_without_floats(answer), (JSON_HEADER, NSQ_HEADER))


class LifeRow(TypedDict):
    """An event in the answer to ``/lives``. ``at`` is Unix nanoseconds."""

    number: int
    topic: str
    channel: str | None
    id: str
    event: str
    at: int
    attempts: int
    reason: str
    delay_ms: int | None
    client_id: str
    client_address: str


def _row(event: LifeEvent) -> LifeRow:
    return {
        "number": event.number,
        "topic": event.topic,
        "channel": event.channel,
        "id": event.id.decode(),
        "event": event.what,
        "at": event.at_ns,
        "attempts": event.attempts,
        "reason": event.reason,
        "delay_ms": event.delay_ms,
        "client_id": event.client_id,
        "client_address": event.client_address,
    }
