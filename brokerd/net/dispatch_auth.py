"""The commands of a broker that has auth servers: AUTH, and the check before SUB and every publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from brokerd.net.dispatch import COMMANDS, Waits, pub, sub
from nsqwire.errors import AuthFirst, Invalid, Unauthorized, go_quote
from nsqwire.frame import RESPONSE, encode_frame
from nsqwire.http.gojson import encode
from nsqwire.received import Auth, Authorize, Command, Pub, Sub

if TYPE_CHECKING:
    from brokerd.net.tcp import Connection


def auth(connection: Connection, command: Auth) -> None:
    """Ask what the secret allows, and tell how much it is."""
    client = connection.client
    if client.is_authed:
        raise Invalid("AUTH already set")
    client.secret = command.secret
    raise Waits(_ask(connection), partial(_authed, connection))


async def _ask(connection: Connection) -> None:
    assert connection.auth is not None, "the table with AUTH is used only where there are auth servers"
    client = connection.client
    client.grant = await connection.auth.ask(client)
    client.grant_until = connection.broker.now() + client.grant.ttl


def _authed(connection: Connection) -> None:
    grant = connection.client.grant
    if grant is None or not grant.authorizations:
        raise Unauthorized("AUTH no authorizations found")
    answer = {
        "identity": grant.identity,
        "identity_url": grant.identity_url,
        "permission_count": len(grant.authorizations),
    }
    connection.session.respond(encode_frame(RESPONSE, encode(answer)))


def _authorized_sub(connection: Connection, command: Sub) -> None:
    _check(connection, "SUB", command.topic, command.channel, partial(sub, connection, command))


def _authorized_pub(connection: Connection, command: Pub) -> None:
    client = connection.client
    if client.is_authed and connection.broker.now() >= client.grant_until:
        # It has to wait, and where its body stands will be read into meanwhile.
        command = replace(command, body=memoryview(bytes(command.body)))
    verb = "PUB" if command.defer_ms is None else "DPUB"
    _check(connection, verb, command.topic, "", partial(pub, connection, command))


def _authorize_mpub(connection: Connection, command: Authorize) -> None:
    _check(connection, "MPUB", command.topic, "", partial(connection.broker.topic, command.topic))


def _check(connection: Connection, verb: str, topic: str, channel: str, then: Callable[[], object]) -> None:
    """Do ``then`` if the grant allows it. Raises Waits where that has run out; AuthFirst, Unauthorized."""
    client = connection.client
    if not client.is_authed:
        raise AuthFirst(f"AUTH required before {verb}")

    def decide() -> None:
        if client.grant is None or not client.grant.allows(topic, channel):
            quoted = f"{go_quote(topic.encode())} {go_quote(channel.encode())}"
            raise Unauthorized(f"AUTH failed for {verb} on {quoted}")
        then()

    if connection.broker.now() >= client.grant_until:
        raise Waits(_ask(connection), decide)
    decide()


COMMANDS_WITH_AUTH: Mapping[type[Command], Callable[[Connection, Any], None]] = {
    **COMMANDS,
    Auth: auth,
    Sub: _authorized_sub,
    Pub: _authorized_pub,
    Authorize: _authorize_mpub,
}
"""As dispatch's table."""
