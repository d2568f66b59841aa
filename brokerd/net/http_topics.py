"""The HTTP endpoints that create, delete, empty, pause, rewind and read topics and channels, and act on messages.

As in nsqd, not every endpoint checks names, and the error codes differ.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from brokerd.dead import Reason
from brokerd.message_actions import MAX_IDS, ActedOn, ChosenDead, bury, finish, finish_dead, requeue, requeue_dead
from brokerd.peek import PAGE, PeekState, peek, row
from brokerd.rewind import Rewound, preview, rewind
from brokerd.scan import SCAN_MESSAGES, body_of, find, scan, state_of
from brokerd.topic_scan import PAGE as LOG_PAGE
from brokerd.topic_scan import Span, scan_log
from nsqdaemon.http import Handler, HTTPError, Request, Response, empty
from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER
from nsqdaemon.moments import moment_ns, past_ns
from nsqwire.gojson import encode_without_floats
from nsqwire.names import is_valid_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from brokerd.broker import Broker
    from brokerd.channel import Channel
    from brokerd.topic import Topic

DEFAULT_LIMIT = 20
MAX_OFFSET = 1_000_000_000
MAX_SEQ = 2**63 - 1
DEFAULT_BODY_BYTES = 1024
MAX_BODY_BYTES = 64 * 1024
MAX_RATE = 1_000_000
MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
BYTES_HEADER = (b"Content-Type", b"application/octet-stream")


class TopicVerbs:
    """The endpoints ``/topic/*``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> dict[str, Handler]:
        """The handlers by their verb."""
        return {
            "create": self.create,
            "delete": self.delete,
            "empty": self.empty,
            "pause": self.pause,
            "unpause": self.unpause,
        }

    def create(self, request: Request) -> Response:
        """Create a topic, unless it exists."""
        self._broker.topic(checked_topic(request))
        return empty()

    def delete(self, request: Request) -> Response:
        """Delete a topic with its channels and messages; its consumers are disconnected."""
        self._broker.delete_topic(self._find(request).name)
        return empty()

    def empty(self, request: Request) -> Response:
        """Drop the messages that wait in the topic itself, not those of its channels."""
        self._broker.find_topic(checked_topic(request)).empty()
        return empty()

    def pause(self, request: Request) -> Response:
        """Pause the routing of messages to the channels."""
        self._find(request).pause()
        return empty()

    def unpause(self, request: Request) -> Response:
        """Resume the routing of messages to the channels."""
        self._find(request).unpause()
        return empty()

    def scan(self, request: Request) -> Response:
        """Return the messages of the topic's log in the order of publication, whatever its channels have done with
        them. Changes nothing."""
        topic = self._broker.find_topic(checked_topic(request))
        span = Span(
            start=bounded(request, "from", default=0, most=MAX_SEQ),
            end=bounded(request, "to", default=0, most=MAX_SEQ) if "to" in request.params else None,
            since_ns=_moment(request, "since"),
            until_ns=_moment(request, "until"),
        )
        page = scan_log(topic.messages, span, limit=bounded(request, "limit", default=LOG_PAGE, most=LOG_PAGE))
        return Response(200, encode_without_floats(page), (JSON_HEADER, NSQ_HEADER))

    def _find(self, request: Request) -> Topic:
        return self._broker.find_topic(request.required("topic", "MISSING_ARG_TOPIC"))


class ChannelVerbs:
    """The endpoints ``/channel/*``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> dict[str, Handler]:
        """The handlers by their verb."""
        return {
            "create": self.create,
            "delete": self.delete,
            "empty": self.empty,
            "pause": self.pause,
            "unpause": self.unpause,
        }

    def create(self, request: Request) -> Response:
        """Create a channel of an existing topic, unless it exists."""
        topic, channel = self._names(request)
        self._broker.find_topic(topic).channel(channel)
        return empty()

    def delete(self, request: Request) -> Response:
        """Delete a channel with its messages; its consumers are disconnected."""
        topic_name, channel = self._names(request)
        topic = self._broker.find_topic(topic_name)
        topic.find_channel(channel)
        topic.delete_channel(channel)
        return empty()

    def empty(self, request: Request) -> Response | Awaitable[Response]:
        """Drop all messages that are waiting, in flight or deferred; with ``state=dead``, the dead ones instead."""
        channel = self._find(request)
        if _asks_dead(request):
            return _counted("finished", finish_dead(channel, _chosen_dead(request)))
        channel.empty()
        return empty()

    def pause(self, request: Request) -> Response:
        """Pause deliveries to the consumers."""
        self._find(request).pause()
        return empty()

    def unpause(self, request: Request) -> Response:
        """Resume deliveries to the consumers."""
        self._find(request).unpause()
        return empty()

    def rewind(self, request: Request) -> Response:
        """Redeliver the messages published since a time, as far as the log reaches back."""
        return self._rewound(request, rewind)

    def rewind_preview(self, request: Request) -> Response:
        """Return what rewinding to a time would redeliver. Changes nothing."""
        return self._rewound(request, preview)

    def _rewound(self, request: Request, act: Callable[[Channel, int], Rewound]) -> Response:
        channel = self._find(request)
        text = request.required("since", "MISSING_ARG_SINCE")
        try:
            since_ns = past_ns(text, time.time_ns())
        except ValueError:
            raise HTTPError(400, "INVALID_ARG_SINCE") from None
        done = act(channel, since_ns)
        answer = {"messages": done.messages, "oldest_timestamp": done.oldest_ns, "complete": done.is_complete}
        return Response(200, encode_without_floats(answer), (JSON_HEADER, NSQ_HEADER))

    def finish(self, request: Request) -> Response:
        """Remove messages from the channel, by their ids."""
        return self._act_by_id(request, "finished", finish)

    def requeue(self, request: Request) -> Response | Awaitable[Response]:
        """Make messages ready, by their ids; with ``state=dead``, all dead ones, or those of a reason or since a time.

        Those in flight are taken from their clients.
        """
        if not _asks_dead(request):
            return self._act_by_id(request, "requeued", requeue)
        channel, chosen = self._find(request), _chosen_dead(request)
        rate = bounded(request, "rate", default=0, most=MAX_RATE)
        return _counted("requeued", requeue_dead(channel, chosen, rate=rate, now=self._broker.runtime.now()))

    def bury(self, request: Request) -> Response:
        """Let messages die, by their ids. Those in flight are taken from their clients."""
        return self._act_by_id(request, "buried", bury)

    def _act_by_id(self, request: Request, done: str, act: Callable[[Channel, Iterable[bytes]], ActedOn]) -> Response:
        found = act(self._find(request), ids_of(request))
        not_found = [each.decode("ascii", "replace") for each in found.not_found]
        answer = {done: found.messages, "not_found": not_found}
        return Response(200, encode_without_floats(answer), (JSON_HEADER, NSQ_HEADER))

    def peek(self, request: Request) -> Response:
        """Return messages that are ready, in flight, deferred or dead. Changes nothing."""
        channel = self._find(request)
        try:
            state = PeekState(request.params.get("state", PeekState.READY))
        except ValueError:
            raise HTTPError(400, "INVALID_ARG_STATE") from None
        page = peek(
            channel,
            state,
            offset=bounded(request, "offset", default=0, most=MAX_OFFSET),
            limit=bounded(request, "limit", default=DEFAULT_LIMIT, most=PAGE),
            max_body_bytes=bounded(request, "max_body_bytes", default=DEFAULT_BODY_BYTES, most=MAX_BODY_BYTES),
        )
        return Response(200, encode_without_floats(page), (JSON_HEADER, NSQ_HEADER))

    def scan(self, request: Request) -> Response:
        """Return messages with their whole bodies, in the order of publication: the dead ones, or those in all other
        states. Changes nothing."""
        channel = self._find(request)
        page = scan(
            channel,
            bounded(request, "from", default=0, most=MAX_SEQ),
            limit=bounded(request, "limit", default=SCAN_MESSAGES, most=SCAN_MESSAGES),
            dead=_asks_dead(request),
        )
        return Response(200, encode_without_floats(page), (JSON_HEADER, NSQ_HEADER))

    def message(self, request: Request) -> Response:
        """Return one message without its body, by its id. Changes nothing."""
        channel = self._find(request)
        seq = self._number(request, channel)
        state = state_of(channel, seq)
        found = None if state is None else row(channel, state, seq, 0)
        if found is None:
            raise HTTPError(404, MESSAGE_NOT_FOUND)
        return Response(200, encode_without_floats(found), (JSON_HEADER, NSQ_HEADER))

    def body(self, request: Request) -> Response:
        """Return the whole body of one message, by its id. Changes nothing."""
        channel = self._find(request)
        body = body_of(channel, self._number(request, channel))
        if body is None:
            raise HTTPError(404, MESSAGE_NOT_FOUND)
        return Response(200, body, (BYTES_HEADER, NSQ_HEADER))

    @staticmethod
    def _number(request: Request, channel: Channel) -> int:
        message_id = request.required("id", "MISSING_ARG_ID").encode("ascii", "replace")
        seq = find(channel, message_id)
        if seq is None:
            raise HTTPError(404, MESSAGE_NOT_FOUND)
        return seq

    def _find(self, request: Request) -> Channel:
        topic, channel = self._names(request)
        return self._broker.find_topic(topic).find_channel(channel)

    @staticmethod
    def _names(request: Request) -> tuple[str, str]:
        topic = request.required("topic", "MISSING_ARG_TOPIC")
        if not is_valid_name(topic):
            raise HTTPError(400, "INVALID_ARG_TOPIC")
        channel = request.required("channel", "MISSING_ARG_CHANNEL")
        if not is_valid_name(channel):
            raise HTTPError(400, "INVALID_ARG_CHANNEL")
        return topic, channel


def ids_of(request: Request) -> list[bytes]:
    """The ids in the body and the parameter ``id``. Raises HTTPError if there are none, or too many."""
    ids = request.body.split()
    if (one := request.params.get("id")) is not None:
        ids.append(one.encode("ascii", "replace"))
    if not ids:
        raise HTTPError(400, "MISSING_ARG_ID")
    if len(ids) > MAX_IDS:
        raise HTTPError(400, "TOO_MANY_IDS")
    return ids


def _asks_dead(request: Request) -> bool:
    """Whether the request has ``state=dead``. Raises HTTPError for another state."""
    state = request.params.get("state", "")
    if state not in ("", PeekState.DEAD):
        raise HTTPError(400, "INVALID_ARG_STATE")
    return state == PeekState.DEAD


def _chosen_dead(request: Request) -> ChosenDead:
    """The dead messages of the parameters ``reason`` and ``since``. Raises HTTPError with the parameter's name."""
    if request.body.split() or "id" in request.params:
        raise HTTPError(400, "INVALID_ARG_ID")  # ids choose single messages, ``state=dead`` chooses by reason and time
    reason, since = request.params.get("reason"), request.params.get("since")
    try:
        chosen = None if reason is None else Reason(reason)
    except ValueError:
        raise HTTPError(400, "INVALID_ARG_REASON") from None
    try:
        return ChosenDead(chosen, 0 if since is None else past_ns(since, time.time_ns()))
    except ValueError:
        raise HTTPError(400, "INVALID_ARG_SINCE") from None


async def _counted(done: str, portions: Iterator[int]) -> Response:
    """Act on portions of messages, between which the broker does other work. The response has their number."""
    total = 0
    for count in portions:
        total += count
        await asyncio.sleep(0)
    return Response(200, encode_without_floats({done: total}), (JSON_HEADER, NSQ_HEADER))


def bounded(request: Request, name: str, *, default: int, most: int) -> int:
    """A parameter that is a number from 0 to ``most``. Raises HTTPError 400 with the parameter's name."""
    text = request.params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
        raise HTTPError(400, f"INVALID_ARG_{name.upper()}")
    return int(text)


def _moment(request: Request, name: str) -> int | None:
    """A parameter that is a time or a duration before now, in Unix nanoseconds. Raises HTTPError 400 with its name."""
    text = request.params.get(name)
    if text is None:
        return None
    try:
        return moment_ns(text, time.time_ns())
    except ValueError:
        raise HTTPError(400, f"INVALID_ARG_{name.upper()}") from None


def checked_topic(request: Request) -> str:
    """The parameter ``topic``. Raises HTTPError if it is missing or not valid."""
    name = request.required("topic", "MISSING_ARG_TOPIC")
    if not is_valid_name(name):
        raise HTTPError(400, "INVALID_TOPIC")
    return name
