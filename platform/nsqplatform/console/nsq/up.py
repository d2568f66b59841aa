"""``nsq up``: runs the whole platform on one machine until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from aionsq.tools.signal_echo import SignalEcho
from nsqdaemon.command_line import CommandParser
from nsqdaemon.default_ports import BASE, HIGHEST, VARIABLE, DefaultPorts, default_ports, ports_from
from nsqplatform.console.checkout import default_home
from nsqplatform.console.environment import Environment
from nsqplatform.console.nsq.home import Home, HomeInUse, running
from nsqplatform.console.nsq.options import add_home, address, port_base
from nsqplatform.console.nsq.pair import NoEtcd, WasMirrored, refuse_single
from nsqplatform.console.nsq.ports import Address, problems
from nsqplatform.console.nsq.prepare import prepare_platform
from nsqplatform.console.nsq.redis import NoRedis
from nsqplatform.console.nsq.screen import Screen
from nsqplatform.console.nsq.services import NAMES, PLATFORM, STAGES, Plan, declared_clusters
from nsqplatform.console.nsq.supervisor import Supervisor
from nsqplatform.nsqadmin.settings import from_environment

ADDRESSES = {
    "--nsqd-tcp-address": "the broker's address for clients",
    "--nsqd-http-address": "the broker's HTTP address",
    "--lookupd-tcp-address": "the registry's address for brokers",
    "--lookupd-http-address": "the registry's HTTP address",
    "--http-address": "the web platform's address",
}
"""The flags of the addresses to listen on, in the order of DefaultPorts, with their help."""


def default_addresses(ports: DefaultPorts) -> dict[str, Address]:
    """The addresses by flag, on loopback."""
    return {flag: Address("127.0.0.1", port) for flag, port in zip(ADDRESSES, ports, strict=True)}


def process_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"there is no process {name!r}; there are {', '.join(NAMES)}")
    return names


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq up",
        description="Run broker, registry and web platform with all they need. Crashed processes restart. "
        "Ctrl-C stops everything without loss; a second Ctrl-C does not wait.",
        examples=[
            ("nsq up", "on 127.0.0.1, with the web platform on port 4171"),
            ("nsq up --home /tmp/second --port-base 5150", "a second platform, on ports 5150 to 5171"),
            ("nsq up --without worker", "without reports"),
            ("nsq up --mirrored", "with a mirrored pair of brokers, to try one"),
            ("nsq up --http-address 0.0.0.0:4171", "with pages for other machines too"),
        ],
    )
    made.add_argument(
        "--port-base",
        type=port_base,
        metavar="N",
        help="listen on ports N, N+1, N+10, N+11 and N+21 of 127.0.0.1 (default: $NSQ_PORT_BASE, else 4150)",
    )
    for flag, default in default_addresses(ports_from(BASE)).items():
        made.add_argument(flag, type=address, metavar="HOST:PORT", help=f"{ADDRESSES[flag]} ({default})")
    add_home(made)
    made.add_argument(
        "--without",
        type=process_names,
        action="extend",
        default=[],
        metavar="NAME[,NAME]",
        help=f"processes not to run, of {', '.join(NAMES)}",
    )
    made.add_argument(
        "--mirrored",
        action="store_true",
        help="run two brokers as a mirrored pair, with etcd, on the six ports after the broker's HTTP port",
    )
    made.add_argument(
        "--log-level",
        choices=("debug", "info", "warn", "error", "fatal"),
        default="warn",
        help="log level of broker and registry (%(default)s); info includes every request",
    )
    return made


def parse(argv: Sequence[str]) -> Plan:
    made = parser()
    options = made.parse_args(argv)
    addresses = default_addresses(options.port_base or default_ports())
    given = {flag: getattr(options, flag[2:].replace("-", "_")) for flag in addresses}
    addresses |= {flag: value for flag, value in given.items() if value}
    plan = Plan(
        home=Home((options.home or default_home()).absolute(), addresses),
        nsqd_tcp=addresses["--nsqd-tcp-address"],
        nsqd_http=addresses["--nsqd-http-address"],
        lookupd_tcp=addresses["--lookupd-tcp-address"],
        lookupd_http=addresses["--lookupd-http-address"],
        http=addresses["--http-address"],
        without=frozenset(options.without),
        log_level=options.log_level,
        redis_url=os.environ.get("REDIS_URL"),
        clusters=declared_clusters(),
        is_mirrored=options.mirrored,
        chosen=frozenset(flag for flag, value in given.items() if value),
    )
    if "redis" in plan.without and plan.runs_platform and not plan.redis_url:
        made.error(f"--without redis needs REDIS_URL, for {', '.join(PLATFORM)}")
    return plan


def main(argv: Sequence[str]) -> int:
    """Run until a signal. Exit 0 after a clean stop, 1 if it could not start."""
    plan = parse(argv)
    if other := running(plan.home.path):  # before its ports, which are not the problem
        print(f"nsq up: {HomeInUse(plan.home.path, other.pid)}", file=sys.stderr)
        return 1
    if found := problems(plan.claims()):
        for problem in found:
            print(f"nsq up: {problem.text}", file=sys.stderr)
        if any(problem.flag not in plan.chosen for problem in found):
            print("nsq up: --port-base N moves all ports at once, to N, N+1, N+10, N+11 and N+21", file=sys.stderr)
        return 1
    try:
        with plan.home:
            if plan.pair is not None:
                plan.pair.prepare()
            elif plan.runs("brokerd"):
                refuse_single(plan.home)
            if plan.runs_platform:
                check_environment({**os.environ, **plan.environment()})
            return asyncio.run(Up(plan).run())
    except (HomeInUse, NoRedis, NoEtcd, WasMirrored, OSError) as error:
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
        self.echo = SignalEcho()

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
        self._say_ports()
        self.screen.say("Ctrl-C stops everything.")

    def _say_ports(self) -> None:
        """Print where clients connect, and the variable with which the tools find other ports than the default."""
        plan = self.plan
        if plan.runs("brokerd"):
            self.screen.say(f"Publish to nsqd at {plan.nsqd_tcp.reachable} (HTTP {plan.nsqd_http.reachable}).")
        if pair := plan.pair:
            second = f"{pair.second_tcp.reachable} (HTTP {pair.second_http.reachable})"
            self.screen.say(f"It is a mirrored pair: {second} leads to it, too.")
        if plan.runs("lookup"):
            self.screen.say(f"Consume with nsqlookupd at {plan.lookupd_http.reachable}.")
        base = plan.nsqd_tcp.port
        if base != default_ports().nsqd_tcp and 0 < base <= HIGHEST and self._are_from(base):
            self.screen.say(f"For nsq's tools in other terminals: export {VARIABLE}={base}")

    def _are_from(self, base: int) -> bool:
        plan = self.plan
        ports = [each.port for each in (plan.nsqd_tcp, plan.nsqd_http, plan.lookupd_tcp, plan.lookupd_http, plan.http)]
        return tuple(ports) == ports_from(base)

    def _signalled(self) -> None:
        if self.echo.is_echo(asyncio.get_running_loop().time()):
            return
        if self.interrupted.is_set():
            self.screen.say("nsq up: second signal; killing all processes", "red")
            self.supervisor.kill()
            return
        self.screen.say("nsq up: stopping; Ctrl-C again, a second or more later, to force it", "bold")
        self.interrupted.set()
