"""The registry's TCP interface."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, cast

from nsqdaemon.linger import Linger
from nsqlookup.peer import Peer
from nsqlookup.registration import Registration
from nsqlookup.registry import Registry
from nsqlookup.scheduler import Scheduler
from nsqlookup.session import MAGIC, OK, Identify, Ping, Register, Session, Unregister
from nsqwire.addresses import address_text
from nsqwire.durations import format_duration
from nsqwire.gojson import encode
from nsqwire.units import Nanoseconds

log = logging.getLogger(__name__)

_KEEPALIVE_S: Final = 15
_REPLIES_AT_ONCE: Final = 64


class Conversation:
    """Executes the commands of a session, without a socket. ``now_ns`` is Unix nanoseconds."""

    def __init__(self, registry: Registry, address: str, identity: Mapping[str, Any]) -> None:
        self.session = Session()
        self._registry = registry
        self.address = address
        self._identity = identity
        self._peer: Peer | None = None

    def received(self, data: bytes, now_ns: int) -> None:
        """Take bytes and execute the complete commands; the replies are in ``session.take_output()``."""
        self.session.received(data)
        for _ in self.commands(lambda: now_ns):
            pass

    def commands(self, clock: Callable[[], Nanoseconds]) -> Iterator[None]:
        """Execute the received commands in short steps, one for each command and more for a long one."""
        session = self.session
        while True:
            greeted = session.greeted
            command = session.next_command()
            if session.greeted and not greeted:
                log.info("CLIENT(%s): desired protocol magic '%s'", self.address, MAGIC.decode())
            elif session.closed and not session.greeted:
                log.error("client(%s) bad protocol magic", self.address)
            if command is None:
                return
            if isinstance(command, Unregister):
                yield from self._unregistered(command)
                session.respond(OK)
            else:
                session.respond(self._execute(command, clock()))
            yield

    def ended(self) -> Iterator[None]:
        """Disconnect the peer: it is in no response from now on. The returned steps remove its registrations."""
        peer, self._peer = self._peer, None
        return self._logged("UNREGISTER", self._registry.disconnect(peer)) if peer is not None else iter(())

    def _execute(self, command: Ping | Identify | Register, now_ns: int) -> bytes:
        if isinstance(command, Ping):
            self._pinged(now_ns)
            return OK
        if isinstance(command, Identify):
            return self._identified(command, now_ns)
        assert self._peer is not None, "the session lets nobody register before IDENTIFY"
        self._log_each("REGISTER", self._registry.register(self._peer, command.topic, command.channel))
        return OK

    def _unregistered(self, command: Unregister) -> Iterator[None]:
        assert self._peer is not None, "the session lets nobody unregister before IDENTIFY"
        for registration in self._registry.unregister(self._peer, command.topic, command.channel):
            if registration.category == "channel" and command.channel is None:
                log.warning("client(%s) unexpected UNREGISTER %s", self.address, registration)
            self._log_each("UNREGISTER", [registration])
            yield

    def _identified(self, command: Identify, now_ns: int) -> bytes:
        self._peer = peer = Peer(id=self.address, last_update_ns=now_ns, **asdict(command))
        log.info(
            "CLIENT(%s): IDENTIFY Address:%s TCP:%d HTTP:%d Version:%s",
            self.address,
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
            log.info("CLIENT(%s): pinged (last ping %s)", self.address, since)
            peer.last_update_ns = now_ns

    def _logged(self, verb: str, registrations: Iterator[Registration]) -> Iterator[None]:
        for registration in registrations:
            self._log_each(verb, [registration])
            yield

    def _log_each(self, verb: str, registrations: list[Registration]) -> None:
        for registration in registrations:
            log.info("DB: client(%s) %s %s", self.address, verb, registration)


class LookupServer:
    """Creates the protocols of connections.

    ``identity`` is the reply to IDENTIFY. ``clock`` returns Unix nanoseconds. ``scheduler`` executes the commands.
    """

    def __init__(
        self, registry: Registry, clock: Callable[[], Nanoseconds], identity: Mapping[str, Any], scheduler: Scheduler
    ) -> None:
        self.registry = registry
        self.clock = clock
        self.identity = identity
        self.scheduler = scheduler
        self.connections: set[LookupProtocol] = set()

    def protocol(self) -> asyncio.Protocol:
        """Create the protocol of a new connection."""
        return LookupProtocol(self)

    def close(self) -> None:
        """Close all connections at once."""
        for connection in list(self.connections):
            connection.abort()


class LookupProtocol(asyncio.Protocol):
    """One connection. Reading is paused while the client does not read its replies, and while commands are executed.

    Many commands are executed in steps, which alternate with those of other clients.
    """

    def __init__(self, server: LookupServer) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._conversation: Conversation
        self._commands: Iterator[None] | None = None
        """The commands being executed."""
        self._busy = False
        self._reading = True
        self._write_paused = False
        self._ended = self._lingers = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = address_text(transport.get_extra_info("peername"))
        log.info("TCP: new client(%s)", address)
        _keep_alive(transport.get_extra_info("socket"))
        self._conversation = Conversation(self._server.registry, address, self._server.identity)
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._conversation.session.received(data)
        self._proceed()

    def _proceed(self) -> None:
        if self._busy or self._lingers or self._transport.is_closing():
            return
        self._busy = True
        if not self._server.scheduler.begin(self._work()):
            self._adjust_reading()

    def _work(self) -> Iterator[None]:
        """Execute the received commands, until all are executed or the client does not read its replies."""
        if self._commands is None:
            self._commands = self._conversation.commands(self._server.clock)
        steps = 0
        while not (self._write_paused or self._transport.is_closing()):
            try:
                next(self._commands)
            except StopIteration:
                self._commands = None
                break
            except Exception:
                log.exception("client(%s) command failed", self._conversation.address)
                self.abort()
                return
            steps += 1
            if steps % _REPLIES_AT_ONCE == 0:
                self._flush()
            yield
        self._busy = False
        if self._commands is None and self._ended:
            self._conversation.session.end()
        self._flush()
        self._adjust_reading()

    def eof_received(self) -> bool:
        self._ended = True
        self._proceed()
        return True  # _flush closes the transport after the last reply

    def pause_writing(self) -> None:
        self._write_paused = True
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._adjust_reading()
        self._proceed()

    def _adjust_reading(self) -> None:
        if self._ended or self._lingers or self._transport.is_closing():
            return
        reading = not (self._busy or self._write_paused)
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._commands = None
        self._server.scheduler.begin(self._conversation.ended())
        self._server.connections.discard(self)

    def abort(self) -> None:
        """Close the connection at once, without sending what is buffered."""
        self._transport.abort()

    def _flush(self) -> None:
        if output := self._conversation.session.take_output():
            self._transport.write(output)
        if not self._conversation.session.closed or self._lingers or self._transport.is_closing():
            return
        if self._ended:
            self._transport.close()
        else:  # the client may still be sending, and would lose the error if the connection were reset
            self._lingers = True
            Linger(self._transport, self.connection_lost)
            begin = self._server.scheduler.begin
            asyncio.get_running_loop().call_soon(lambda: begin(self._conversation.ended()))


def _keep_alive(sock: socket.socket) -> None:
    """Enable TCP keep-alive, so that the connection of a machine that disappeared is closed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
