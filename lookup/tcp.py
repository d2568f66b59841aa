"""The registry's TCP face: one connection of an nsqd."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, cast

from lookup.producer import Peer
from lookup.registration import Registration
from lookup.registry import Registry
from lookup.session import MAGIC, OK, Command, Identify, Ping, Register, Session
from nsqwire.addresses import address_text
from nsqwire.durations import format_duration
from nsqwire.http import encode

log = logging.getLogger(__name__)

_KEEPALIVE_S: Final = 15


class Conversation:
    """A session and what its commands do to the registry: still without a socket; ``now_ns`` comes in."""

    def __init__(self, registry: Registry, address: str, identity: Mapping[str, Any]) -> None:
        self.session = Session()
        self._registry = registry
        self._address = address
        self._identity = identity
        self._peer: Peer | None = None

    def received(self, data: bytes, now_ns: int) -> None:
        """Take bytes, and carry out what they complete; the replies are in ``session.take_output()``."""
        self.session.received(data)
        while self.proceed(now_ns):
            pass

    def proceed(self, now_ns: int, commands: int = 64) -> bool:
        """Carry out so many commands of those that were received; whether there may be more."""
        session, greeted = self.session, self.session.greeted
        done = 0
        while done < commands and (command := session.next_command()) is not None:
            session.respond(self._execute(command, now_ns))
            done += 1
        if session.greeted and not greeted:
            log.info("CLIENT(%s): desired protocol magic '%s'", self._address, MAGIC.decode())
        elif session.closed and not session.greeted:
            log.error("client(%s) bad protocol magic", self._address)
        return done == commands

    def ended(self) -> None:
        """The connection is gone, and with it its peer's registrations."""
        if self._peer is not None:
            self._log_each("UNREGISTER", self._registry.disconnect(self._peer))
            self._peer = None

    def _execute(self, command: Command, now_ns: int) -> bytes:
        if isinstance(command, Ping):
            self._pinged(now_ns)
            return OK
        if isinstance(command, Identify):
            return self._identified(command, now_ns)
        assert self._peer is not None, "the session lets nobody register before IDENTIFY"
        if isinstance(command, Register):
            self._log_each("REGISTER", self._registry.register(self._peer, command.topic, command.channel))
            return OK
        removed = self._registry.unregister(self._peer, command.topic, command.channel)
        for registration in removed:
            if registration.category == "channel" and command.channel is None:
                log.warning("client(%s) unexpected UNREGISTER %s", self._address, registration)
        self._log_each("UNREGISTER", removed)
        return OK

    def _identified(self, command: Identify, now_ns: int) -> bytes:
        self._peer = peer = Peer(id=self._address, last_update_ns=now_ns, **asdict(command))
        log.info(
            "CLIENT(%s): IDENTIFY Address:%s TCP:%d HTTP:%d Version:%s",
            self._address,
            peer.broadcast_address,
            peer.tcp_port,
            peer.http_port,
            peer.version,
        )
        self._log_each("REGISTER", self._registry.identify(peer))
        return encode(self._identity)

    def _pinged(self, now_ns: int) -> None:
        peer = self._peer
        if peer is not None:
            since = format_duration(now_ns - peer.last_update_ns)
            log.info("CLIENT(%s): pinged (last ping %s)", self._address, since)
            peer.last_update_ns = now_ns

    def _log_each(self, verb: str, registrations: list[Registration]) -> None:
        for registration in registrations:
            log.info("DB: client(%s) %s %s", self._address, verb, registration)


class LookupServer:
    """Makes the protocols of the TCP face. ``identity`` answers IDENTIFY; ``clock`` gives unix nanoseconds."""

    def __init__(self, registry: Registry, clock: Callable[[], int], identity: Mapping[str, Any]) -> None:
        self.registry = registry
        self.clock = clock
        self.identity = identity
        self.connections: set[LookupProtocol] = set()

    def protocol(self) -> asyncio.Protocol:
        return LookupProtocol(self)

    def close(self) -> None:
        """End every connection, also those that never said anything."""
        for connection in list(self.connections):
            connection.abort()


class LookupProtocol(asyncio.Protocol):
    """One connection. A client that does not read its replies is not read from either, and one that sends much has its
    commands carried out some at a time, between those of others."""

    def __init__(self, server: LookupServer) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._conversation: Conversation
        self._busy = False
        self._write_paused = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = address_text(transport.get_extra_info("peername"))
        log.info("TCP: new client(%s)", address)
        _keep_alive(transport.get_extra_info("socket"))
        self._conversation = Conversation(self._server.registry, address, self._server.identity)
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._conversation.session.received(data)
        if not self._busy:
            self._proceed()

    def _proceed(self) -> None:
        if self._transport.is_closing():
            return
        more = not self._write_paused and self._conversation.proceed(self._server.clock())
        if more != self._busy:
            self._busy = more
            self._adjust_reading()
        if more:
            asyncio.get_running_loop().call_soon(self._proceed)
        elif self._ended and not self._write_paused:
            self._conversation.session.end()
        self._flush()

    def eof_received(self) -> bool:
        self._ended = True
        if not self._busy:
            self._proceed()
        return True  # _flush closes, once everything has been answered

    def pause_writing(self) -> None:
        self._write_paused = True
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._adjust_reading()
        if not self._busy:
            self._proceed()

    def _adjust_reading(self) -> None:
        if self._ended or self._transport.is_closing():
            return
        if self._busy or self._write_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._conversation.ended()
        self._server.connections.discard(self)

    def abort(self) -> None:
        self._transport.abort()

    def _flush(self) -> None:
        if output := self._conversation.session.take_output():
            self._transport.write(output)
        if self._conversation.session.closed:
            self._transport.close()


def _keep_alive(sock: socket.socket) -> None:
    """A machine that vanished without a word must not look connected for ever."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
