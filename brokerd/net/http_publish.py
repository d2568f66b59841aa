"""``/pub`` and ``/mpub``: publishing over HTTP."""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from brokerd.dedup import MAX_ID_BYTES, digest_of
from brokerd.kernel import pack_lines, scan_messages
from brokerd.lives import Party, Requester
from nsqdaemon.http import (
    Answer,
    HTTPError,
    PendingResponse,
    Request,
    Response,
    error_response,
    json_response,
    refusal,
    text_response,
)
from nsqdaemon.http.messages import FLAG_WORDS
from nsqwire.errors import BadHeaders, PublishFailed
from nsqwire.headers import MAX_MESSAGES, checked_headers, encode_headers, parse_envelope
from nsqwire.names import is_valid_name
from nsqwire.scan import COMPLETE

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.settings import BrokerSettings
    from brokerd.topic import Topic

log = logging.getLogger(__name__)

OK: Final = text_response("OK")
EXITING: Final = error_response(503, "EXITING")

GATHERED_BYTES: Final = 16 * 1024
"""Messages of up to this many bytes are published together. For longer ones this would save nothing."""
GATHERING_ROOM: Final = 1000
"""Messages are gathered while the topic has room for this many more. Otherwise it takes each alone, so that only those
without room are refused."""

HEADER_PREFIX: Final = b"x-nsq-header-"
"""The beginning, in lower case, of the names of request headers that are headers of the message."""
_OPTIONS: Final = frozenset(("ids", "dedup_id"))
_GO_INT: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LENGTH: Final = struct.Struct(">i")


class Gathered(NamedTuple):
    """Requests that publish to one topic, and their shared response."""

    requests: list[Request]
    answer: PendingResponse


class Options(NamedTuple):
    """The parameters ``ids`` and ``dedup_id`` of a publish. A publish with one of them is stored in a batch of its own.

    ``dedup_digest`` is None without a deduplication id.
    """

    asks_ids: bool
    dedup_digest: bytes | None


_NO_OPTIONS: Final = Options(asks_ids=False, dedup_digest=None)


class Publishing:
    """The endpoints ``/pub`` and ``/mpub`` of one broker."""

    def __init__(self, broker: Broker, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """``call_soon`` runs a function in the next turn of the event loop."""
        self._broker = broker
        self._topics = broker.topics
        self._call_soon = call_soon
        self._gathered: dict[str, Gathered] = {}
        syncer = broker.storage.syncer
        self._syncer = syncer if syncer is not None and syncer.acknowledges else None
        self._max_msg_size = broker.settings.max_msg_size
        self._max_body_size = broker.settings.max_body_size

    def pub(self, request: Request) -> Answer:
        """``/pub``: the body is one message; ``defer`` is its delay in milliseconds."""
        size = len(request.body)
        if size > self._max_msg_size:
            raise HTTPError(413, "MSG_TOO_BIG")
        if not size:
            raise HTTPError(400, "MSG_EMPTY")
        params = request.params
        name = params.get("topic")
        if name is None or len(params) > 1 or request.may_have_headers_below(HEADER_PREFIX):
            return self._pub_with_parameters(request, params)
        topic = self._topics.get(name) or self._topic(params)
        if size <= GATHERED_BYTES and (topic.bound is None or self._admits_more(topic)):
            return self._gather(request, topic.name)
        topic.publish((request.body,), by=_publisher(request))
        return self._stored_response()

    def _pub_with_parameters(self, request: Request, params: Mapping[str, str]) -> Answer:
        """A ``/pub`` that may have headers, options or a delay."""
        options = self._options(params)
        headers = headers_in(request)
        topic = self._topic(params)
        defer = params.get("defer")
        defer_ms = 0 if defer is None else defer_ms_of(defer, self._broker.settings)
        publish = partial(
            topic.publish_with_headers, (request.body,), (headers,), by=_publisher(request), defer_ms=defer_ms
        )
        return self._publish_with_options(options or _NO_OPTIONS, topic, publish)

    def _admits_more(self, topic: Topic) -> bool:
        """Return whether there is room for the messages that are gathered, and for many more."""
        gathered = self._gathered.get(topic.name)
        count = GATHERING_ROOM + (len(gathered.requests) if gathered is not None else 0)
        return topic.admits(count, count * GATHERED_BYTES)

    def _gather(self, request: Request, topic: str) -> PendingResponse:
        """Publish the message together with those of other requests for the topic in this iteration of the event loop.

        All these requests are answered together. A batch costs the log little more than one message.
        """
        gathered = self._gathered.get(topic)
        if gathered is None:
            if not self._gathered:
                self._call_soon(self._publish_gathered)
            gathered = self._gathered[topic] = Gathered([], PendingResponse())
        gathered.requests.append(request)
        return gathered.answer

    def _publish_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for name, (requests, answer) in gathered.items():
            try:
                # The topic is looked up again, because it may have been deleted since.
                topic = self._topics.get(name) or self._create_topic(name)
                if topic.drops_of(len(requests)):
                    for each in requests:
                        topic.publish((each.body,), by=_publisher(each))
                else:
                    publishers = [_publisher(each) for each in requests] if topic.lives.every else None
                    topic.publish([each.body for each in requests], by=publishers)
            except Exception as error:
                answer.resolve(refusal(requests[0], error))
            else:
                self._resolve_once_stored(answer)

    def _options(self, params: Mapping[str, str]) -> Options | None:
        """What the parameters ``ids`` and ``dedup_id`` ask for; None without them."""
        if _OPTIONS.isdisjoint(params):
            return None
        asks_ids = FLAG_WORDS.get(params.get("ids", "false"))
        if asks_ids is None:
            raise HTTPError(400, "INVALID_ARG_IDS")
        return Options(asks_ids, self._dedup_digest(params))

    def _publish_with_options(self, options: Options, topic: Topic, publish: Callable[..., range]) -> Answer:
        """Call ``publish`` with the keyword ``dedup_digest``, and answer with the ids of the messages if asked."""
        seqs = publish(dedup_digest=options.dedup_digest)
        if not options.asks_ids:
            return self._stored_response()
        ids = [each.decode() for each in topic.messages.ids(seqs)]
        return self._stored_response(json_response({"ids": ids}))

    def _dedup_digest(self, params: Mapping[str, str]) -> bytes | None:
        text = params.get("dedup_id")
        if text is None:
            return None
        dedup_id = text.encode("utf-8", "surrogateescape")
        if not 0 < len(dedup_id) <= MAX_ID_BYTES:
            raise HTTPError(400, "INVALID_ARG_DEDUP_ID")
        if not self._broker.settings.dedup_window:
            raise HTTPError(400, "DEDUP_DISABLED")
        return digest_of(dedup_id)

    def _stored_response(self, response: Response = OK) -> Answer:
        """The response for the messages just published, at once or after a sync."""
        if self._syncer is None or self._syncer.is_stalled:  # while it is stalled, nothing was stored
            return response
        answer = PendingResponse()
        self._resolve_once_stored(answer, response)
        return answer

    def _resolve_once_stored(self, answer: PendingResponse, response: Response = OK) -> None:
        if self._syncer is None or self._syncer.is_stalled:
            answer.resolve(response)
        else:
            self._syncer.when_synced(lambda error: answer.resolve(response if error is None else EXITING))

    def mpub(self, request: Request) -> Answer:
        """``/mpub``: the body has several messages, as lines, or with ``binary`` as the body of an MPUB."""
        if len(request.body) > self._max_body_size:
            raise HTTPError(413, "BODY_TOO_BIG")
        options = self._options(request.params)
        is_envelope = FLAG_WORDS.get(request.params.get("envelope", "false"))
        if is_envelope is None:
            raise HTTPError(400, "INVALID_ARG_ENVELOPE")
        topic, by = self._topic(request.params), _publisher(request)
        if is_envelope:
            if "binary" in request.params:
                raise HTTPError(400, "INVALID_ARG_ENVELOPE")
            bodies, blocks = parse_envelopes(request.body, max_msg_size=self._max_msg_size)
            publish_all = partial(topic.publish_with_headers, bodies, blocks, by=by) if bodies else _publish_nothing
            return self._publish_with_options(options or _NO_OPTIONS, topic, publish_all)
        if self._is_binary(request.params):
            limits = {"max_msg_size": self._max_msg_size, "max_body_size": self._max_body_size}
            messages, count = parse_binary(request.body, **limits)
        else:
            lines, count = parse_lines(request.body, max_msg_size=self._max_msg_size)
            messages = memoryview(lines)
        if options is not None:
            publish = partial(topic.publish_messages, messages, count, by=by) if count else _publish_nothing
            return self._publish_with_options(options, topic, publish)
        if count:
            topic.publish_messages(messages, count, by=by)
        return self._stored_response()

    def _topic(self, params: Mapping[str, str]) -> Topic:
        name = params.get("topic")
        if name is None:
            raise HTTPError(400, "MISSING_ARG_TOPIC")
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        if not is_valid_name(name):
            raise HTTPError(400, "INVALID_TOPIC")
        return self._create_topic(name)

    def _create_topic(self, name: str) -> Topic:
        try:
            return self._broker.topic_to_publish_to(name)
        except OSError as error:
            raise PublishFailed(str(error)) from error

    def _is_binary(self, params: Mapping[str, str]) -> bool:
        word = params.get("binary")
        if word is None:
            return False
        if word not in FLAG_WORDS:
            log.warning("deprecated value %r for binary in /mpub, treated as true", word)
        return FLAG_WORDS.get(word, True)


def defer_ms_of(text: str, settings: BrokerSettings) -> int:
    """A delay in milliseconds, from 0 to ``--max-req-timeout``. Raises HTTPError."""
    defer_ms = int(text) if _GO_INT.fullmatch(text) and len(text) <= 20 else -1
    if not 0 <= defer_ms <= settings.max_req_timeout // timedelta(milliseconds=1):
        raise HTTPError(400, "INVALID_DEFER")
    return defer_ms


def headers_in(request: Request) -> bytes:
    """The header block of the request headers ``X-NSQ-Header-<name>``; empty if there is none. Raises HTTPError."""
    found = request.headers_below(HEADER_PREFIX)
    if not found:
        return b""
    try:
        return encode_headers(checked_headers((name.decode("ascii"), value.decode()) for name, value in found))
    except BadHeaders as error:
        raise HTTPError(400, f"INVALID_HEADERS: {error}") from None
    except UnicodeDecodeError:
        raise HTTPError(400, "INVALID_HEADERS: a header is not UTF-8") from None


def parse_envelopes(body: bytes, *, max_msg_size: int) -> tuple[list[bytes], list[bytes]]:
    """Parse a ``/mpub`` of envelopes. Returns the bodies, and the header block of each, empty without headers.

    Each line is ``{"headers": {…}, "body": "…"}``, or has ``body_base64``; ``headers`` may be missing, and empty lines
    are left out. Raises HTTPError, which names the line, with nothing published.
    """
    bodies, blocks = list[bytes](), list[bytes]()
    lines = body.rstrip(b"\n").split(b"\n", MAX_MESSAGES)
    if len(lines) > MAX_MESSAGES:
        raise HTTPError(413, f"INVALID_ENVELOPE: more than {MAX_MESSAGES:,} lines")
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                message, headers = parse_envelope(line)
            except ValueError as error:
                raise HTTPError(400, f"INVALID_ENVELOPE: line {number}: {error}") from None
            if len(message) > max_msg_size:
                raise HTTPError(413, "MSG_TOO_BIG")
            bodies.append(message)
            blocks.append(encode_headers(headers) if headers else b"")
    return bodies, blocks


def _publisher(request: Request) -> Party:
    return Requester(request.remote_address)


def _publish_nothing(*, dedup_digest: bytes | None) -> range:
    return range(0)


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
