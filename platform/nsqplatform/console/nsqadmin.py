"""``nsqadmin``: NSQ's command, implemented by this platform.

This process binds the address, prepares the database, and supervises Redis (unless ``REDIS_URL`` names one), the
collector, and the web process, which inherits the bound socket.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

from nsqdaemon import logs
from nsqdaemon.listener import Listener, ListenFailed, listen_tcp
from nsqdaemon.settings import load
from nsqdaemon.variable import InvalidVariable
from nsqplatform.console.checkout import default_home
from nsqplatform.console.environment import HOME, Environment
from nsqplatform.console.nsq.child import Service
from nsqplatform.console.nsq.home import Home, HomeInUse
from nsqplatform.console.nsq.ports import Address, own_names
from nsqplatform.console.nsq.prepare import prepare_platform
from nsqplatform.console.nsq.readiness import http_ping
from nsqplatform.console.nsq.redis import NoRedis
from nsqplatform.console.nsq.services import (
    bundled_redis,
    collectors,
    declared_clusters,
    nsq,
    private_umask,
    python_path,
)
from nsqplatform.console.nsq.supervisor import Supervisor
from nsqplatform.nsqadmin.settings import PROGRAM, AdminSettings
from nsqplatform.nsqadmin.settings import check as check_values
from nsqwire.addresses import parse_host_port
from nsqwire.version import version_text

log = logging.getLogger(PROGRAM)


class CannotStart(Exception):
    """nsqadmin cannot start; the message has the reason, in nsqadmin's words."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM and exit 0; 1 if it cannot start, 2 for an invalid flag."""
    arguments = sys.argv[1:] if argv is None else argv
    settings = load(AdminSettings, prog=PROGRAM, argv=arguments, environ=os.environ, version_text=version_text(PROGRAM))
    logs.configure(settings.log_level, settings.log_prefix)
    try:
        check(settings)
        listener = listen_tcp(settings.http_address)
        home = Home(default_home())
        with home:
            Environment.read({**os.environ, HOME.name: str(home.path)})
            return asyncio.run(run(settings, listener, home))
    except (CannotStart, ListenFailed, InvalidVariable, HomeInUse, NoRedis, OSError) as error:
        log.critical("failed to instantiate %s - %s", PROGRAM, error)
        return 1


def check(settings: AdminSettings) -> None:
    """Check the settings, before anything is started. Raises CannotStart."""
    if not settings.nsqd_http_address and not settings.lookupd_http_address:
        raise CannotStart("--nsqd-http-address or --lookupd-http-address required")
    if settings.nsqd_http_address and settings.lookupd_http_address:
        raise CannotStart("use --nsqd-http-address or --lookupd-http-address not both")
    for flag, addresses in (
        ("lookupd-http-address", settings.lookupd_http_address),
        ("nsqd-http-address", settings.nsqd_http_address),
    ):
        for address in addresses:
            resolve(flag, address)
    try:
        check_values(settings)
    except ValueError as error:
        raise CannotStart(str(error)) from None


def resolve(flag: str, address: str) -> None:
    try:
        host, port = parse_host_port(address)
        if not 0 < port < 65536:
            raise ValueError(f"{port} is not a port")
        socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CannotStart(f"failed to resolve --{flag} ({address}) - {reason}") from None


async def run(settings: AdminSettings, listener: Listener, home: Home) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    log.info("%s", version_text(PROGRAM))
    redis_url = os.environ.get("REDIS_URL") or f"unix://{home.redis_socket()}"
    supervisor = Supervisor(stages(settings, listener, home, redis_url), Lines())
    os.environ.update(environment(settings, home, redis_url), DJANGO_SETTINGS_MODULE="nsqplatform.console.settings")
    starting = asyncio.create_task(start(settings, listener, supervisor))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if starting.done() and (error := starting.exception()):
        await supervisor.stop()
        raise CannotStart(f"cannot prepare the database: {error}")
    await stopping
    starting.cancel()
    log.info("HTTP: closing %s", listener.shown)
    listener.remove()
    await supervisor.stop()
    return 0


async def start(settings: AdminSettings, listener: Listener, supervisor: Supervisor) -> None:
    await supervisor.start(0)
    link = await asyncio.to_thread(prepare_platform)
    logging.getLogger().handlers.clear()  # Django has configured its own logging
    logs.configure(settings.log_level, settings.log_prefix)
    await forget_changes()
    await supervisor.start(1)
    log.info("HTTP: listening on %s", listener.shown)
    host = parse_host_port(settings.http_address)[0]
    site = f"http://{Address(host, listener.port).reachable}"
    if link:
        log.info("sign in, once, as %s: %s%s%s", link.account, site, settings.base, link.path)


async def forget_changes() -> None:
    """Discard the changes of ``PUT /config``, which do not survive a restart."""
    from nsqplatform.cluster import store
    from nsqplatform.clusters import current

    async with store.connect_async() as redis:
        for cluster in current.names():
            with current.entered(cluster):
                await redis.delete(store.LOOKUPD())


def environment(settings: AdminSettings, home: Home, redis_url: str) -> dict[str, str]:
    """The children's environment variables: these settings, and the platform's variables."""
    made = settings.environment() | {
        "NSQ_HOME": str(home.path),
        "REDIS_URL": redis_url,
        "PYTHONPATH": python_path(),
        "PYTHONUNBUFFERED": "1",
        "NSQLOOKUPD_HTTP_ADDRESSES": ",".join(settings.lookupd_http_address),
        "NSQD_HTTP_ADDRESSES": ",".join(settings.nsqd_http_address),
        "NSQ_ALLOWED_HOSTS": ",".join([*filter(None, [os.environ.get("NSQ_ALLOWED_HOSTS")]), *own_names()]),
    }
    if settings.dev_static_dir:
        made["NSQ_FRONTEND_DIST"] = os.path.abspath(settings.dev_static_dir)
    return made


def stages(settings: AdminSettings, listener: Listener, home: Home, redis_url: str) -> list[list[Service]]:
    first = [] if os.environ.get("REDIS_URL") else [bundled_redis(home)]
    host = parse_host_port(settings.http_address)[0]
    reachable = Address(host, listener.port).reachable
    web = Service(
        name="web",
        command=nsq("web", "--http-fd", listener.socket.fileno()),
        detail=f"http {listener.shown}",
        ready=http_ping(reachable, settings.base),
        pass_fds=(listener.socket.fileno(),),
        umask=private_umask(),
    )
    return [first, [*collectors(declared_clusters(), redis_url), web]]


class Lines:
    """Logs the children's states and output. The output is logged as it is."""

    def log(self, name: str, line: str) -> None:
        log.log(logging.DEBUG if name == "redis" else logging.INFO, "%s: %s", name, line)

    def state(self, name: str, state: str, detail: str) -> None:
        level = logging.WARNING if state in ("restarting", "failed") else logging.DEBUG
        log.log(level, "%s: %s, %s", name, state, detail)


if __name__ == "__main__":
    sys.exit(main())
