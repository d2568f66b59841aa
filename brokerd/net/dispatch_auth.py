"""The commands of a broker with auth servers: AUTH, and the check before SUB and every publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from brokerd.net.dispatch import COMMANDS, Handler, Wait, header_pub, pub, sub
from nsqwire.commands import Auth, Authorize, Command, HeaderPub, Pub, Sub
from nsqwire.errors import AuthFirst, Invalid, Unauthorized, go_quote
from nsqwire.frame import RESPONSE, encode_frame
from nsqwire.gojson import encode

if TYPE_CHECKING:
    from brokerd.net.tcp import Connection


def auth(connection: Connection, command: Auth) -> Wait:
    """Request the grant for the secret from the auth servers, and respond with a summary of it."""
    client = connection.client
    if client.is_authed:
        raise Invalid("AUTH already set")
    client.secret = command.secret
    return Wait(partial(_request_grant, connection), partial(_respond_authed, connection))


async def _request_grant(connection: Connection) -> None:
    assert connection.auth is not None, "the table with AUTH is used only where there are auth servers"
    client = connection.client
    client.grant = await connection.auth.request_grant(client)
    client.grant_until = connection.now() + client.grant.ttl_s


def _respond_authed(connection: Connection) -> None:
    grant = connection.client.grant
    if grant is None or not grant.authorizations:
        raise Unauthorized("AUTH no authorizations found")
    answer = {
        "identity": grant.identity,
        "identity_url": grant.identity_url,
        "permission_count": len(grant.authorizations),
    }
    connection.session.respond(encode_frame(RESPONSE, encode(answer)))


def _authorized_sub(connection: Connection, command: Sub) -> Wait | None:
    return _check(connection, "SUB", command.topic, command.channel, partial(sub, connection, command))


def _authorized_pub(connection: Connection, command: Pub) -> Wait | None:
    command = replace(command, body=_kept(connection, command.body))
    verb = "PUB" if command.defer_ms is None else "DPUB"
    return _check(connection, verb, command.topic, "", partial(pub, connection, command))


def _authorized_header_pub(connection: Connection, command: HeaderPub) -> Wait | None:
    command = replace(command, body=_kept(connection, command.body))
    verb = "HPUB" if command.defer_ms is None else "HDPUB"
    return _check(connection, verb, command.topic, "", partial(header_pub, connection, command))


def _kept(connection: Connection, body: memoryview) -> memoryview:
    """The body, copied if the command has to wait: the buffer with it is reused meanwhile."""
    client = connection.client
    waits = client.is_authed and connection.now() >= client.grant_until
    return memoryview(bytes(body)) if waits else body


def _authorize_body(connection: Connection, command: Authorize) -> Wait | None:
    return _check(connection, command.verb, command.topic, "", partial(connection.broker.topic, command.topic))


def _check(connection: Connection, verb: str, topic: str, channel: str, then: Callable[[], object]) -> Wait | None:
    """Call ``then`` if the grant allows the command. Raises AuthFirst and Unauthorized.

    If the grant has expired, returns a Wait that requests a new one first.
    """
    client = connection.client
    if not client.is_authed:
        raise AuthFirst(f"AUTH required before {verb}")

    def decide() -> None:
        if client.grant is None or not client.grant.allows(topic, channel):
            quoted = f"{go_quote(topic.encode())} {go_quote(channel.encode())}"
            raise Unauthorized(f"AUTH failed for {verb} on {quoted}")
        then()

    if connection.now() >= client.grant_until:
        return Wait(partial(_request_grant, connection), decide)
    decide()
    return None


COMMANDS_WITH_AUTH: Mapping[type[Command], Handler] = {
    **COMMANDS,
    Auth: auth,
    Sub: _authorized_sub,
    Pub: _authorized_pub,
    HeaderPub: _authorized_header_pub,
    Authorize: _authorize_body,
}
"""The handlers of a broker with auth servers."""
