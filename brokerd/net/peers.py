"""Registration of topics and channels with every nsqlookupd, and queries for the channels of new topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from brokerd.lookup_session import PING, Identity, LookupSession, PeerFailed, PeerInfo, registration
from brokerd.net.http_client import FetchFailed, Server, get_json
from nsqwire.addresses import parse_host_port
from nsqwire.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from brokerd.broker import Broker, RegistrationChange
    from brokerd.topic import Topic

DIAL_TIMEOUT_S: Final = 1.0
REPLY_TIMEOUT_S: Final = 1.0
PING_INTERVAL_S: Final = 15.0
# Enough that thousands of registrations take few round trips, and few enough for any peer's socket buffer.
_COMMANDS_AT_ONCE: Final = 256

log = logging.getLogger("brokerd.lookup")


class _Connection:
    """One open connection: the session, and its stream."""

    def __init__(self, session: LookupSession, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.session = session
        self._reader = reader
        self._writer = writer

    async def exchange(self, commands: Sequence[bytes] = ()) -> None:
        """Send commands after those that the session has queued, and read until each is answered."""
        self.session.send(commands)
        self._writer.write(self.session.take_output())
        async with asyncio.timeout(REPLY_TIMEOUT_S):
            await self._writer.drain()
        while self.session.outstanding_replies:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                data = await self._reader.read(65536)
            if not data:
                raise PeerFailed("connection closed by the peer")
            self.session.received(data)

    def close(self) -> None:
        self._writer.close()


class LookupPeer:
    """The connection to one nsqlookupd, and the task that owns it.

    There is no retry timer. After a failure, the next change or the next ping connects again and registers everything,
    so a change may arrive late but is never lost.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        registrations: Callable[[], list[bytes]],
        *,
        max_reply: int,
        ping_interval_s: float = PING_INTERVAL_S,
    ) -> None:
        self.address = address
        self.info: PeerInfo | None = None
        """The peer's reply to the last IDENTIFY."""
        self._identity = identity
        self._registrations = registrations
        self._max_reply = max_reply
        self._ping_interval_s = ping_interval_s
        self._changes: list[bytes] = []
        self._woken = asyncio.Event()
        self._connection: _Connection | None = None
        self._task = asyncio.create_task(self._run(), name=f"lookup {address}")

    def notify(self, command: bytes) -> None:
        """Queue a REGISTER or UNREGISTER, to be sent after those queued before."""
        self._changes.append(command)
        self._woken.set()

    async def close(self) -> None:
        """Close the connection. Nothing is unregistered, because the peer notices the disconnection."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._disconnect()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_ping = loop.time() + self._ping_interval_s
        await self._attempt([])
        while True:
            try:
                async with asyncio.timeout_at(next_ping):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            commands, self._changes = self._changes, []
            if loop.time() >= next_ping:
                next_ping = loop.time() + self._ping_interval_s
                log.debug("LOOKUPD(%s): sending heartbeat", self.address)
                commands.append(PING)
            await self._attempt(commands)

    async def _attempt(self, commands: list[bytes]) -> None:
        """Send commands and read their replies. Connects first if needed. A failure is logged and disconnects."""
        try:
            if self._connection is None:
                # A new connection registers everything, including the queued changes.
                self._connection = await self._connect()
                self._changes.clear()
                commands = self._registrations()
            await self._send(self._connection, commands)
        except (OSError, PeerFailed, ValueError) as error:
            reason = "no reply in time" if isinstance(error, TimeoutError) else str(error)
            log.error("LOOKUPD(%s): %s", self.address, reason)
            self._disconnect()

    async def _connect(self) -> _Connection:
        log.info("LOOKUP connecting to %s", self.address)
        host, port = parse_host_port(self.address)
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host or "localhost", port)
        connection = _Connection(LookupSession(self._identity, max_reply_size=self._max_reply), reader, writer)
        try:
            await connection.exchange()
        except BaseException:
            connection.close()
            raise
        self.info = connection.session.info
        log.info("LOOKUPD(%s): peer info %s", self.address, self.info)
        if self.info is not None and not self.info.broadcast_address:
            log.error("LOOKUPD(%s): no broadcast address", self.address)
        return connection

    async def _send(self, connection: _Connection, commands: Sequence[bytes]) -> None:
        for start in range(0, len(commands), _COMMANDS_AT_ONCE):
            batch = commands[start : start + _COMMANDS_AT_ONCE]
            for command in batch:
                if command != PING:
                    log.info("LOOKUPD(%s): %s", self.address, command.decode().rstrip())
            await connection.exchange(batch)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class LookupPeers:
    """All nsqlookupds of this broker; ``addresses`` are ``host:port``."""

    def __init__(self, broker: Broker, identity: Identity) -> None:
        self._broker = broker
        self._identity = identity
        self._addresses: list[str] = []
        self._is_withdrawn = False
        self._peers: dict[str, LookupPeer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        broker.observers.append(self._observe)
        broker.drain.observers.append(self._withdraw)

    @property
    def addresses(self) -> list[str]:
        """The addresses of the registries, ``host:port``."""
        return self._addresses

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Connect to new addresses at once, and disconnect from those that are not in ``addresses``."""
        self._addresses = list(dict.fromkeys(addresses))
        self._connect()

    def _withdraw(self, is_withdrawn: bool) -> None:
        """Disconnect from all registries, which then list the node no longer, or connect again."""
        self._is_withdrawn = is_withdrawn
        self._connect()

    def _connect(self) -> None:
        wanted = [] if self._is_withdrawn else self._addresses
        for address in self._peers.keys() - set(wanted):
            self._in_background(self._peers.pop(address).close())
        self._peers = {address: self._peers.get(address) or self._open(address) for address in wanted}

    async def close(self) -> None:
        """Close every connection."""
        self._broker.observers.remove(self._observe)
        self._broker.drain.observers.remove(self._withdraw)
        peers, self._peers = list(self._peers.values()), {}
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(peer.close() for peer in peers), *self._tasks, return_exceptions=True)

    async def _create_known_channels(self, topic: Topic, known: list[PeerInfo]) -> None:
        """Create the channels that a new topic has on other nodes, before its first message is routed."""
        try:
            for name in sorted(await self._channels_of(topic.name, known)):
                if self._broker.topics.get(topic.name) is topic:
                    topic.channel(name)
        finally:
            topic.resume_routing()

    async def _channels_of(self, topic: str, known: list[PeerInfo]) -> set[str]:
        """The channels that any nsqlookupd knows, without ephemeral ones. All are queried at the same time."""
        answers = await asyncio.gather(*(self._query(info, topic) for info in known))
        if all(answer is None for answer in answers):
            log.warning("failed to query nsqlookupds for channels to pre-create for topic %s", topic)
        return {name for answer in answers for name in answer or () if not is_ephemeral(name)}

    async def _query(self, info: PeerInfo, topic: str) -> list[str] | None:
        settings = self._broker.settings
        try:
            answer = await get_json(
                Server(info.broadcast_address, info.http_port),
                f"/channels?topic={quote(topic, safe='')}",
                connect_timeout_s=settings.http_client_connect_timeout.total_seconds(),
                request_timeout_s=settings.http_client_request_timeout.total_seconds(),
            )
        except FetchFailed as error:
            log.error("nsqlookupd %s:%d channels of %s: %s", info.broadcast_address, info.http_port, topic, error)
            return None
        channels = answer.get("channels") if isinstance(answer, dict) else None
        if not isinstance(channels, list):
            log.error("nsqlookupd %s:%d channels of %s: no list", info.broadcast_address, info.http_port, topic)
            return None
        return [name for name in channels if isinstance(name, str) and is_valid_name(name)]

    def _open(self, address: str) -> LookupPeer:
        max_reply = self._broker.settings.max_body_size
        return LookupPeer(address, self._identity, self._registrations, max_reply=max_reply)

    def _observe(self, change: RegistrationChange) -> None:
        command = registration(change.kind, change.topic, change.channel)
        for peer in self._peers.values():
            peer.notify(command)
        if self._peers and change.kind == "register" and change.channel is None:
            known = [info for peer in self._peers.values() if (info := peer.info) and info.broadcast_address]
            if known:
                topic = self._broker.topics[change.topic]
                topic.suspend_routing()
                self._in_background(self._create_known_channels(topic, known))
            else:
                log.error("no available nsqlookupd to query for channels to pre-create for topic %s", change.topic)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _registrations(self) -> list[bytes]:
        """The commands for a new connection: every channel, and every topic without channels."""
        commands = []
        for topic in self._broker.topics.values():
            commands += [registration("register", topic.name, channel) for channel in topic.channels or [None]]
        return commands
