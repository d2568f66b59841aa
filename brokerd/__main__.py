"""The broker as a process: ``python -m brokerd``, or ``nsqd``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

import uvloop

from brokerd import kernel
from brokerd.broker import Broker, DataPathLocked
from brokerd.journal.journal import CorruptState
from brokerd.latency import LatencyWindows
from brokerd.lookup_session import Identity
from brokerd.memory import CollectorPauses
from brokerd.net.background import Background
from brokerd.net.http import Ports, broker_router
from brokerd.net.peers import LookupPeers
from brokerd.net.statsd import Statsd
from brokerd.net.tcp import serve_tcp
from brokerd.net.windows import turn_windows
from brokerd.settings import BrokerSettings, InvalidSettings
from nsqwire import logs
from nsqwire.descriptors import occupy_standard_descriptors
from nsqwire.http import HTTPServer, Limits
from nsqwire.listening import Listener, ListenFailed, listen
from nsqwire.settings import load
from nsqwire.version import NSQ_VERSION, version_text

log = logging.getLogger("brokerd")


class DataPathFailed(Exception):
    """The data path cannot be read or written."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM and return the exit status. Exits at once for ``--version``, ``-h`` and bad flags."""
    occupy_standard_descriptors()
    settings = load(
        BrokerSettings,
        prog="nsqd",
        argv=sys.argv[1:] if argv is None else argv,
        environ=os.environ,
        version_text=version_text("nsqd"),
    )
    logs.configure(settings.log_level, settings.log_prefix, settings.log_format)
    try:
        settings.check()
        uvloop.run(serve(settings))
    except (InvalidSettings, DataPathLocked, DataPathFailed, ListenFailed) as error:
        log.critical("failed to instantiate nsqd - %s", error)
        return 1
    except CorruptState as error:
        log.critical("failed to load metadata - %s", error)
        return 1
    except OSError as error:
        log.critical("failed to write the last checkpoint, the journal still holds it all - %s", error)
        return 1
    return 0


async def serve(settings: BrokerSettings) -> None:
    """Run one broker until a signal.

    Raises DataPathLocked, DataPathFailed, CorruptState or ListenFailed if it cannot start, and OSError if its state
    could not be written at the end.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)  # a second one changes nothing: closing is already quick
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    log.info("%s", version_text("nsqd"))
    log.info("ID: %d", settings.node_id)
    if not kernel.COMPILED:
        log.warning("the compiled kernel is not in use: messages cost about ten times the processor time")
    try:
        broker = Broker(settings, now=loop.time, call_soon=loop.call_soon, call_at=loop.call_at)
    except OSError as error:
        raise DataPathFailed(f"cannot use data-path: {error}") from error
    try:
        listeners = _listen(settings)
    except ListenFailed:
        broker.close()
        raise
    try:
        await _serve_on(broker, *listeners, stop)
    finally:
        broker.close()
        for listener in listeners:
            if listener is not None:
                listener.remove()
    log.info("NSQ: bye")


def _listen(settings: BrokerSettings) -> tuple[Listener, Listener | None]:
    """Bind both faces or neither."""
    tcp = listen(settings.tcp_address)
    try:
        return tcp, listen(settings.http_address) if settings.http_address else None
    except ListenFailed:
        tcp.remove()
        raise


async def _serve_on(broker: Broker, tcp: Listener, http: Listener | None, stop: asyncio.Event) -> None:
    """Serve clients and tell lookup of them until ``stop``; returns with every connection closed."""
    settings, hostname = broker.settings, socket.gethostname()
    ports = Ports(tcp=tcp.port, http=http.port if http else 0)
    told_http_port = settings.broadcast_http_port or max(0, ports.http)
    pauses = CollectorPauses()
    pauses.install()
    peers = LookupPeers(
        broker,
        Identity(
            broadcast_address=settings.broadcast_address,
            hostname=hostname,
            http_port=told_http_port,
            tcp_port=settings.broadcast_tcp_port or max(0, ports.tcp),
            topology_region=settings.topology_region,
            topology_zone=settings.topology_zone,
            version=NSQ_VERSION,
        ),
    )
    windows = LatencyWindows(settings.e2e_processing_latency_percentile)
    tcp_server = await serve_tcp(broker, tcp.socket)
    log.info("TCP: listening on %s", tcp.shown)
    router = broker_router(
        broker, peers, windows, ports=ports, http_port=told_http_port, hostname=hostname, pauses=pauses
    )
    limits = Limits(max_body_size=max(settings.max_msg_size, settings.max_body_size))
    http_server = HTTPServer(router.answer, limits=limits)
    http_listening = None
    if http is not None:
        http_listening = await http.serve(http_server.protocol)
        log.info("HTTP: listening on %s", http.shown)
    peers.set_addresses(settings.lookupd_tcp_address)
    background = Background()
    if settings.e2e_processing_latency_percentile:
        background.start(turn_windows(broker, windows, settings.e2e_processing_latency_window_time))
    if settings.statsd_address:
        background.start(Statsd(broker, windows, pauses, http_port=told_http_port).run())

    await stop.wait()
    tcp_server.close()
    for client in list(broker.clients):
        client.hang_up()
    if http_listening is not None:
        http_listening.close()
        await http_server.close()
    await peers.close()
    await background.close()


if __name__ == "__main__":
    sys.exit(main())
