"""The broker's process: its start, its servers and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import gc
import logging
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import uvloop

from brokerd import kernel
from brokerd.broker import Broker
from brokerd.data_path import MIRROR_STATE, DataPath, DataPathLocked
from brokerd.file_header import UnsupportedFormat
from brokerd.journal.journal import NotCheckpointed
from brokerd.journal.recovery import CorruptState
from brokerd.last_stats import take_over, write_last_stats
from brokerd.latency import RecentLatencies
from brokerd.lookup_session import Identity
from brokerd.memory import CollectorPauses, release_memory
from brokerd.net.background import Background
from brokerd.net.data_path_checks import check_data_path, retry_refused_writes
from brokerd.net.drain_end import end_when_drained
from brokerd.net.http import Ports, broker_router
from brokerd.net.idle_topics import unmap_idle_topics
from brokerd.net.latency_rotation import rotate_latencies
from brokerd.net.peers import LookupPeers
from brokerd.net.statsd import Statsd
from brokerd.net.stop import Stop
from brokerd.net.tcp import serve_tcp
from brokerd.policies import Patterns, policies_in_file
from brokerd.policy import InvalidPolicy, Values
from brokerd.settings import DESCRIPTION, EXAMPLES, BrokerSettings, InvalidSettings
from brokerd.syncer import Syncer
from brokerd.timers import never_early
from nsqdaemon import logs
from nsqdaemon.command_line import USAGE
from nsqdaemon.descriptors import allow_many_descriptors, occupy_standard_descriptors
from nsqdaemon.http import HTTPServer, Limits
from nsqdaemon.http.server import AnswerRequest
from nsqdaemon.input_budget import InputBudget
from nsqdaemon.listener import Listener, ListenFailed, listen, listen_tcp
from nsqdaemon.settings import load
from nsqwire.version import NSQ_VERSION, product_version, version_text

if TYPE_CHECKING:
    from brokerd.net.auth_client import AuthServers
    from brokerd.net.mirror import Mirror
    from brokerd.net.tls import NewTLS
    from nsqdaemon.otlp.pusher import Pusher

log = logging.getLogger("brokerd")


class DataPathFailed(Exception):
    """The data path cannot be read or written. The cause is an OSError."""


MEMORY_TO_END: Final = 4 * 1024 * 1024
"""Address space that is kept for the end of a process that has run out of memory."""
_PERMANENT = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR))
"""Errors of the data path that a restart does not clear."""


class Listeners(NamedTuple):
    """The listeners of the three protocols; None for one that is disabled."""

    tcp: Listener
    http: Listener | None
    https: Listener | None


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM and return the exit status. Exits at once for ``--version``, ``-h`` and bad flags.

    With ``argv``, it is ``nsq brokerd``; without, it is nsqd, whose arguments are the process's.
    """
    occupy_standard_descriptors()
    allow_many_descriptors()
    _report_fatal_signals()
    is_subcommand = argv is not None
    settings = load(
        BrokerSettings,
        prog="nsq brokerd" if is_subcommand else "nsqd",
        argv=sys.argv[1:] if argv is None else argv,
        environ=os.environ,
        version_text=version_text("nsqd"),
        description=DESCRIPTION if is_subcommand else None,
        examples=EXAMPLES,
        refuse_words=is_subcommand,
    )
    logs.configure(settings.log_level, settings.log_prefix, settings.log_format)
    try:
        settings.check()
    except InvalidSettings as error:
        log.critical("failed to instantiate nsqd - %s", error)
        return USAGE if is_subcommand else 1
    try:
        uvloop.run(serve(settings))
    except (DataPathLocked, DataPathFailed) as error:
        log.critical("failed to instantiate nsqd - %s", error)
        is_permanent = isinstance(error.__cause__, OSError) and error.__cause__.errno in _PERMANENT
        return settings.permanent_error_status if is_permanent else 1
    except (InvalidSettings, ListenFailed) as error:
        log.critical("failed to instantiate nsqd - %s", error)
        return 1
    except (CorruptState, UnsupportedFormat) as error:
        log.critical("failed to load metadata - %s", error)
        return settings.permanent_error_status
    except (NotCheckpointed, OSError) as error:
        log.critical("failed to write the last checkpoint - %s", error)
        return 1
    return 0


async def serve(settings: BrokerSettings) -> None:
    """Run one broker until a signal.

    Raises InvalidSettings, DataPathLocked, DataPathFailed, CorruptState, UnsupportedFormat or ListenFailed if it cannot
    start, and NotCheckpointed if its state could not be written at the end.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(partial(_end_without_memory, mmap.mmap(-1, MEMORY_TO_END)))
    stop = Stop()
    stop.set_at(signal.SIGINT, signal.SIGTERM)
    loop.add_signal_handler(signal.SIGQUIT, _dump_and_exit)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the broker has started

    log.info("%s", version_text("nsqd"))
    log.info("ID: %d", settings.node_id)
    if not kernel.COMPILED:
        log.warning("the compiled kernel is not in use: messages cost about ten times the processor time")
    # First what may fail before the data path is touched, so that a start that fails leaves no file behind.
    try:
        data_path = DataPath(settings.data_path or ".")
    except OSError as error:
        raise DataPathFailed(f"cannot use data-path: {error}") from error
    try:
        policies, tls, auth, listeners = _policies(settings), _tls(settings), _auth_servers(settings), _listen(settings)
    except (InvalidSettings, ListenFailed):
        data_path.close()
        raise
    mirror: Mirror | None = None
    try:
        if not settings.mirror_address:
            _leave_pair(data_path)
        else:
            mirror = _mirror(settings, data_path, listeners)
            stop.set_at(signal.SIGUSR1)  # a follower has nothing to drain
            record = await mirror.until_leading(listeners, stop)
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            settings = replace(settings, node_id=record.node_id if record is not None else settings.node_id)
        if mirror is None or not stop.is_set():
            await _run(settings, data_path, policies, listeners, tls, auth, stop, mirror)
        if mirror is not None and mirror.handing_over.is_set():
            stop.set_at(signal.SIGUSR1)
            await mirror.follow_again()
    finally:
        if mirror is not None:
            mirror.close()
        if auth is not None:
            await auth.close()
        for listener in listeners:
            if listener is not None:
                listener.remove()
    log.info("NSQ: bye")


async def _run(
    settings: BrokerSettings,
    data_path: DataPath,
    policies: dict[Patterns, Values],
    listeners: Listeners,
    tls: NewTLS | None,
    auth: AuthServers | None,
    stop: Stop,
    mirror: Mirror | None,
) -> None:
    """Recover the state from the data path, serve until ``stop``, and write a checkpoint. Raises as ``serve``."""
    loop = asyncio.get_running_loop()
    try:
        with contextlib.nullcontext() if mirror is None else mirror.kept_lease():
            broker = Broker(
                settings,
                now=loop.time,
                call_soon=loop.call_soon,
                call_at=never_early(loop.call_at),
                policies=policies,
                data_path=data_path,
                left_out_numbers=0 if mirror is None else mirror.left_out_numbers,
            )
    except (CorruptState, OSError) as error:
        if mirror is not None:
            await mirror.give_back(f"its data path cannot be recovered: {error}")
        if isinstance(error, CorruptState):
            raise
        raise DataPathFailed(f"cannot use data-path: {error}") from error
    if mirror is not None:
        if (loss := broker.recovery_loss()) is not None:
            await mirror.give_back(f"its data path is damaged: {loss}")
        elif broker.lost_changes:
            await mirror.stand_back(f"its data path is damaged: {broker.lost_changes[0]}")
    timeout_s, takes_publishes = settings.drain_timeout.total_seconds(), settings.drain_publishes
    begin_drain = partial(broker.drain.begin, timeout_s=timeout_s, takes_publishes=takes_publishes)
    loop.add_signal_handler(signal.SIGUSR1, begin_drain)
    broker.storage.syncer = syncer = Syncer(
        every=settings.sync_every,
        timeout=settings.sync_timeout,
        journal=lambda: broker.storage.journal_paths,
        journal_bytes=lambda: broker.storage.journal_written,
        check_directory=broker.storage.require_data_path,
        failed=broker.storage.sync_failed,
        abandon=broker.storage.abandon_missing,
        resumed=broker.storage.sync_resumed,
        patience=settings.disk_timeout,
    )
    broker.storage.disk.start(
        settings.disk_timeout.total_seconds(),
        call_soon=loop.call_soon_threadsafe,
        stalled=broker.storage.disk_stalled,
        resumed=broker.storage.disk_resumed,
    )
    if mirror is not None:
        await mirror.recovered()
        broker.storage.syncer = mirror.begin_term(broker, syncer)

    checkpoints = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
    checkpoints.submit(int)  # starts the thread now: later there may be no memory for it

    def in_background(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        loop.run_in_executor(checkpoints, work).add_done_callback(lambda future: done(future.exception()))

    broker.storage.checkpoint_in_background(in_background)
    take_over(broker.data_path)
    gc.freeze()  # recovered objects live as long as the process, so the collector need not examine them
    gc.enable()
    try:
        _check_dead_topics(broker)
    except InvalidSettings:
        broker.close()
        raise
    try:
        handing_over = None if mirror is None else mirror.handing_over
        await _serve_on(broker, listeners, tls, auth, stop, handing_over)
        if mirror is not None:
            await mirror.hand_over()
        write_last_stats(broker, broker.data_path)
    finally:
        with contextlib.suppress(OSError):  # it was logged when it failed
            await syncer.close()
        broker.storage.disk.close()
        broker.close()


def _report_fatal_signals() -> None:
    """Write the signal's name and the stack to standard error before the system ends the process.

    SIGBUS is the one to expect: a page of a mapped file cannot be read, because the disk fails or the file was cut.
    """
    with contextlib.suppress(Exception):  # standard error may be closed
        faulthandler.enable(all_threads=False)


def _end_without_memory(reserve: mmap.mmap, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an exception of a callback. If memory ran out there, end the process at once, as a kill would.

    What the callback left undone is unknown, and the next one would fail too. No acknowledged message is lost.
    """
    if isinstance(context.get("exception"), MemoryError):
        reserve.close()  # for the line and the exit
        log.critical("the process ends: not enough memory; acknowledged messages are kept")
        os._exit(1)
    loop.default_exception_handler(context)


def _dump_and_exit() -> None:
    """Print the stack of every thread and exit at once, as Go programs do on SIGQUIT. Loses no acknowledged message."""
    with contextlib.suppress(Exception):  # standard error may be closed
        faulthandler.dump_traceback()
    os._exit(2)


def _policies(settings: BrokerSettings) -> dict[Patterns, Values]:
    """The policies of the settings' file. Raises InvalidSettings."""
    try:
        return policies_in_file(settings.config) if settings.config else {}
    except InvalidPolicy as error:
        raise InvalidSettings(str(error)) from None


def _check_dead_topics(broker: Broker) -> None:
    """Raise InvalidSettings if the policies of the file, with those that were set earlier, form a circle."""
    try:
        broker.runtime.policies.check_dead_topics()
    except InvalidPolicy as error:
        raise InvalidSettings(f"policies of {broker.settings.config}, with those that were set: {error}") from None


# These functions import libraries only if they are needed: each takes a tenth of a second or more.


def _tls(settings: BrokerSettings) -> NewTLS | None:
    """The factory of TLS conversations; None without a certificate. Raises InvalidSettings."""
    if not settings.has_tls:
        return None
    from brokerd.net.tls import TLSConfigFailed, TLSConversation, server_context

    try:
        return partial(TLSConversation, server_context(settings))
    except TLSConfigFailed as error:
        raise InvalidSettings(f"failed to build TLS config - {error}") from None


def _auth_servers(settings: BrokerSettings) -> AuthServers | None:
    """The auth servers; None if none are configured. Raises InvalidSettings, also for a bad ``--tls-root-ca-file``."""
    if not settings.auth_http_address and not settings.tls_root_ca_file:
        return None
    from brokerd.net.client_tls import ClientTLSFailed, client_context

    try:
        context = client_context(settings)
    except ClientTLSFailed as error:
        raise InvalidSettings(f"failed to build client TLS config - {error}") from None
    if not settings.auth_http_address:
        return None
    from brokerd.net.auth_client import AuthServers

    return AuthServers(settings, context)


def _leave_pair(data_path: DataPath) -> None:
    """Forget the pair that the data path is of, if any. Raises DataPathFailed."""
    if not (data_path.path / MIRROR_STATE).exists():
        return
    from brokerd.replica import leave_pair

    try:
        leave_pair(data_path.path)
    except OSError as error:
        raise DataPathFailed(f"cannot use data-path: {error}") from error


def _mirror(settings: BrokerSettings, data_path: DataPath, listeners: Listeners) -> Mirror:
    """The member of a pair. Raises InvalidSettings, DataPathFailed and ListenFailed."""
    from brokerd.net.arbiter_access import InvalidAccess
    from brokerd.net.mirror import Mirror
    from brokerd.net.mirror_tls import MirrorTLSFailed

    ports = tuple(0 if each is None else max(0, each.port) for each in listeners[:2])
    try:
        return Mirror(settings, data_path.path, (ports[0], ports[1]))
    except InvalidAccess as error:
        raise InvalidSettings(str(error)) from None
    except MirrorTLSFailed as error:
        raise InvalidSettings(f"failed to build TLS config of the mirror - {error}") from None
    except (OSError, ValueError) as error:
        raise DataPathFailed(f"cannot use data-path: {error}") from error


def _otlp(settings: BrokerSettings, answer: AnswerRequest, instance: str) -> Pusher:
    """The pusher of metrics by OTLP; ``instance`` is the address that others know the broker by."""
    from nsqdaemon.otlp.pusher import Pusher, metrics_reader

    resource = {"service.name": "nsqd", "service.version": product_version(), "service.instance.id": instance}
    interval_s = settings.otlp_interval.total_seconds()
    return Pusher(settings.otlp_endpoint, interval_s, metrics_reader(answer), resource)


def _listen(settings: BrokerSettings) -> Listeners:
    """Bind all addresses or none. Raises ListenFailed."""
    bound = [listen(settings.tcp_address)]
    try:
        http = listen(settings.http_address) if settings.http_address else None
        if http is not None:
            bound.append(http)
        https = listen_tcp(settings.https_address) if settings.has_tls and settings.https_address else None
    except ListenFailed:
        for listener in bound:
            listener.remove()
        raise
    return Listeners(bound[0], http, https)


async def _first_of(stop: asyncio.Event, handing_over: asyncio.Event | None) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.ensure_future(each.wait()) for each in (stop, handing_over) if each is not None]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


async def _serve_on(
    broker: Broker,
    listeners: Listeners,
    tls: NewTLS | None,
    auth: AuthServers | None,
    stop: asyncio.Event,
    handing_over: asyncio.Event | None,
) -> None:
    """Serve clients and register with nsqlookupd until ``stop`` or ``handing_over``, then close every connection."""
    settings, hostname = broker.settings, socket.gethostname()
    tcp, http, https = listeners
    ports = Ports(tcp=tcp.port, http=http.port if http else 0)
    broadcast_http_port = settings.broadcast_http_port or max(0, ports.http)
    pauses = CollectorPauses()
    pauses.install()
    peers = LookupPeers(
        broker,
        Identity(
            broadcast_address=settings.broadcast_address,
            hostname=hostname,
            http_port=broadcast_http_port,
            tcp_port=settings.broadcast_tcp_port or max(0, ports.tcp),
            topology_region=settings.topology_region,
            topology_zone=settings.topology_zone,
            version=NSQ_VERSION,
        ),
    )
    latencies = RecentLatencies(settings.e2e_processing_latency_percentile)
    loop = asyncio.get_running_loop()
    budget = InputBudget(
        settings.max_unfinished_size, now=loop.time, call_later=loop.call_later, released=release_memory
    )
    tcp_server = await serve_tcp(broker, tcp.socket, budget, tls, auth)
    log.info("TCP: listening on %s", tcp.shown)
    router = broker_router(
        broker, peers, latencies, ports=ports, http_port=broadcast_http_port, hostname=hostname, pauses=pauses
    )
    limits = Limits(max_body_size=max(settings.max_msg_size, settings.max_body_size))
    plain_is_refused = settings.tls_required_code == 2
    answer: AnswerRequest = router.answer
    if plain_is_refused:
        from brokerd.net.https import refuse_plain

        answer = refuse_plain(https.port if https else 0)
    new_server = partial(
        HTTPServer,
        limits=limits,
        budget=budget,
        slices=broker.runtime.scheduler,
        body_limit=router.body_limit,
        plain_head=kernel.plain_head,
    )
    http_server = new_server(answer)
    https_server = new_server(router.answer)
    accepting = []
    if http is not None:
        accepting.append(await http.serve(http_server.protocol))
        log.info("HTTP: listening on %s", http.shown)
    if https is not None and tls is not None:
        from brokerd.net.https import HTTPSProtocol

        accepting.append(await https.serve(partial(HTTPSProtocol, tls, https_server.protocol)))
        log.info("HTTPS: listening on %s", https.shown)
    peers.set_addresses(settings.lookupd_tcp_address)
    background = Background()
    background.start(check_data_path(broker))
    background.start(retry_refused_writes(broker))
    background.start(unmap_idle_topics(broker))
    background.start(end_when_drained(broker, stop))
    if settings.e2e_processing_latency_percentile:
        background.start(rotate_latencies(broker, latencies, settings.e2e_processing_latency_window_time))
    if settings.statsd_address:
        background.start(Statsd(broker, latencies, pauses, http_port=broadcast_http_port).run())
    if settings.otlp_endpoint:
        instance = f"{settings.broadcast_address}:{broadcast_http_port or tcp.port}"
        background.start(_otlp(settings, router.answer, instance).run())

    await _first_of(stop, handing_over)
    broker.runtime.is_stopping = True
    for server in (tcp_server, *accepting):
        server.close()
    for client in list(broker.clients):
        client.hang_up()
    await asyncio.gather(http_server.close(), https_server.close())
    await peers.close()
    await background.close()
