"""The nsqlookupd process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

import uvloop

from nsqdaemon import logs
from nsqdaemon.descriptors import allow_many_descriptors, occupy_standard_descriptors
from nsqdaemon.http import HTTPServer
from nsqdaemon.http.server import AnswerRequest
from nsqdaemon.listener import Listener, ListenFailed, listen_tcp
from nsqdaemon.otlp import OTLPUnusable, check_endpoint
from nsqdaemon.settings import SettingsParser, load, parser_of
from nsqlookup.http import Clock, make_router
from nsqlookup.registry import Registry
from nsqlookup.scheduler import Scheduler
from nsqlookup.settings import DESCRIPTION, EXAMPLES, LookupSettings
from nsqlookup.tcp import LookupServer
from nsqwire.version import NSQ_VERSION, product_version, version_text

if TYPE_CHECKING:
    from nsqdaemon.otlp.pusher import Pusher

log = logging.getLogger(__name__)

PROGRAM: Final = "nsqlookupd"

_NO_FULL_COLLECTION: Final = 1 << 30


def main(argv: list[str] | None = None) -> None:
    """Run until SIGINT or SIGTERM. Exits with status 1 if an address cannot be bound, and 2 for an invalid flag.

    With ``argv``, it is ``nsq lookup``; without, it is nsqlookupd, whose arguments are the process's.
    """
    occupy_standard_descriptors()
    allow_many_descriptors()
    arguments = sys.argv[1:] if argv is None else argv
    is_subcommand = argv is not None
    settings = load(
        LookupSettings,
        prog="nsq lookup" if is_subcommand else PROGRAM,
        argv=arguments,
        environ=os.environ,
        version_text=version_text(PROGRAM),
        description=DESCRIPTION if is_subcommand else None,
        examples=EXAMPLES,
        refuse_words=is_subcommand,
    )
    logs.configure(settings.log_level, settings.log_prefix, settings.log_format)
    try:
        if settings.otlp_endpoint:
            check_endpoint(settings.otlp_endpoint)
        uvloop.run(serve(settings))
    except OTLPUnusable as error:
        log.critical("failed to instantiate %s - --otlp-endpoint: %s", PROGRAM, error)
        raise SystemExit(1) from None
    except ListenFailed as error:
        log.critical("failed to instantiate %s - %s", PROGRAM, error)
        raise SystemExit(1) from None


def parser() -> SettingsParser:
    """The parser of ``nsq lookup``, for its help."""
    return parser_of(LookupSettings, prog="nsq lookup", description=DESCRIPTION, examples=EXAMPLES)


async def serve(settings: LookupSettings) -> None:
    """Serve TCP and HTTP until SIGINT or SIGTERM. Raises ListenFailed."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):  # before the log says that the registry listens
        loop.add_signal_handler(number, stop.set)

    log.info("%s", version_text(PROGRAM))
    tcp = _listen("TCP", settings.tcp_address)
    http = _listen("HTTP", settings.http_address)
    clock = steady_unix_clock()
    registry = Registry(
        inactive_timeout=settings.inactive_producer_timeout, tombstone_lifetime=settings.tombstone_lifetime
    )
    identity = {
        "broadcast_address": settings.broadcast_address,
        "hostname": socket.gethostname(),
        "http_port": http.port,
        "tcp_port": tcp.port,
        "version": NSQ_VERSION,
    }
    # A full collection takes 85 ms with a hundred thousand entries, which are never garbage. None of our long-lived
    # objects are in reference cycles, so reference counting frees connections and responses.
    gc.set_threshold(*gc.get_threshold()[:2], _NO_FULL_COLLECTION)
    scheduler = Scheduler()
    lookup_server = LookupServer(registry, clock, identity, scheduler)
    router = make_router(registry, clock, scheduler)
    http_server = HTTPServer(router.answer)
    tcp_listening = await tcp.serve(lookup_server.protocol)
    http_listening = await http.serve(http_server.protocol)

    pushing = None
    if settings.otlp_endpoint:
        pushing = asyncio.create_task(_otlp(settings, router.answer, http.port).run())

    await stop.wait()
    if pushing is not None:
        pushing.cancel()
        await asyncio.gather(pushing, return_exceptions=True)
    log.info("TCP: closing %s", tcp.shown)
    tcp_listening.close()
    lookup_server.close()
    log.info("HTTP: closing %s", http.shown)
    http_listening.close()
    await http_server.close()


def _otlp(settings: LookupSettings, answer: AnswerRequest, http_port: int) -> Pusher:
    from nsqdaemon.otlp.pusher import Pusher, metrics_reader  # here, because most registries do without it

    resource = {
        "service.name": PROGRAM,
        "service.version": product_version(),
        "service.instance.id": f"{settings.broadcast_address}:{http_port}",
    }
    interval_s = settings.otlp_interval.total_seconds()
    return Pusher(settings.otlp_endpoint, interval_s, metrics_reader(answer), resource)


def _listen(interface: str, address: str) -> Listener:
    listener = listen_tcp(address)
    log.info("%s: listening on %s", interface, listener.shown)
    return listener


def steady_unix_clock() -> Clock:
    """A clock of Unix nanoseconds that ignores later steps of the wall clock: a step makes no producer inactive."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda: offset + time.monotonic_ns()


if __name__ == "__main__":
    main()
