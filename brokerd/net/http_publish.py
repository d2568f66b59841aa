"""``/pub`` and ``/mpub``: publishing over HTTP."""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from brokerd.kernel import pack_lines, scan_messages
from nsqdaemon.http import Answer, HTTPError, PendingResponse, Request, error_response, refusal, text_response
from nsqwire.errors import PublishFailed
from nsqwire.names import is_valid_name
from nsqwire.scan import COMPLETE

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.topic import Topic

log = logging.getLogger(__name__)

OK: Final = text_response("OK")
EXITING: Final = error_response(503, "EXITING")

GATHERED_BYTES: Final = 16 * 1024
"""Messages of up to this many bytes are published together. For longer ones this would save nothing."""
GATHERED_AT_MOST: Final = 1000
"""A topic without room for as many more takes each message alone, so that only those without room are refused."""

_BINARY_WORDS: Final = {"true": True, "1": True, "false": False, "0": False}
_GO_INT: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LENGTH: Final = struct.Struct(">i")


class Gathered(NamedTuple):
    """Messages for one topic, the shared response of their requests, and the first request."""

    bodies: list[bytes]
    answer: PendingResponse
    request: Request


class Publishing:
    """The endpoints ``/pub`` and ``/mpub`` of one broker."""

    def __init__(self, broker: Broker, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """``call_soon`` runs a function in the next turn of the event loop."""
        self._broker = broker
        self._call_soon = call_soon
        self._gathered: dict[str, Gathered] = {}
        syncer = broker.storage.syncer
        self._syncer = syncer if syncer is not None and syncer.acknowledges else None
        self._max_msg_size = broker.settings.max_msg_size
        self._max_body_size = broker.settings.max_body_size
        self._max_defer_ms = broker.settings.max_req_timeout // timedelta(milliseconds=1)

    def pub(self, request: Request) -> Answer:
        """``/pub``: the body is one message; ``defer`` is its delay in milliseconds."""
        body = request.body
        if len(body) > self._max_msg_size:
            raise HTTPError(413, "MSG_TOO_BIG")
        if not body:
            raise HTTPError(400, "MSG_EMPTY")
        params = request.params
        topic = self._topic(params)
        defer = params.get("defer")
        if defer is not None:
            topic.publish((body,), defer_ms=self._defer_ms(defer))
        elif len(body) > GATHERED_BYTES or not self._admits_more(topic):
            topic.publish((body,))
        else:
            return self._gather(request, topic.name)
        return self._stored_response()

    def _admits_more(self, topic: Topic) -> bool:
        """Return whether there is room for the messages that are gathered, and for many more."""
        gathered = self._gathered.get(topic.name)
        count = GATHERED_AT_MOST + (len(gathered.bodies) if gathered is not None else 0)
        return topic.admits(count, count * GATHERED_BYTES)

    def _gather(self, request: Request, topic: str) -> PendingResponse:
        """Publish the message together with those of other requests for the topic in this turn of the event loop.

        All these requests are answered together. A batch costs the log little more than one message.
        """
        gathered = self._gathered.get(topic)
        if gathered is None:
            if not self._gathered:
                self._call_soon(self._publish_gathered)
            gathered = self._gathered[topic] = Gathered([], PendingResponse(), request)
        gathered.bodies.append(request.body)
        return gathered.answer

    def _publish_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for name, (bodies, answer, request) in gathered.items():
            try:
                # The topic is looked up again, because it may have been deleted since.
                self._create_topic(name).publish(bodies)
            except Exception as error:
                answer.resolve(refusal(request, error))
            else:
                self._resolve_once_stored(answer)

    def _stored_response(self) -> Answer:
        """The response OK for the messages just published, at once or after a sync."""
        if self._syncer is None:
            return OK
        answer = PendingResponse()
        self._resolve_once_stored(answer)
        return answer

    def _resolve_once_stored(self, answer: PendingResponse) -> None:
        if self._syncer is None:
            answer.resolve(OK)
        else:
            self._syncer.when_synced(lambda error: answer.resolve(OK if error is None else EXITING))

    def mpub(self, request: Request) -> Answer:
        """``/mpub``: the body has several messages, as lines, or with ``binary`` as the body of an MPUB."""
        if len(request.body) > self._max_body_size:
            raise HTTPError(413, "BODY_TOO_BIG")
        topic = self._topic(request.params)
        if self._is_binary(request.params):
            limits = {"max_msg_size": self._max_msg_size, "max_body_size": self._max_body_size}
            topic.publish_messages(*parse_binary(request.body, **limits))
        else:
            messages, count = parse_lines(request.body, max_msg_size=self._max_msg_size)
            if count:
                topic.publish_messages(memoryview(messages), count)
        return self._stored_response()

    def _topic(self, params: Mapping[str, str]) -> Topic:
        name = params.get("topic")
        if name is None:
            raise HTTPError(400, "MISSING_ARG_TOPIC")
        topic = self._broker.topics.get(name)
        if topic is not None:
            return topic
        if not is_valid_name(name):
            raise HTTPError(400, "INVALID_TOPIC")
        return self._create_topic(name)

    def _create_topic(self, name: str) -> Topic:
        try:
            return self._broker.topic(name)
        except OSError as error:
            raise PublishFailed(str(error)) from error

    def _defer_ms(self, text: str) -> int:
        defer_ms = int(text) if _GO_INT.fullmatch(text) and len(text) <= 20 else -1
        if not 0 <= defer_ms <= self._max_defer_ms:
            raise HTTPError(400, "INVALID_DEFER")
        return defer_ms

    def _is_binary(self, params: Mapping[str, str]) -> bool:
        word = params.get("binary")
        if word is None:
            return False
        if word not in _BINARY_WORDS:
            log.warning("deprecated value %r for binary in /mpub, treated as true", word)
        return _BINARY_WORDS.get(word, True)


def parse_lines(body: bytes, *, max_msg_size: int) -> tuple[bytes, int]:
    r"""Parse a text ``/mpub``. Returns count × (``size i32 | message``), and the count.

    Messages are lines ending in ``\n`` or with the body; empty lines are left out. Raises HTTPError, with nothing
    published, if a line is longer than ``max_msg_size``.
    """
    messages, count = pack_lines(body, max_msg_size)
    if count < 0:
        raise HTTPError(413, "MSG_TOO_BIG")
    return messages, count


def parse_binary(body: bytes, *, max_msg_size: int, max_body_size: int) -> tuple[memoryview, int]:
    """Parse a binary ``/mpub``: ``count i32``, count × (``size i32 | message``). Returns the messages and the count.

    Bytes after the last message are ignored, as in nsqd. Raises HTTPError for an invalid body.
    """
    if len(body) < _LENGTH.size:
        raise HTTPError(413, "BAD_BODY")
    (count,) = _LENGTH.unpack_from(body)
    if not 0 < count <= (max_body_size - 4) // 5:  # each message has a size and at least one byte
        raise HTTPError(413, "BAD_BODY")
    status, end, _, _ = scan_messages(body, _LENGTH.size, len(body), count, max_msg_size)
    if status != COMPLETE:
        raise HTTPError(413, "BAD_MESSAGE")
    return memoryview(body)[_LENGTH.size : end], count
