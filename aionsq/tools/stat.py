"""``nsq stat``: a channel's rates and depths over all nodes, one line per interval.

NSQ's nsq_stat, with its flags and columns. Differences: rates are divided by the time that passed, a node's restart
does not make rates negative, and a node that does not answer is reported and left out instead of ending the tool.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from aionsq.tools.flags import (
    LOOKUPDS_VARIABLE,
    ToolFailed,
    ToolFlags,
    WrongUsage,
    check_timeouts,
    lookupds_of_environment,
    node_tls,
)
from aionsq.tools.names import check_names
from aionsq.tools.process import Run, Tool
from nsqcluster import Client, RequestFailed, reads
from nsqcluster.addresses import base_url
from nsqcluster.discovery import nodes_of
from nsqcluster.errors import detail_of
from nsqcluster.pairs import distinct
from nsqdaemon.node_http import HTTPTimeouts, NodeTLSSettings
from nsqdaemon.settings import setting
from nsqwire.units import Seconds

NAME = "nsq_stat"

HEADER = """\
------rate------+----------------depth----------------+--------------metadata---------------
ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients"""
HEADER_EVERY = 25


@dataclass(frozen=True, kw_only=True)
class StatFlags(HTTPTimeouts, NodeTLSSettings, ToolFlags):
    """Flags of nsq_stat."""

    topic: str = setting("", "Topic of the channel.")
    channel: str = setting("", "Channel whose statistics are printed.")
    interval: timedelta = setting("2s", "Time between lines.")
    count: int = setting(sys.maxsize, "Number of lines to print.", shown="endless")
    nsqd_http_address: tuple[str, ...] = setting((), "nsqd to query, host:port.")
    lookupd_http_address: tuple[str, ...] = setting(
        (), f"nsqlookupd that lists the nsqds, host:port (default: {LOOKUPDS_VARIABLE})."
    )


@dataclass(frozen=True)
class Sample:
    """One node's counters; ``read_at`` is in seconds of a monotonic clock."""

    read_at: Seconds
    depth: int
    backend_depth: int
    in_flight_count: int
    deferred_count: int
    requeue_count: int
    timeout_count: int
    message_count: int
    client_count: int


def row(before: Mapping[str, Sample], now: Mapping[str, Sample]) -> str:
    """Return one line: sums over the nodes in ``now``, and rates over the nodes that are also in ``before``."""
    ingress = egress = 0.0
    for address, sample in now.items():
        if address not in before:
            continue
        earlier = before[address]
        elapsed = sample.read_at - earlier.read_at
        if sample.message_count < earlier.message_count:  # the node was restarted and counts from 0
            earlier = Sample(earlier.read_at, 0, 0, 0, 0, 0, 0, 0, 0)
        published = sample.message_count - earlier.message_count
        ingress += published / elapsed
        egress += (published - (sample.depth - earlier.depth)) / elapsed

    def total(field: str) -> int:
        return sum(getattr(sample, field) for sample in now.values())

    depth, disk = total("depth"), total("backend_depth")
    return (
        f"{int(ingress):7d} {int(egress):7d} | {depth:7d} {depth - disk:7d} {disk:7d} "
        f"{total('in_flight_count'):5d} {total('deferred_count'):5d} | {total('requeue_count'):7d} "
        f"{total('timeout_count'):7d} {total('message_count'):12d} {total('client_count'):7d}"
    )


async def stat(flags: StatFlags, run: Run) -> int:
    """Print until stopped or ``count`` lines were printed. Raises ToolFailed."""
    _check(flags)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, run.stop.set)
    lookupds = () if flags.nsqd_http_address else flags.lookupd_http_address
    if not flags.nsqd_http_address and not lookupds:
        lookupds = lookupds_of_environment(local=run.is_subcommand)
        if not lookupds:
            raise WrongUsage("--nsqd-http-address or --lookupd-http-address required")
    async with Client(
        tls=node_tls(flags),
        timeout_s=flags.http_client_request_timeout.total_seconds(),
        connect_timeout_s=flags.http_client_connect_timeout.total_seconds(),
    ) as client:
        watch = Watch(flags, lookupds, run, client)
        before = await watch.sample()
        if not before:
            raise ToolFailed(watch.nothing_found())
        printed = 0
        while not await _stopped_within(run, flags.interval):
            now = await watch.sample()
            if now:
                if printed % HEADER_EVERY == 0:
                    print(HEADER)
                print(row(before, now), flush=True)
                printed += 1
                if printed == flags.count:
                    break
            elif flags.count < sys.maxsize:  # a script expects this number of lines
                raise ToolFailed(watch.nothing_found())
            before = {**before, **now}
    return 0


async def _stopped_within(run: Run, interval: timedelta) -> bool:
    try:
        async with asyncio.timeout(interval.total_seconds()):
            await run.stop.wait()
    except TimeoutError:
        return False
    return True


def _check(flags: StatFlags) -> None:
    if not flags.topic or not flags.channel:
        raise WrongUsage("--topic and --channel are required")
    check_names("topic", flags.topic)
    check_names("channel", flags.channel)
    if flags.interval <= timedelta(0):
        raise WrongUsage("--interval should be positive")
    check_timeouts(flags)
    if flags.count <= 0:
        raise WrongUsage("--count should be positive")
    if flags.nsqd_http_address and flags.lookupd_http_address:
        raise WrongUsage("use --nsqd-http-address or --lookupd-http-address not both")
    for address in (*flags.nsqd_http_address, *flags.lookupd_http_address):
        if address.startswith("http"):
            raise WrongUsage(f"address should not contain scheme: {address}")
        try:
            base_url(address)
        except ValueError as error:
            raise WrongUsage(str(error)) from None


class Watch:
    """Reads the channel from all its nodes, and reports failures."""

    def __init__(self, flags: StatFlags, lookupds: Sequence[str], run: Run, client: Client) -> None:
        self._flags = flags
        self._lookupds = lookupds
        self._run = run
        self._client = client
        self._errors: dict[str, str] = {}

    async def sample(self) -> dict[str, Sample]:
        """Read the channel from every node that has it. Reports each server's failure once, until it changes."""
        errors: dict[str, str] = {}
        addresses = await self._addresses(errors)
        topic, channel = self._flags.topic, self._flags.channel
        stats = await reads.stats(self._client, {each: each for each in addresses}, topic=topic, channel=channel)
        errors.update({name: _line(error) for name, error in stats.failures.items()})
        read_at = time.monotonic()
        samples = {
            name: Sample(
                read_at,
                *(found.depth, found.backend_depth, found.in_flight_count, found.deferred_count, found.requeue_count),
                *(found.timeout_count, found.message_count, found.client_count),
            )
            for name, answer in stats.found.items()
            if (found := answer.channel(topic, channel)) is not None
        }
        for name, text in errors.items():
            if self._errors.get(name) != text:
                self._run.note(text)
        self._errors = errors
        return samples

    def nothing_found(self) -> str:
        """Return the reason why the last sample was empty."""
        if self._errors:
            return "nobody answers"
        return f"failed to find channel({self._flags.channel}) in stats metadata for topic({self._flags.topic})"

    async def _addresses(self, errors: dict[str, str]) -> Sequence[str]:
        if self._flags.nsqd_http_address:
            return [*await distinct(self._client, {each: each for each in self._flags.nsqd_http_address})]
        answers = await reads.lookups(self._client, self._lookupds, self._flags.topic)
        errors.update({name: _line(error) for name, error in answers.errors.items()})
        return [*nodes_of(answers.found)]


def _line(error: RequestFailed) -> str:
    return f"{error.url.partition('?')[0]}: {detail_of(error)}"


main = Tool(
    NAME,
    "stat",
    StatFlags,
    stat,
    "Print a channel's rates and depths over all nodes, one line per interval.",
    examples=[
        ("nsq stat --topic orders --channel billing", "every two seconds"),
        ("nsq stat --topic orders --channel billing --count 1", "once"),
    ],
)
