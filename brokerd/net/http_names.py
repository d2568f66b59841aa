"""The HTTP endpoints that act on many topics or channels in one request, which nsqd does not have.

Each name has the same effect, and the same error, as a request of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final

from nsqdaemon.http import Handler, Request, Response
from nsqdaemon.http.names import act_on_each, names_of, topic_and_channel
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.channel import Channel
    from brokerd.topic import Topic

TURN_S: Final[Seconds] = 0.002
"""Time for the names of one request in one turn of the event loop; the broker does other work between turns."""

Act = Callable[[str], object]


class ManyTopics:
    """The endpoints ``/topics/*``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> dict[str, Handler]:
        """The handlers by their verb. ``find`` changes nothing: its errors say which topics the node does not have."""
        return {
            "find": _handler(self._find),
            "delete": _handler(self._broker.delete_topic),
            "empty": _handler(lambda name: self._find(name).empty()),
            "pause": _handler(lambda name: self._find(name).pause()),
            "unpause": _handler(lambda name: self._find(name).unpause()),
        }

    def _find(self, name: str) -> Topic:
        return self._broker.find_topic(name)


class ManyChannels:
    """The endpoints ``/channels/*``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> dict[str, Handler]:
        """The handlers by their verb."""
        return {
            "delete": _handler(self._delete),
            "empty": _handler(lambda name: self._find(name).empty()),
            "pause": _handler(lambda name: self._find(name).pause()),
            "unpause": _handler(lambda name: self._find(name).unpause()),
        }

    def _delete(self, name: str) -> None:
        topic, channel = topic_and_channel(name)
        self._broker.find_topic(topic).delete_channel(channel)

    def _find(self, name: str) -> Channel:
        topic, channel = topic_and_channel(name)
        return self._broker.find_topic(topic).find_channel(channel)


def _handler(act: Act) -> Handler:
    return partial(_act, act)


async def _act(act: Act, request: Request) -> Response:
    return await in_turns(act_on_each(request, names_of(request), act))


async def in_turns(steps: Generator[None, None, Response]) -> Response:
    """Run the steps, at most TURN_S in one turn of the event loop."""
    until = time.monotonic() + TURN_S
    while True:
        try:
            next(steps)
        except StopIteration as stopped:
            response: Response = stopped.value
            return response
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + TURN_S
