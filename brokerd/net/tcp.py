"""The TCP face: a socket, a Session for its grammar, a Client for the broker's rules, and their timers."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, cast

from brokerd import kernel
from brokerd.client import Client
from brokerd.net.dispatch import COMMANDS, Waits
from brokerd.net.dispatch_auth import COMMANDS_WITH_AUTH
from brokerd.net.failures import failure
from brokerd.net.hold import Hold
from brokerd.net.layers import Layers
from brokerd.net.reset import HAS_EPOLL, ResetWatch
from nsqwire.errors import NSQError, PubFailed
from nsqwire.identify import IdentifyLimits
from nsqwire.input_budget import LONG_BYTES, InputBudget
from nsqwire.read_buffer import SCRATCH_BYTES
from nsqwire.received import Fin, Mpub, MpubRun, PubRun, Req, Touch
from nsqwire.session import HEARTBEAT_FRAME, OK, Session, SessionLimits
from nsqwire.version import NSQ_VERSION

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.net.auth_client import AuthServers
    from brokerd.net.tls import NewTLS
    from brokerd.settings import BrokerSettings
    from nsqwire.received import Command, MpubRun, PubRun

logger = logging.getLogger("brokerd")

SMALL_READ_BYTES = 4 * 1024
"""Reads of up to this size are handled at once, however long the turn has lasted."""

_CHECKED_COMMANDS = 16  # single commands between two reads of the clock
_LONG_COMMANDS = frozenset({PubRun, MpubRun, Mpub, Fin, Req, Touch})

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
            tls=settings.has_tls,
            deflate=settings.deflate,
            snappy=settings.snappy,
            auth_required=bool(settings.auth_http_address),
            topology_region=settings.topology_region,
            topology_zone=settings.topology_zone,
        ),
        tls_required=settings.tls_required_code > 0,
        max_msg_size=settings.max_msg_size,
        max_body_size=settings.max_body_size,
        max_rdy_count=settings.max_rdy_count,
        max_req_timeout=_ms(settings.max_req_timeout),
    )


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


class Connection(asyncio.BufferedProtocol):
    """One TCP connection. ``tls`` and ``auth`` are None where the broker has none."""

    def __init__(
        self,
        broker: Broker,
        limits: SessionLimits,
        scratch: bytearray,
        budget: InputBudget,
        tls: NewTLS | None,
        auth: AuthServers | None,
    ) -> None:
        self.broker = broker
        self._budget = budget
        self._scheduler = broker.scheduler
        self._is_counted = False  # in the budget
        self._line, self._published_to = b"", ""  # of the last read that was one run of publishes
        self._publish_limits = limits.max_msg_size, limits.max_body_size
        self.session = Session(limits, scratch=scratch, scanner=kernel)
        self.client: Client
        self.tls = tls
        self.auth = auth
        self.scratch = scratch
        self.now_ns = time.time_ns
        self.holds = Hold(0)
        syncer = broker.syncer
        self._syncer = syncer if syncer is not None and syncer.acknowledges else None
        self._unsynced: deque[bytes] = deque()
        self._commands = COMMANDS if auth is None else COMMANDS_WITH_AUTH
        self._layers: Layers | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._reset_watch: ResetWatch | None = None
        self._transport: asyncio.Transport
        self._write: Callable[[bytes | memoryview], None]
        self._heartbeat: asyncio.TimerHandle | None = None
        self._last_read = 0.0
        self._blocked_since: float | None = None

    # -- asyncio's callbacks --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._write = transport.write
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
        if nbytes <= SMALL_READ_BYTES:
            if self._line and session.is_between_commands and self._publish_again(nbytes):
                return
            if (run := session.only_run()) is not None:
                self._take_run(run)
            else:
                self.take_commands()
        elif self._scheduler.is_spent():
            self.go_on_later()
        else:
            self.take_commands()
        if awaited_magic and not session.awaits_magic and self._heartbeat is None:
            self.restart_heartbeat()

    def eof_received(self) -> None:
        self.session.eof()
        self.flush()

    def pause_writing(self) -> None:
        self.client.blocked = True
        self._blocked_since = self.broker.now()

    def resume_writing(self) -> None:
        self.client.blocked = False
        self._blocked_since = None
        self.release(Hold.OUTPUT)
        if self.client.channel is not None:
            self.client.channel.offer(self.client)

    def connection_lost(self, exc: Exception | None) -> None:
        self.session.closed = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
        self._end_reset_watch()
        self._budget.forget(self)
        self.session.drop()
        client, channel = self.client, self.client.channel
        self.broker.clients.discard(client)
        if channel is not None:
            channel.unsubscribe(client)
            channel.topic.left(channel)
        logger.info("PROTOCOL(V2): [%s] closed%s", client.remote_address, f" - {exc}" if exc else "")

    # -- commands -------------------------------------------------------------------------------------------------

    def take_commands(self, deadline: float = 0.0) -> None:
        """Execute the received commands, up to one that has to wait, and send the responses.

        Commands left at the deadline are queued; 0 means the deadline of a new slice.
        """
        session, commands = self.session, self._commands
        unchecked = _CHECKED_COMMANDS
        try:
            while (command := session.next_command()) is not None:
                try:
                    commands[type(command)](self, command)
                except NSQError as error:
                    session.refuse(error)
                except OSError as error:
                    self._failed(command, error)
                unchecked -= 1
                if (not unchecked or type(command) in _LONG_COMMANDS) and session.has_unread:
                    unchecked = _CHECKED_COMMANDS
                    if not deadline:
                        deadline = self._scheduler.deadline()
                    elif self._scheduler.clock() >= deadline and not session.closed:
                        self.go_on_later()
                        break
        except Waits as waits:
            assert command is not None
            self._wait(waits, command)
        except Exception:
            self._broken()
        self.flush()
        if session.unfinished_bytes > LONG_BYTES or self._is_counted:
            self._count_unfinished()

    def _publish_again(self, nbytes: int) -> bool:
        """Execute a read that has only publishes with the last command line, on the fast path.

        False, with nothing done, for other input, for errors, and when a segment is full or an index has to grow."""
        topic = self.broker.topics.get(self._published_to)
        if topic is None:
            return False
        try:
            count, messages = topic.publish_commands(self.scratch, nbytes, self._line, self._publish_limits)
        except Exception:  # the messages may be stored already, so the regular path must not store them again
            self._broken()
            self.flush()
            return True
        if not count:
            return False
        self.session.taken()
        self.client.published(self._published_to, messages)
        if self._syncer is None:
            self._send(OK if count == 1 else OK * count)
        else:
            self.session.respond(OK * count)
            self.flush()
        return True

    def _take_run(self, run: PubRun | MpubRun | Fin) -> None:
        """Execute the only run of a read, and send the response."""
        try:
            self._commands[type(run)](self, run)
            if not isinstance(run, Fin):
                self._line, self._published_to = bytes(run.commands[: run.line_bytes]), run.topic
        except NSQError as error:
            self.session.refuse(error)
        except OSError as error:
            self._failed(run, error)
        except Exception:
            self._broken()
        self.flush()

    def go_on_later(self) -> None:
        """Pause reading, and queue the rest of the input with the scheduler."""
        self.hold(Hold.TURN)
        self.session.hold()
        self._scheduler.later(self._continue)

    def _continue(self, deadline: float) -> None:
        if self.session.closed:
            return
        self._last_read = self.broker.now()
        self.holds &= ~Hold.TURN
        self.take_commands(deadline)
        if not self.holds:
            self.release(Hold.TURN, deadline)

    def unpacked(self, plain: bytes, deadline: float) -> None:
        """Take what a layer made of the bytes that arrived."""
        self._last_read = self.broker.now()
        self.session.feed(plain)
        self.take_commands(deadline)

    def upgrade(self) -> None:
        """Begin TLS or compression as the session's terms have it, right behind the answer that is queued."""
        self.session.drop_unread()
        if self._unsynced or not (self._syncer is None or self._syncer.is_clean):
            # Answers before it wait for the disk, and so does its own; none of them may go through what it begins.
            raise Waits(self._answers_sent(), self._begin_layers)
        self._begin_layers()

    async def _answers_sent(self) -> None:
        assert self._syncer is not None
        with suppress(OSError):  # which has ended the connection already
            await self._syncer.synced()

    def _begin_layers(self) -> None:
        self.flush()
        if self._layers is None:
            self._layers = Layers(self, self._transport, self.scratch)
            self._write = self.client.send = self._layers.write
            self._transport.set_protocol(self._layers)
        self._layers.add(self.session.terms)

    def _wait(self, waits: Waits, command: Command) -> None:
        self.hold(Hold.COMMAND)
        self.session.hold()
        connected = self._transport.get_extra_info("socket")
        if HAS_EPOLL and connected is not None and self._reset_watch is None and not self._transport.is_closing():
            self._reset_watch = ResetWatch(connected.fileno(), self._transport.abort)
        self._waiting = asyncio.ensure_future(waits.until)
        self._waiting.add_done_callback(partial(self._go_on, command, waits.then))

    def _go_on(self, command: Command, then: Callable[[], None], done: asyncio.Future[None]) -> None:
        self._waiting = None
        self._end_reset_watch()
        failure = None if done.cancelled() else done.exception()
        if self.session.closed:
            return
        self._last_read = self.broker.now()
        try:
            if failure is not None:
                raise failure
            then()
        except NSQError as error:
            self.session.refuse(error)
        except OSError as error:
            self._failed(command, error)
        except Exception:
            self._broken()
        self.take_commands()
        if self._waiting is None:
            self.release(Hold.COMMAND)

    def _end_reset_watch(self) -> None:
        if self._reset_watch is not None:
            self._reset_watch.close()
            self._reset_watch = None

    def _failed(self, command: Command, error: OSError) -> None:
        logger.error("PROTOCOL(V2): [%s] %s", self.client.remote_address, error)
        self.session.refuse(failure(command, error))

    def _broken(self) -> None:
        logger.exception("PROTOCOL(V2): [%s] a command could not be carried out", self.client.remote_address)
        self.session.closed = True

    # -- input and output -----------------------------------------------------------------------------------------

    def hold(self, reason: Hold) -> None:
        """Read no more from the client for now."""
        self.holds |= reason
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def release(self, reason: Hold, deadline: float = 0.0) -> None:
        """Read on if there is no other reason not to."""
        self.holds &= ~reason
        if self.holds or self._transport.is_closing():
            return
        if self._layers is not None:
            self._layers.go_on(deadline)
        if not self.holds and not self._transport.is_closing():
            self._transport.resume_reading()

    def _count_unfinished(self) -> None:
        session = self.session
        self._is_counted = session.unfinished_bytes > LONG_BYTES and self._waiting is None and not session.closed
        held = session.unfinished_bytes if self._is_counted else 0
        self._budget.update(self, held, is_new=session.is_new_unfinished)

    def wait_for_memory(self) -> None:
        self.hold(Hold.MEMORY)

    def memory_is_free(self) -> None:
        if self.holds & Hold.MEMORY:
            asyncio.get_running_loop().call_soon(self._after_memory)

    def _after_memory(self) -> None:
        if not self._budget.waits(self):
            self._last_read = self.broker.now()
            self.release(Hold.MEMORY)

    def out_of_memory(self) -> None:
        text = "PROTOCOL(V2): [%s] closed: %d bytes of an unfinished command kept other clients waiting"
        logger.error(text, self.client.remote_address, self.session.unfinished_bytes)
        self._transport.abort()

    def flush(self) -> None:
        """Send the answers, and close if the session is over."""
        output = self.session.take_output()
        if output:
            if self._unsynced or not (self._syncer is None or self._syncer.is_clean):
                self._send_when_synced(output)
            else:
                self._send(output)
        if self.session.closed and not self._unsynced:
            self._close()

    def _send(self, output: bytes) -> None:
        self._write(output)
        if self.client.blocked and not self.session.closed:
            # Messages alone do not silence it, for its FINs are what lets them stop.
            self.hold(Hold.OUTPUT)

    def _send_when_synced(self, output: bytes) -> None:
        """Hold answers back until what they acknowledge is on the disk, and all behind them in their order."""
        assert self._syncer is not None
        self._unsynced.append(output)
        self._syncer.when_synced(self._synced)

    def _synced(self, error: OSError | None) -> None:
        if not self._unsynced or self._transport.is_closing():
            return  # an error before this one ended the connection
        output = self._unsynced.popleft()
        if error is None:
            self._send(output)
        else:
            self._unsynced.clear()
            self.session.refuse(PubFailed(f"PUB failed {error}"))
            self._write(self.session.take_output())
        if self.session.closed and not self._unsynced:
            self._close()

    def _hang_up(self) -> None:
        """The broker is done with the client: its topic or channel is gone, or the broker stops."""
        self.session.closed = True
        self._close()

    def _close(self) -> None:
        if self._layers is not None and not self._transport.is_closing():
            self._layers.end()
        self._transport.close()

    # -- heartbeats and deadlines ---------------------------------------------------------------------------------

    def restart_heartbeat(self) -> None:
        """Send heartbeats at the agreed interval from now on, or none."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        interval = self.session.terms.heartbeat_interval / 1000
        if self.session.awaits_magic:
            return
        if interval:
            self._heartbeat = asyncio.get_running_loop().call_later(interval, self._beat, interval)
        else:
            limit = 2 * self.session.limits.identify.max_heartbeat_interval / 1000
            self._heartbeat = asyncio.get_running_loop().call_later(limit, self._end_unfinished, limit)

    def _end_unfinished(self, limit: float) -> None:
        """Close a connection that is silent within a command; without heartbeats nothing else notices it."""
        silent = self.broker.now() - self._last_read
        if self.session.unfinished_bytes and silent >= limit and self._waiting is None and not self.holds:
            logger.error("PROTOCOL(V2): [%s] silent for %.1f s within a command", self.client.remote_address, silent)
            self._transport.abort()
            return
        self._heartbeat = asyncio.get_running_loop().call_later(limit / 2, self._end_unfinished, limit)

    def _beat(self, interval: float) -> None:
        if self._layers is None or not self._layers.in_handshake:  # that has a deadline of its own
            if reason := self._given_up():
                logger.error("PROTOCOL(V2): [%s] %s", self.client.remote_address, reason)
                self._transport.abort()
                return
            if self._blocked_since is None:
                self._write(HEARTBEAT_FRAME)
        self._heartbeat = asyncio.get_running_loop().call_later(interval, self._beat, interval)

    def _given_up(self) -> str:
        """Why the client is taken to be gone; empty while it is not."""
        now = self.broker.now()
        limit = self.session.terms.heartbeat_interval / 1000
        silent = now - self._last_read
        if limit and silent > 2 * limit and self._waiting is None and not self.holds & Hold.MEMORY:
            return f"silent for {silent:.1f} s"
        if limit and self._blocked_since is not None and now - self._blocked_since > limit:
            return f"has not read for {limit:.1f} s"
        return ""


def _shown(peer: object) -> str:
    """A peer's ``host:port``; ``@`` for one on a Unix socket, as nsqd shows it."""
    if not isinstance(peer, tuple):
        return "@"
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def serve_tcp(
    broker: Broker, listening: socket.socket, budget: InputBudget, tls: NewTLS | None, auth: AuthServers | None
) -> asyncio.Server:
    """Accept V2 clients on a bound socket, TCP or Unix."""
    limits = session_limits(broker.settings)
    scratch = bytearray(SCRATCH_BYTES)
    loop = asyncio.get_running_loop()

    def connection() -> Connection:
        return Connection(broker, limits, scratch, budget, tls, auth)

    if listening.family == socket.AF_UNIX:
        return await loop.create_unix_server(connection, sock=listening, backlog=4096)
    return await loop.create_server(connection, sock=listening, backlog=4096)
