"""Execution of TCP commands, and their responses."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from brokerd.dedup import MAX_ID_BYTES, digest_of
from brokerd.log.batch import SIZE_BYTES
from nsqwire.commands import (
    Auth,
    Cls,
    Command,
    DpubRun,
    Fin,
    HeaderMpub,
    HeaderPub,
    IdentifyCommand,
    Mpub,
    MpubRun,
    Pub,
    PubRun,
    Rdy,
    Req,
    Sub,
    Touch,
)
from nsqwire.errors import (
    AuthDisabled,
    BadMessage,
    DpubFailed,
    IdentifyFailed,
    MpubFailed,
    PubFailed,
    PublishFailed,
    SubFailed,
)
from nsqwire.frame import RESPONSE, encode_frame
from nsqwire.headers import DEDUP_ID, encode_headers
from nsqwire.session import CLOSE_WAIT, OK, State

if TYPE_CHECKING:
    from brokerd.net.tcp import Connection
    from brokerd.topic import Topic


class Wait(NamedTuple):
    """A postponed command: ``until()`` is awaited first, then ``then()`` executes the command.

    Either may raise NSQError. The client's later commands wait until then.
    """

    until: Callable[[], Coroutine[Any, Any, None]]
    then: Callable[[], object]


Handler = Callable[["Connection", Any], Wait | None]
"""Executes a command and queues its response, or returns a Wait. Raises NSQError."""


def identify(connection: Connection, command: IdentifyCommand) -> Wait | None:
    """Apply the client's settings, and begin the TLS or compression that it requests."""
    session, client, asked = connection.session, connection.client, command.asked
    terms = session.terms
    if terms.deflate and terms.snappy:
        raise IdentifyFailed("cannot enable both deflate and snappy compression")
    if (terms.tls and client.tls) or ((terms.deflate or terms.snappy) and (client.deflate or client.snappy)):
        raise IdentifyFailed("IDENTIFY failed TLS or this compression is already enabled")
    if terms.tls and (client.deflate or client.snappy):
        raise IdentifyFailed("IDENTIFY failed TLS cannot begin inside a compression")
    client.client_id, client.hostname, client.user_agent = asked.client_id, asked.hostname, asked.user_agent
    client.topology_region, client.topology_zone = asked.topology_region, asked.topology_zone
    client.touch_timeout_s = terms.msg_timeout_ms / 1000
    if not session.identified:  # a second IDENTIFY changes the response, not how messages are delivered
        session.identified = True
        client.msg_timeout_s = client.touch_timeout_s
        client.sample_rate = terms.sample_rate
        client.takes_headers = terms.headers
        connection.restart_heartbeat()
    if asked.feature_negotiation:
        draining = connection.broker.drain.refuses_publishes
        session.respond(encode_frame(RESPONSE, terms.reply(session.limits.identify, draining=draining)))
        if terms.tls or terms.deflate or terms.snappy:
            return connection.upgrade()
    else:
        session.respond(OK)
    return None


def auth(connection: Connection, command: Auth) -> None:
    """Refuse AUTH: the broker has no auth server. Raises AuthDisabled."""
    raise AuthDisabled("AUTH disabled")


def sub(connection: Connection, command: Sub) -> None:
    """Subscribe the connection to a channel. Raises SubFailed if the channel has its maximum of consumers."""
    broker, client = connection.broker, connection.client
    channel = broker.topic(command.topic).channel(command.channel)
    limit = broker.settings.max_channel_consumers
    if limit and len(channel.clients) >= limit:
        raise SubFailed(f"SUB failed consumers for {command.topic}:{command.channel} exceeds limit of {limit}")
    channel.subscribe(client)
    connection.channel = channel
    connection.session.state = State.SUBSCRIBED
    connection.session.respond(OK)


def pub(connection: Connection, command: Pub) -> None:
    """Execute a PUB or DPUB. Raises PubFailed or DpubFailed."""
    deferred = command.defer_ms is not None
    try:
        topic = connection.broker.topic_to_publish_to(command.topic)
        published = topic.publish([command.body], by=connection.client, defer_ms=command.defer_ms or 0)
    except PublishFailed as error:
        raise (DpubFailed if deferred else PubFailed)(f"{'DPUB' if deferred else 'PUB'} failed {error}") from None
    connection.client.published(command.topic, 1)
    _respond_each(connection, topic, published, 1)


def _respond_each(connection: Connection, topic: Topic, published: range, count: int) -> None:
    """Respond to ``count`` commands of one message each, with the ids if the client asked for them."""
    session = connection.session
    if not session.terms.publish_ids or not published:  # an ephemeral topic has dropped them
        session.respond(OK * count)
    else:
        session.respond(b"".join(_with_ids([each]) for each in topic.messages.ids(published)))


def _with_ids(ids: Sequence[bytes]) -> bytes:
    """The response to a command: OK, and the ids of its messages, separated by spaces."""
    return encode_frame(RESPONSE, b" ".join([b"OK", *ids]))


def _publish_together(
    connection: Connection, name: str, count: int, publish: Callable[[Topic], range]
) -> tuple[Topic, range] | None:
    """Publish ``count`` messages together. None, with nothing stored, if they have to be published one by one: to a new
    topic, or if some of the messages may be accepted."""
    topic = connection.broker.topics.get(name)
    if topic is None or topic.drops_of(count):
        return None
    try:
        published = publish(topic)
    except PublishFailed:
        return None
    connection.client.published(name, count)
    return topic, published


def pub_run(connection: Connection, command: PubRun) -> None:
    """Execute PUBs to one topic together, or one by one if they cannot be stored together."""
    count, gap, client = command.count, command.line_bytes, connection.client
    done = _publish_together(
        connection,
        command.topic,
        count,
        lambda topic: topic.publish_messages(command.commands, count, by=client, gap=gap),
    )
    if done is not None:
        _respond_each(connection, *done, count)
    else:
        for body in command.bodies():
            pub(connection, Pub(command.topic, body, None))


def dpub_run(connection: Connection, command: DpubRun) -> None:
    """Execute DPUBs to one topic together, or one by one if they cannot be stored together."""
    count, nbytes, client = command.count, command.body_bytes, connection.client
    done = _publish_together(
        connection,
        command.topic,
        count,
        lambda topic: topic.publish_deferred(command.commands, count, nbytes, by=client),
    )
    if done is not None:
        _respond_each(connection, *done, count)
    else:
        for each in command.each():
            pub(connection, each)


def mpub(connection: Connection, command: Mpub) -> None:
    """Execute an MPUB. Raises MpubFailed; no message of it is stored then."""
    try:
        topic = connection.broker.topic_to_publish_to(command.topic)
        published = topic.publish_messages(command.messages, command.count, by=connection.client)
    except PublishFailed as error:
        raise MpubFailed(f"MPUB failed {error}") from None
    connection.client.published(command.topic, command.count)
    asks_ids = connection.session.terms.publish_ids
    connection.session.respond(_with_ids(topic.messages.ids(published)) if asks_ids else OK)


def mpub_run(connection: Connection, command: MpubRun) -> None:
    """Execute MPUBs to one topic together, or one by one if they cannot be stored together or have to be answered with
    ids."""
    commands, count, messages = command.commands, command.count, command.messages
    gap, client = command.line_bytes + SIZE_BYTES, connection.client
    if not connection.session.terms.publish_ids and _publish_together(
        connection,
        command.topic,
        messages,
        lambda topic: topic.publish_batches(commands, count, messages, gap=gap, by=client),
    ):
        connection.session.respond(OK * count)
    else:
        for each in command.each():
            mpub(connection, each)


def header_pub(connection: Connection, command: HeaderPub) -> None:
    """Execute an HPUB or HDPUB. Raises BadMessage, PubFailed and DpubFailed."""
    verb, kind = ("HPUB", PubFailed) if command.defer_ms is None else ("HDPUB", DpubFailed)
    digest = _dedup_digest(connection, verb, command.headers)
    try:
        topic = connection.broker.topic_to_publish_to(command.topic)
        published = topic.publish_with_headers(
            [command.body],
            [_block_of(command.headers)],
            by=connection.client,
            defer_ms=command.defer_ms or 0,
            dedup_digest=digest,
        )
    except PublishFailed as error:
        raise kind(f"{verb} failed {error}") from None
    connection.client.published(command.topic, 1)
    _respond_each(connection, topic, published, 1)


def _block_of(headers: dict[str, str]) -> bytes:
    return encode_headers(headers) if headers else b""


def _dedup_digest(connection: Connection, verb: str, headers: Mapping[str, str]) -> bytes | None:
    """The digest of the deduplication id among the headers; None without one. Raises BadMessage."""
    text = headers.get(DEDUP_ID)
    if text is None:
        return None
    dedup_id = text.encode()
    if not 0 < len(dedup_id) <= MAX_ID_BYTES:
        raise BadMessage(f"{verb} header {DEDUP_ID} has {len(dedup_id)} bytes, not 1 to {MAX_ID_BYTES}")
    if not connection.broker.settings.dedup_window:
        raise BadMessage(f"{verb} header {DEDUP_ID}: this node does not deduplicate, --dedup-window is 0")
    return digest_of(dedup_id)


def header_mpub(connection: Connection, command: HeaderMpub) -> None:
    """Execute an HMPUB. Raises MpubFailed; no message of it is stored then."""
    bodies = [body for _, body in command.messages]
    blocks = [_block_of(headers) for headers, _ in command.messages]
    try:
        topic = connection.broker.topic_to_publish_to(command.topic)
        published = topic.publish_with_headers(bodies, blocks, by=connection.client)
    except PublishFailed as error:
        raise MpubFailed(f"HMPUB failed {error}") from None
    connection.client.published(command.topic, len(bodies))
    asks_ids = connection.session.terms.publish_ids
    connection.session.respond(_with_ids(topic.messages.ids(published)) if asks_ids else OK)


def rdy(connection: Connection, command: Rdy) -> None:
    """Set the number of messages that the client accepts in flight."""
    connection.client.ready_count = command.count
    if connection.channel is not None:
        connection.channel.offer(connection.client)


def fin(connection: Connection, command: Fin) -> None:
    """Execute a run of FINs; each that fails is answered with E_FIN_FAILED."""
    channel = connection.channel
    assert channel is not None  # the session rejects FIN, REQ and TOUCH before SUB has succeeded
    for failure in channel.finish(connection.client, command.lines, command.count, connection.now_ns()):
        connection.session.refuse(failure)


def req(connection: Connection, command: Req) -> None:
    """Execute a run of REQs with one delay, limited by ``--max-req-timeout``; each that fails is answered with
    E_REQ_FAILED."""
    channel, broker = connection.channel, connection.broker
    assert channel is not None
    # The delay in ns is computed in wrapping 64-bit arithmetic, as in nsqd; a negative result is no delay.
    delay_ns = (command.delay_ms * 1_000_000 + 2**63) % 2**64 - 2**63
    limit = broker.settings.max_req_timeout.total_seconds()
    delay_s = min(max(delay_ns / 1e9, 0.0), limit)
    for failure in channel.requeue(connection.client, command.lines, command.count, delay_s, connection.now()):
        connection.session.refuse(failure)


def touch(connection: Connection, command: Touch) -> None:
    """Execute a run of TOUCHes; each that fails is answered with E_TOUCH_FAILED."""
    channel = connection.channel
    assert channel is not None
    for failure in channel.touch(connection.client, command.lines, command.count, connection.now()):
        connection.session.refuse(failure)


def cls(connection: Connection, command: Cls) -> None:
    """Deliver no more messages to the client, which may still answer those in flight."""
    connection.client.ready_count = 0
    connection.client.state = connection.session.state = State.CLOSING
    connection.session.respond(CLOSE_WAIT)


COMMANDS: Mapping[type[Command], Handler] = {
    IdentifyCommand: identify,
    Auth: auth,
    Sub: sub,
    Pub: pub,
    PubRun: pub_run,
    DpubRun: dpub_run,
    Mpub: mpub,
    MpubRun: mpub_run,
    HeaderPub: header_pub,
    HeaderMpub: header_mpub,
    Rdy: rdy,
    Fin: fin,
    Req: req,
    Touch: touch,
    Cls: cls,
}
"""The handlers of a broker without auth servers."""
