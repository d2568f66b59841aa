"""The TCP face: a socket, a Session for its grammar, a Client for the broker's rules, and their timers."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from brokerd import kernel
from brokerd.client import Client
from brokerd.net.dispatch import execute
from nsqwire.errors import NSQError
from nsqwire.identify import IdentifyLimits
from nsqwire.session import HEARTBEAT_FRAME, SCRATCH_BYTES, Session, SessionLimits
from nsqwire.version import NSQ_VERSION

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.settings import BrokerSettings

logger = logging.getLogger("brokerd")

WRITE_HIGH_WATER = 512 * 1024
"""Bytes that may wait in a connection before its client is given no more messages."""


def session_limits(settings: BrokerSettings) -> SessionLimits:
    """What the settings allow a client to ask for."""
    return SessionLimits(
        identify=IdentifyLimits(
            version=NSQ_VERSION,
            max_rdy_count=settings.max_rdy_count,
            max_heartbeat_interval=_ms(settings.max_heartbeat_interval),
            max_output_buffer_size=settings.max_output_buffer_size,
            min_output_buffer_timeout=_ms(settings.min_output_buffer_timeout),
            max_output_buffer_timeout=_ms(settings.max_output_buffer_timeout),
            output_buffer_timeout=_ms(settings.output_buffer_timeout),
            msg_timeout=_ms(settings.msg_timeout),
            max_msg_timeout=_ms(settings.max_msg_timeout),
            max_deflate_level=settings.max_deflate_level,
            topology_region=settings.topology_region,
            topology_zone=settings.topology_zone,
        ),
        max_msg_size=settings.max_msg_size,
        max_body_size=settings.max_body_size,
        max_rdy_count=settings.max_rdy_count,
        max_req_timeout=_ms(settings.max_req_timeout),
    )


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


class Connection(asyncio.BufferedProtocol):
    """One TCP connection."""

    def __init__(self, broker: Broker, limits: SessionLimits, scratch: bytearray) -> None:
        self.broker = broker
        self.session = Session(limits, scratch=scratch, scanner=kernel)
        self.client: Client
        self.now_ns = time.time_ns
        self._transport: asyncio.Transport
        self._heartbeat: asyncio.TimerHandle | None = None
        self._last_read = 0.0
        self._blocked_since: float | None = None

    # -- asyncio's callbacks --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        remote = _shown(transport.get_extra_info("peername"))
        self.client = Client(
            self.broker.next_client_number(),
            remote,
            self.session.terms,
            int(time.time()),
            transport.write,
            self._hang_up,
        )
        self.broker.clients.add(self.client)
        logger.info("TCP: new client(%s)", remote)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.session.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        session = self.session
        self._last_read = self.broker.now()
        awaited_magic = session.awaits_magic
        session.received(nbytes)
        try:
            while (command := session.next_command()) is not None:
                try:
                    execute(self, command)
                except NSQError as error:
                    session.refuse(error)
        except Exception:
            logger.exception("PROTOCOL(V2): [%s] a command could not be carried out", self.client.remote_address)
            session.closed = True
        if awaited_magic and not session.awaits_magic and self._heartbeat is None:
            self.restart_heartbeat()
        self._flush()

    def eof_received(self) -> None:
        self.session.eof()
        self._flush()

    def pause_writing(self) -> None:
        self.client.blocked = True
        self._blocked_since = self.broker.now()

    def resume_writing(self) -> None:
        self.client.blocked = False
        self._blocked_since = None
        if not self._transport.is_closing():
            self._transport.resume_reading()
        if self.client.channel is not None:
            self.client.channel.offer(self.client)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        client, channel = self.client, self.client.channel
        self.broker.clients.discard(client)
        if channel is not None:
            channel.unsubscribe(client)
            channel.topic.left(channel)
        logger.info("PROTOCOL(V2): [%s] closed%s", client.remote_address, f" - {exc}" if exc else "")

    # -- output ---------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        output = self.session.take_output()
        if output:
            self._transport.write(output)
            if self.client.blocked and not self.session.closed:
                # It asks for answers and reads none: hear no more of it till it does. Messages alone do not silence
                # it, for its FINs are what lets them stop.
                self._transport.pause_reading()
        if self.session.closed:
            self._transport.close()

    def _hang_up(self) -> None:
        """The broker is done with the client: its topic or channel is gone, or the broker stops."""
        self.session.closed = True
        self._transport.close()

    # -- heartbeats and deadlines ---------------------------------------------------------------------------------

    def restart_heartbeat(self) -> None:
        """Send heartbeats at the agreed interval from now on, or none."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        interval = self.session.terms.heartbeat_interval / 1000
        if interval and not self.session.awaits_magic:
            self._heartbeat = asyncio.get_running_loop().call_later(interval, self._beat, interval)

    def _beat(self, interval: float) -> None:
        now = self.broker.now()
        limit = self.session.terms.heartbeat_interval / 1000
        silent = now - self._last_read
        if limit and silent > 2 * limit:
            logger.error("PROTOCOL(V2): [%s] silent for %.1f s", self.client.remote_address, silent)
            self._transport.abort()
            return
        if limit and self._blocked_since is not None and now - self._blocked_since > limit:
            logger.error("PROTOCOL(V2): [%s] has not read for %.1f s", self.client.remote_address, limit)
            self._transport.abort()
            return
        if self._blocked_since is None:
            self._transport.write(HEARTBEAT_FRAME)
        self._heartbeat = asyncio.get_running_loop().call_later(interval, self._beat, interval)


def _shown(peer: object) -> str:
    """A peer's ``host:port``; ``@`` for one on a Unix socket, as nsqd shows it."""
    if not isinstance(peer, tuple):
        return "@"
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def serve_tcp(broker: Broker, listening: socket.socket) -> asyncio.Server:
    """Accept V2 clients on a bound socket, TCP or Unix."""
    limits = session_limits(broker.settings)
    scratch = bytearray(SCRATCH_BYTES)
    loop = asyncio.get_running_loop()

    def connection() -> Connection:
        return Connection(broker, limits, scratch)

    if listening.family == socket.AF_UNIX:
        return await loop.create_unix_server(connection, sock=listening, backlog=4096)
    return await loop.create_server(connection, sock=listening, backlog=4096)
