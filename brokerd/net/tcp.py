"""The TCP protocol of the broker: a socket, its Session, its Client, and their timers."""

from __future__ import annotations

import asyncio
import errno
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
from brokerd.net.busy_polling import BusyPolling
from brokerd.net.dispatch import COMMANDS, Wait
from brokerd.net.dispatch_auth import COMMANDS_WITH_AUTH
from brokerd.net.failures import failure
from brokerd.net.layers import Layers
from brokerd.net.read_pause import ReadPause
from brokerd.net.refused_connections import RefusedConnections
from brokerd.net.reset import HAS_EPOLL, ResetWatch
from nsqdaemon.descriptors import is_for_connections
from nsqdaemon.input_budget import LONG_BYTES, InputBudget
from nsqdaemon.linger import Linger
from nsqwire.addresses import address_text
from nsqwire.commands import DpubRun, Fin, HeaderMpub, Mpub, MpubRun, PubRun, Req, Touch
from nsqwire.errors import NSQError, PubFailed
from nsqwire.identify import IdentifyLimits
from nsqwire.read_buffer import SCRATCH_BYTES
from nsqwire.scan import FIN_LINE_BYTES
from nsqwire.session import HEARTBEAT_FRAME, OK, Session, SessionLimits
from nsqwire.units import Seconds
from nsqwire.version import NSQ_VERSION

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.channel import Channel
    from brokerd.net.auth_client import AuthServers
    from brokerd.net.tls import NewTLS
    from brokerd.settings import BrokerSettings
    from nsqwire.commands import Command

logger = logging.getLogger("brokerd")

SMALL_READ_BYTES = 4 * 1024
"""Reads of up to this size are handled at once, however long the turn of the event loop has lasted."""
RUN_READ_BYTES = 32 * 1024
"""Larger reads are hardly ever one run of commands, because they end within a command."""

_CHECKED_COMMANDS = 16  # single commands between two reads of the clock
_ONE_LINE = (PubRun, MpubRun)  # all their commands have the same command line
FIRST_OF_FIN = ord("F")
_LONG_COMMANDS = frozenset({PubRun, DpubRun, MpubRun, Mpub, HeaderMpub, Fin, Req, Touch})
"""The clock is read after each of these: one of them may contain many commands or messages."""

WRITE_HIGH_WATER = 512 * 1024
"""Above this many bytes in a connection's write buffer, its client is sent no more messages."""


def session_limits(settings: BrokerSettings) -> SessionLimits:
    """The limits of a session, from the settings."""
    return SessionLimits(
        identify=IdentifyLimits(
            version=NSQ_VERSION,
            max_rdy_count=settings.max_rdy_count,
            max_heartbeat_interval_ms=_ms(settings.max_heartbeat_interval),
            max_output_buffer_size=settings.max_output_buffer_size,
            min_output_buffer_timeout_ms=_ms(settings.min_output_buffer_timeout),
            max_output_buffer_timeout_ms=_ms(settings.max_output_buffer_timeout),
            output_buffer_timeout_ms=_ms(settings.output_buffer_timeout),
            msg_timeout_ms=_ms(settings.msg_timeout),
            max_msg_timeout_ms=_ms(settings.max_msg_timeout),
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
        max_req_timeout_ms=_ms(settings.max_req_timeout),
    )


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


class Connection(asyncio.BufferedProtocol):
    """One TCP connection. ``tls`` and ``auth`` are None if the broker is configured without them.

    ``now`` returns monotonic seconds, ``now_ns`` Unix nanoseconds.
    """

    def __init__(
        self,
        broker: Broker,
        limits: SessionLimits,
        scratch: bytearray,
        budget: InputBudget,
        polling: BusyPolling,
        tls: NewTLS | None,
        auth: AuthServers | None,
        refused: RefusedConnections,
    ) -> None:
        self.broker = broker
        self._refused = refused
        self._is_refused = False
        self._budget = budget
        self._polling = polling
        self._scheduler = broker.runtime.scheduler
        self._is_counted = False  # in the budget
        self._has_eof = self._lingers = self._has_left = False
        self._line, self._published_to = b"", ""  # of the last read that was one run of publishes
        self._publish_limits = limits.max_msg_size, limits.max_body_size
        self.session = Session(limits, scratch=scratch, scanner=kernel)
        self.client: Client
        self.tls = tls
        self.auth = auth
        self.scratch = scratch
        self.now = broker.runtime.now
        self.now_ns = time.time_ns
        self.channel: Channel | None = None
        self.read_pauses = ReadPause(0)
        syncer = broker.storage.syncer
        self._syncer = syncer if syncer is not None and syncer.acknowledges else None
        self._unsynced: deque[bytes] = deque()
        self._commands = COMMANDS if auth is None else COMMANDS_WITH_AUTH
        self._layers: Layers | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._reset_watch: ResetWatch | None = None
        self._transport: asyncio.Transport
        self._write: Callable[[bytes | memoryview], None]
        self._heartbeat: asyncio.TimerHandle | None = None
        self._heartbeat_due: Seconds = 0.0
        self._last_read = 0.0
        self._blocked_since: Seconds | None = None

    # -- asyncio's callbacks --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        self._write = transport.write
        connected = transport.get_extra_info("socket")
        if connected is not None and not is_for_connections(connected.fileno()):
            self._is_refused = self._has_left = self.session.closed = True
            self._refused.add(self.now())
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        if connected is not None and connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        remote = address_text(transport.get_extra_info("peername"))
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
        self._last_read = self.now()
        awaited_magic = session.awaits_magic
        session.received(nbytes)
        is_small = nbytes <= SMALL_READ_BYTES
        if is_small:
            self._polling.input_arrived(self)
        if not is_small and self._scheduler.is_spent():
            self.continue_later()
        elif nbytes > RUN_READ_BYTES or not session.is_between_commands or not self._take_at_once(nbytes):
            self.take_commands()
        if awaited_magic and not session.awaits_magic and self._heartbeat is None:
            self.restart_heartbeat()

    def eof_received(self) -> None:
        self._has_eof = True
        self.session.eof()
        self.flush()

    def pause_writing(self) -> None:
        self.client.blocked = True
        self._blocked_since = self.now()

    def resume_writing(self) -> None:
        self.client.blocked = False
        self._blocked_since = None
        self.resume_reading(ReadPause.OUTPUT)
        if self.channel is not None:
            self.channel.offer(self.client)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_refused:
            return
        self._leave()
        logger.info("PROTOCOL(V2): [%s] closed%s", self.client.remote_address, f" - {exc}" if exc else "")

    def _leave(self) -> None:
        """End everything but the connection itself: the client is in no channel from now on."""
        if self._has_left:
            return
        self._has_left = True
        self.session.closed = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
        self._end_reset_watch()
        self._budget.forget(self)
        self.session.drop()
        client, channel = self.client, self.channel
        self.broker.clients.discard(client)
        if channel is not None:
            channel.unsubscribe(client)
            if (topic := self.broker.topics.get(channel.topic_name)) is not None:
                topic.client_left(channel)

    # -- commands -------------------------------------------------------------------------------------------------

    def take_commands(self, deadline: Seconds = 0.0) -> None:
        """Execute the received commands, up to one that has to wait, and send the responses.

        Commands left at the deadline are queued. 0 means the deadline of a new slice.
        """
        session, commands = self.session, self._commands
        unchecked = _CHECKED_COMMANDS
        try:
            while (command := session.next_command()) is not None:
                try:
                    wait = commands[type(command)](self, command)
                    if wait is not None:
                        self._wait(wait, command)
                        break
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
                        self.continue_later()
                        break
        except Exception as error:
            self._broken(error)
        self.flush()
        if session.unfinished_bytes > LONG_BYTES or self._is_counted:
            self._count_unfinished()

    def _take_at_once(self, nbytes: int) -> bool:
        """Execute a read that is one run of FINs or publishes, as most reads of a few commands are.

        False, with nothing done, for other input.
        """
        if self.scratch[0] == FIRST_OF_FIN:
            return self._finish(nbytes)
        if self._line and not self.session.terms.publish_ids and self.scratch.startswith(self._line):
            if self._publish_again(nbytes):
                return True
            if nbytes > SMALL_READ_BYTES:  # it probably ends within a command
                return False
        run = self.session.only_run()
        if run is None:
            return False
        self._take_run(run)
        return True

    def _finish(self, nbytes: int) -> bool:
        """Execute a read that has only FINs, on the fast path. False, with nothing done, for other input."""
        client, session = self.client, self.session
        count = kernel.fin_run(self.scratch, 0, nbytes)
        if self.channel is None or count * FIN_LINE_BYTES != nbytes:
            return False
        lines = memoryview(self.scratch)[:nbytes]
        session.taken()
        try:
            failures = self.channel.finish(client, lines, count, self.now_ns())
        except OSError as error:
            self._failed(Fin(lines, count), error)
        except Exception as error:
            self._broken(error)
        else:
            if not failures:
                return True
            for each in failures:
                session.refuse(each)
        self.flush()
        return True

    def _publish_again(self, nbytes: int) -> bool:
        """Execute a read that has only publishes with the last command line, on the fast path.

        False, with nothing done, for other or invalid input, and if the topic cannot take it on the fast path, such as
        because a segment is full or an index has to grow.
        """
        topic = self.broker.topics.get(self._published_to)
        if topic is None:
            return False
        try:
            count, messages = topic.publish_commands(
                self.scratch, nbytes, self._line, self._publish_limits, self.client
            )
        except Exception as error:  # the messages may be stored already, so the regular path must not store them again
            self._broken(error)
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

    def _take_run(self, run: PubRun | DpubRun | MpubRun) -> None:
        """Execute the publishes of a read, and send the response."""
        try:
            self._commands[type(run)](self, run)
            if isinstance(run, _ONE_LINE) and not self.session.terms.publish_ids:
                self._line, self._published_to = bytes(run.commands[: run.line_bytes]), run.topic
        except NSQError as error:
            self.session.refuse(error)
        except OSError as error:
            self._failed(run, error)
        except Exception as error:
            self._broken(error)
        self.flush()

    def continue_later(self) -> None:
        """Pause reading, and queue the rest of the input with the scheduler."""
        self.pause_reading(ReadPause.SLICE)
        self.session.keep_unread()
        self._scheduler.later(self._continue)

    def _continue(self, deadline: Seconds) -> None:
        if self.session.closed:
            return
        self._last_read = self.now()
        self.read_pauses &= ~ReadPause.SLICE
        self.take_commands(deadline)
        if not self.read_pauses:
            self.resume_reading(ReadPause.SLICE, deadline)

    def unpacked(self, plain: bytes, deadline: Seconds) -> None:
        """Handle input that was decrypted and decompressed."""
        self._last_read = self.now()
        self.session.feed(plain)
        self.take_commands(deadline)

    def upgrade(self) -> Wait | None:
        """Begin the TLS or compression of the session's terms, after the queued response.

        If responses wait for a sync, returns a Wait for it, because they must be sent without TLS or compression.
        """
        self.session.drop_unread()
        if self._unsynced or (self._syncer is not None and self._syncer.delays_responses):
            # Responses up to this one wait for the disk.
            return Wait(self._responses_sent, self._begin_layers)
        self._begin_layers()
        return None

    async def _responses_sent(self) -> None:
        assert self._syncer is not None
        with suppress(OSError):  # the failed sync has already closed the connection
            await self._syncer.synced()

    def _begin_layers(self) -> None:
        self.flush()
        if self._layers is None:
            self._layers = Layers(self, self._transport, self.scratch)
            self._write = self.client.send = self._layers.write
            self._transport.set_protocol(self._layers)
        self._layers.add(self.session.terms)

    def _wait(self, wait: Wait, command: Command) -> None:
        self.pause_reading(ReadPause.COMMAND)
        self.session.keep_unread()
        connected = self._transport.get_extra_info("socket")
        if HAS_EPOLL and connected is not None and self._reset_watch is None and not self._transport.is_closing():
            self._reset_watch = ResetWatch(connected.fileno(), self._transport.abort)
        self._waiting = asyncio.ensure_future(wait.until())
        self._waiting.add_done_callback(partial(self._after_wait, command, wait.then))

    def _after_wait(self, command: Command, then: Callable[[], object], done: asyncio.Future[None]) -> None:
        self._waiting = None
        self._end_reset_watch()
        raised = None if done.cancelled() else done.exception()
        if self.session.closed:
            return
        self._last_read = self.now()
        try:
            if raised is not None:
                raise raised
            then()
        except NSQError as error:
            self.session.refuse(error)
        except OSError as error:
            self._failed(command, error)
        except Exception as error:
            self._broken(error)
        self.take_commands()
        if self._waiting is None:
            self.resume_reading(ReadPause.COMMAND)

    def _end_reset_watch(self) -> None:
        if self._reset_watch is not None:
            self._reset_watch.close()
            self._reset_watch = None

    def _failed(self, command: Command, error: OSError) -> None:
        logger.error("PROTOCOL(V2): [%s] %s", self.client.remote_address, error)
        self.session.refuse(failure(command, error))

    def _broken(self, error: Exception) -> None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            logger.error("PROTOCOL(V2): [%s] closed: not enough memory for a command", self.client.remote_address)
        else:
            logger.exception("PROTOCOL(V2): [%s] a command could not be executed", self.client.remote_address)
        self.session.closed = True

    # -- input and output -----------------------------------------------------------------------------------------

    def pause_reading(self, reason: ReadPause) -> None:
        """Pause reading from the client, for ``reason``."""
        self.read_pauses |= reason
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self, reason: ReadPause, deadline: Seconds = 0.0) -> None:
        """Clear ``reason``, and resume reading if no other reason is left."""
        self.read_pauses &= ~reason
        if self.read_pauses or self._transport.is_closing():
            return
        if self._layers is not None:
            self._layers.resume(deadline)
        if not self.read_pauses and not self._transport.is_closing():
            self._transport.resume_reading()

    def _count_unfinished(self) -> None:
        session = self.session
        self._is_counted = session.unfinished_bytes > LONG_BYTES and self._waiting is None and not session.closed
        held = session.unfinished_bytes if self._is_counted else 0
        self._budget.update(self, held, is_new=session.is_new_unfinished)

    def wait_for_memory(self) -> None:
        self.pause_reading(ReadPause.MEMORY)

    def memory_is_free(self) -> None:
        if self.read_pauses & ReadPause.MEMORY:
            asyncio.get_running_loop().call_soon(self._after_memory)

    def _after_memory(self) -> None:
        if not self._budget.waits(self):
            self._last_read = self.now()
            self.resume_reading(ReadPause.MEMORY)

    def out_of_memory(self) -> None:
        text = "PROTOCOL(V2): [%s] closed: %d bytes of an unfinished command kept other clients waiting"
        logger.error(text, self.client.remote_address, self.session.unfinished_bytes)
        self._transport.abort()

    def flush(self) -> None:
        """Send the responses, and close the connection if the session is closed."""
        output = self.session.take_output()
        if output:
            if self._unsynced or (self._syncer is not None and self._syncer.delays_responses):
                self._send_when_synced(output)
            else:
                self._send(output)
        if self.session.closed and not self._unsynced:
            self._close_gently()

    def _send(self, output: bytes) -> None:
        self._write(output)
        if self.client.blocked and not self.session.closed:
            # Reading is not paused for unread messages alone, because the client's FINs have to be read.
            self.pause_reading(ReadPause.OUTPUT)

    def _send_when_synced(self, output: bytes) -> None:
        """Send responses when the messages that they acknowledge are on the disk. Later responses follow in order."""
        assert self._syncer is not None
        self._unsynced.append(output)
        self._syncer.when_synced(self._synced)

    def _synced(self, error: OSError | None) -> None:
        if not self._unsynced or self._transport.is_closing():
            return  # an earlier error closed the connection
        output = self._unsynced.popleft()
        if error is None:
            self._send(output)
        else:
            self._unsynced.clear()
            self.session.refuse(PubFailed(f"PUB failed {error}"))
            self._write(self.session.take_output())
        if self.session.closed and not self._unsynced:
            self._close_gently()

    def _hang_up(self) -> None:
        """Close the connection: the client's topic or channel was deleted, or the broker stops."""
        self.session.closed = True
        self._close()

    def _close_gently(self) -> None:
        """Close the connection after an error. A client that is still sending is not reset: it can read the error."""
        if self._lingers or self._transport.is_closing():
            return
        if self._has_eof:
            self._close()
            return
        if self._layers is not None:
            self._layers.end()
        self._lingers = self.client.blocked = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        Linger(self._transport, self.connection_lost)
        asyncio.get_running_loop().call_soon(self._leave)

    def _close(self) -> None:
        if self._layers is not None and not (self._lingers or self._transport.is_closing()):
            self._layers.end()
        self._transport.close()

    # -- heartbeats and deadlines ---------------------------------------------------------------------------------

    def restart_heartbeat(self) -> None:
        """Send heartbeats at the negotiated interval from now on; none if the client has disabled them."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        if self.session.awaits_magic:
            return
        if interval_s := self.session.terms.heartbeat_interval_ms / 1000:
            self._check_again(interval_s, self._send_heartbeat, interval_s)
        else:
            limit_s = 2 * self.session.limits.identify.max_heartbeat_interval_ms / 1000
            self._check_again(limit_s, self._end_unfinished, limit_s)

    def _check_again(self, delay_s: Seconds, check: Callable[[float], None], limit_s: float) -> None:
        self._heartbeat_due = self.now() + delay_s
        self._heartbeat = asyncio.get_running_loop().call_later(delay_s, check, limit_s)

    def _forgive_pause(self) -> None:
        """Do not count the time by which the check is late: this process was paused, or waited for the disk.

        Nothing was read then, and no heartbeat was sent that the client could have answered.
        """
        now = self.now()
        late_s = max(0.0, now - self._heartbeat_due)
        self._last_read = min(now, self._last_read + late_s)
        if self._blocked_since is not None:
            self._blocked_since = min(now, self._blocked_since + late_s)

    def _end_unfinished(self, limit_s: float) -> None:
        """Close a connection that is silent within a command. Without heartbeats nothing else would notice it."""
        self._forgive_pause()
        silent_s = self.now() - self._last_read
        if self.session.unfinished_bytes and silent_s >= limit_s and self._waiting is None and not self.read_pauses:
            logger.error("PROTOCOL(V2): [%s] silent for %.1f s within a command", self.client.remote_address, silent_s)
            self._transport.abort()
            return
        self._check_again(limit_s / 2, self._end_unfinished, limit_s)

    def _send_heartbeat(self, interval_s: float) -> None:
        self._forgive_pause()
        if self._layers is None or not self._layers.in_handshake:  # the handshake has a deadline of its own
            if reason := self._failure():
                logger.error("PROTOCOL(V2): [%s] %s", self.client.remote_address, reason)
                self._transport.abort()
                return
            if self._blocked_since is None:
                self._write(HEARTBEAT_FRAME)
        self._check_again(interval_s, self._send_heartbeat, interval_s)

    def _failure(self) -> str:
        """Why the connection has failed; empty if it has not."""
        now = self.now()
        limit_s = self.session.terms.heartbeat_interval_ms / 1000
        silent_s = now - self._last_read
        if limit_s and silent_s > 2 * limit_s and self._waiting is None and not self.read_pauses & ReadPause.MEMORY:
            return f"silent for {silent_s:.1f} s"
        if limit_s and self._blocked_since is not None and now - self._blocked_since > limit_s:
            return f"has not read for {limit_s:.1f} s"
        return ""


async def serve_tcp(
    broker: Broker, listening: socket.socket, budget: InputBudget, tls: NewTLS | None, auth: AuthServers | None
) -> asyncio.Server:
    """Accept V2 clients on a bound socket, TCP or Unix."""
    limits = session_limits(broker.settings)
    scratch = bytearray(SCRATCH_BYTES)
    loop = asyncio.get_running_loop()
    polling = BusyPolling(loop.call_soon)
    refused = RefusedConnections()

    def connection() -> Connection:
        return Connection(broker, limits, scratch, budget, polling, tls, auth, refused)

    if listening.family == socket.AF_UNIX:
        return await loop.create_unix_server(connection, sock=listening, backlog=4096)
    return await loop.create_server(connection, sock=listening, backlog=4096)
