"""``nsq demo``: demonstration traffic through a running platform."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from aionsq import ClientError
from aionsq.tools.platform_hint import with_hint
from nsqdaemon.command_line import CommandParser
from nsqdaemon.default_ports import default_ports
from nsqplatform.console.nsq.options import address
from nsqplatform.console.nsq.ports import Address
from nsqplatform.console.nsq.traffic import Counts, Finished, Traffic

REFRESH_SECONDS = 1.0
LINE_SECONDS = 10.0
"""Interval of status lines if the output is not a terminal."""


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and below a million")
    return value


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq demo",
        description="Traffic of a small shop: fast and slow consumers, retried failures, messages that die, deferred "
        "messages, an ephemeral channel, and one channel whose backlog grows. Ctrl-C ends it.",
        examples=[
            ("nsq demo", "200 messages a second, until Ctrl-C"),
            ("nsq demo --rate 1000 --duration 60", "1,000 a second, for a minute"),
        ],
    )
    made.add_argument("--rate", type=positive, default=200.0, metavar="N", help="messages a second (%(default)g)")
    made.add_argument("--duration", type=positive, metavar="SECONDS", help="end after this time")
    made.add_argument(
        "--latencies", type=Path, metavar="FILE", help="write finished_at_us,topic,channel,latency_ns of every message"
    )
    made.add_argument(
        "--nsqd-tcp-address",
        type=address,
        action="append",
        metavar="HOST:PORT",
        help="a broker to publish to and to consume from (127.0.0.1:4150); repeatable",
    )
    made.add_argument(
        "--nsqd-http-address",
        type=address,
        action="append",
        metavar="HOST:PORT",
        help="a broker's HTTP address (127.0.0.1:4151, unless --nsqd-tcp-address is given); repeatable. While the "
        "command runs, a policy lets messages die there",
    )
    made.add_argument(
        "--lookupd-http-address",
        type=address,
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a registry from which consumers get the brokers instead; repeatable",
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Run until ``--duration`` is over or a signal. Exit 1 if no broker answers."""
    options = parser().parse_args(argv)
    ports = default_ports()
    brokers: list[Address] = options.nsqd_tcp_address or [Address("127.0.0.1", ports.nsqd_tcp)]
    over_http: list[Address] = options.nsqd_http_address or []
    if not options.nsqd_http_address and not options.nsqd_tcp_address:
        over_http = [Address("127.0.0.1", ports.nsqd_http)]
    try:
        with latency_file(options.latencies) as finished:
            traffic = Traffic(
                rate=options.rate,
                nsqd_tcp_addresses=[str(broker.reachable) for broker in brokers],
                lookupd_http_addresses=[str(each.reachable) for each in options.lookupd_http_address],
                nsqd_http_addresses=[str(each.reachable) for each in over_http],
                finished=finished,
            )
            asyncio.run(run(traffic, options.duration))
    except ClientError as error:
        print(f"nsq demo: {with_hint(str(error))}; --nsqd-tcp-address names another broker", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"nsq demo: {error}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def latency_file(path: Path | None) -> Iterator[Finished | None]:
    """A function that writes each finished message to the file; None without a path. Raises OSError."""
    if path is None:
        yield None
        return
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["finished_at_us", "topic", "channel", "latency_ns"])

        failures: list[OSError] = []

        def finished(topic: str, channel: str, latency_ns: int) -> None:
            if failures:  # the disk is full
                return
            try:
                writer.writerow([time.time_ns() // 1000, topic, channel, latency_ns])
            except OSError as error:
                failures.append(error)

        yield finished
        if failures:
            raise failures[0]


async def run(traffic: Traffic, duration_s: float | None) -> None:
    """Run the traffic and show the status until the time is over or a signal arrives. Raises ConnectFailed."""
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, interrupted.set)
    await traffic.start()
    if traffic.nothing_dies:
        print(f"nsq demo: no message will die: {traffic.nothing_dies}", file=sys.stderr)
    showing = asyncio.create_task(show(traffic.counts))
    try:
        async with asyncio.timeout(duration_s):
            await interrupted.wait()
    except TimeoutError:
        pass
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        await traffic.stop()
    Console(highlight=False, soft_wrap=True).print(status(traffic.counts, None, 0.0))


async def show(counts: Counts) -> None:
    """Show the status: on a terminal as one line that is updated every second, otherwise as lines at intervals."""
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    last, last_at = Counts(), time.monotonic()
    pause = REFRESH_SECONDS if console.is_terminal else LINE_SECONDS
    with (
        Live(console=console, auto_refresh=False, transient=True)
        if console.is_terminal
        else PlainStatus(console) as live
    ):
        while True:
            await asyncio.sleep(pause)
            now = time.monotonic()
            live.update(status(counts, last, now - last_at), refresh=True)
            last, last_at = Counts(published=counts.published, finished=counts.finished), now


class PlainStatus:
    """Replaces rich's Live if the output is not a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> PlainStatus:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, line: Text, *, refresh: bool) -> None:
        self._console.print(line)


def status(counts: Counts, last: Counts | None, seconds: float) -> Text:
    """``published 1,204 (198/s), finished …``; with rates since ``last`` if given."""

    def counted(verb: str, now: int, then: int | None) -> str:
        rate = f" ({(now - then) / seconds:,.0f}/s)" if then is not None and seconds > 0 else ""
        return f"{verb} {now:,}{rate}"

    parts = [
        counted("published", counts.published, last.published if last else None),
        counted("finished", counts.finished, last.finished if last else None),
        f"requeued {counts.requeued:,}",
        f"deferred {counts.deferred:,}",
        *(f"{name} behind by {max(0, behind):,}" for name, behind in counts.behind.items()),
    ]
    line = Text(", ".join(parts))
    if counts.refused:
        line.append(f", not published {counts.refused:,}: {counts.last_refusal}", style="red")
    return line
