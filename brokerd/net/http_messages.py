"""The HTTP endpoints by which publishers act on messages that they have published."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from brokerd.net.http_publish import defer_ms_of
from brokerd.net.http_topics import checked_topic, ids_of
from brokerd.publisher_actions import STEPS_AT_ONCE, ActedOn, Outcome, cancel, defer
from nsqdaemon.http import Handler, Request, Response
from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER
from nsqwire.gojson import encode_without_floats

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.topic import Topic


class MessageVerbs:
    """The endpoints ``/message/*``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> dict[str, Handler]:
        """The handlers by their verb."""
        return {"cancel": self.cancel, "defer": self.defer}

    async def cancel(self, request: Request) -> Response:
        """Cancel messages, by their ids, in all channels where they are not in flight."""
        return await self._act(request, cancel)

    async def defer(self, request: Request) -> Response:
        """Defer messages, by their ids, in all channels where they are ready or deferred."""
        text = request.required("defer", "MISSING_ARG_DEFER")
        delay_s = defer_ms_of(text, self._broker.settings) / 1000
        return await self._act(request, partial(defer, due=self._broker.runtime.now() + delay_s))

    async def _act(self, request: Request, act: Callable[[Topic, Sequence[bytes]], list[ActedOn]]) -> Response:
        name = checked_topic(request)
        ids = list(dict.fromkeys(ids_of(request)))
        topic = self._broker.find_topic(name)
        found: list[ActedOn] = []
        start = 0
        while start < len(ids):
            if start:
                await asyncio.sleep(0)
            end = start + max(1, STEPS_AT_ONCE // max(1, len(topic.channels)))
            found += act(topic, ids[start:end])
            start = end
        known = {message.message_id for message in found}
        answer = {
            "messages": [_row(message) for message in found],
            "not_found": [each.decode("ascii", "replace") for each in ids if each not in known],
        }
        return Response(200, encode_without_floats(answer), (JSON_HEADER, NSQ_HEADER))


class ActedOnRow(TypedDict):
    """A message in the answer, with its outcome in the topic, if it waits there, and in each channel."""

    id: str
    topic: Outcome | None
    channels: dict[str, Outcome]


def _row(message: ActedOn) -> ActedOnRow:
    return {"id": message.message_id.decode(), "topic": message.in_topic, "channels": message.channels}
