"""``nsq up``: runs the whole platform on one machine until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nsqplatform.console.checkout import default_home
from nsqplatform.console.environment import Environment
from nsqplatform.console.nsq.home import Home, HomeInUse
from nsqplatform.console.nsq.options import address
from nsqplatform.console.nsq.ports import parse_address, problems
from nsqplatform.console.nsq.prepare import prepare_platform
from nsqplatform.console.nsq.redis import NoRedis
from nsqplatform.console.nsq.screen import Screen
from nsqplatform.console.nsq.services import NAMES, PLATFORM, STAGES, Plan, declared_clusters
from nsqplatform.console.nsq.supervisor import Supervisor
from nsqplatform.nsqadmin.settings import from_environment

ADDRESSES = {
    "--nsqd-tcp-address": ("127.0.0.1:4150", "the broker's address for clients"),
    "--nsqd-http-address": ("127.0.0.1:4151", "the broker's HTTP address"),
    "--lookupd-tcp-address": ("127.0.0.1:4160", "the registry's address for brokers"),
    "--lookupd-http-address": ("127.0.0.1:4161", "the registry's HTTP address"),
    "--http-address": ("127.0.0.1:4171", "the web platform's address"),
}


def process_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"there is no process {name!r}; there are {', '.join(NAMES)}")
    return names


def parse(argv: Sequence[str]) -> Plan:
    parser = argparse.ArgumentParser(
        prog="nsq up",
        description="Run broker, registry and web platform with all they need. Crashed processes restart. "
        "Ctrl-C stops everything without loss; a second Ctrl-C does not wait.",
    )
    for flag, (default, purpose) in ADDRESSES.items():
        parser.add_argument(
            flag, type=address, default=parse_address(default), metavar="HOST:PORT", help=f"{purpose} ({default})"
        )
    parser.add_argument(
        "--home",
        type=Path,
        default=default_home(),
        metavar="DIR",
        help="data folder (default: $NSQ_HOME, else var/ in a checkout, else the user's data folder)",
    )
    parser.add_argument(
        "--without",
        type=process_names,
        action="extend",
        default=[],
        metavar="NAME[,NAME]",
        help=f"processes not to run, of {', '.join(NAMES)}",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warn", "error", "fatal"),
        default="warn",
        help="log level of broker and registry (%(default)s); info includes every request",
    )
    options = parser.parse_args(argv)
    plan = Plan(
        home=Home(options.home.absolute()),
        nsqd_tcp=options.nsqd_tcp_address,
        nsqd_http=options.nsqd_http_address,
        lookupd_tcp=options.lookupd_tcp_address,
        lookupd_http=options.lookupd_http_address,
        http=options.http_address,
        without=frozenset(options.without),
        log_level=options.log_level,
        redis_url=os.environ.get("REDIS_URL"),
        clusters=declared_clusters(),
    )
    if "redis" in plan.without and plan.runs_platform and not plan.redis_url:
        parser.error(f"--without redis needs REDIS_URL, for {', '.join(PLATFORM)}")
    return plan


def main(argv: Sequence[str]) -> int:
    """Run until a signal. Exit 0 after a clean stop, 1 if it could not start."""
    plan = parse(argv)
    if lines := problems(plan.claims()):
        for line in lines:
            print(f"nsq up: {line}", file=sys.stderr)
        return 1
    try:
        with plan.home:
            if plan.runs_platform:
                check_environment({**os.environ, **plan.environment()})
            return asyncio.run(Up(plan).run())
    except (HomeInUse, NoRedis, OSError) as error:
        print(f"nsq up: {error}", file=sys.stderr)
        return 1


def check_environment(environ: Mapping[str, str]) -> None:
    """Raise InvalidVariable for a variable that a process of the platform would not accept."""
    Environment.read(environ)
    from_environment(environ)


class Up:
    """One run: start the stages, prepare the database between them, wait for a signal, stop."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        # Also set in this process, which prepares the database.
        os.environ.update(plan.environment(), DJANGO_SETTINGS_MODULE="nsqplatform.console.settings")
        stages = plan.stages()
        self.screen = Screen(service.name for stage in stages for service in stage)
        self.supervisor = Supervisor(stages, self.screen)
        self.interrupted = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(signum, self._signalled)
        self.screen.say(f"nsq up: all data is in {self.plan.home.path}", "bold")
        starting = asyncio.create_task(self._start())
        interrupted = asyncio.create_task(self.interrupted.wait())
        await asyncio.wait([starting, interrupted], return_when=asyncio.FIRST_COMPLETED)
        status = 0
        if starting.done() and (error := starting.exception()):
            self.screen.say(f"nsq up: cannot prepare the database: {error}", "red")
            status = 1
        else:
            await interrupted
        for task in (starting, interrupted):
            task.cancel()
        await self.supervisor.stop()
        self.screen.say("nsq up: all processes are stopped", "bold")
        return status

    async def _start(self) -> None:
        link = None
        for stage in range(len(STAGES)):
            if STAGES[stage] == PLATFORM and self.plan.runs_platform:
                link = await asyncio.to_thread(prepare_platform)
            await self.supervisor.start(stage)
        if self.plan.runs("web"):
            site = self.plan.site
            self.screen.say("")
            self.screen.say(f"Ready: {site}", "bold green")
            if link:
                self.screen.say(f"Sign in, once, as {link.account}: {site}{link.path}", "bold")
        else:
            self.screen.say("Ready", "bold green")
        if missing := self.supervisor.not_running():
            self.screen.say(f"Not running: {', '.join(missing)}. Their last lines above give the reason.", "red")
        self.screen.say("Ctrl-C stops everything.")

    def _signalled(self) -> None:
        if self.interrupted.is_set():
            self.screen.say("nsq up: second signal; killing all processes", "red")
            self.supervisor.kill()
            return
        self.screen.say("nsq up: stopping; Ctrl-C again to force it", "bold")
        self.interrupted.set()
