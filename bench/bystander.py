"""The rows for a client's response times while other clients keep a broker or the registry busy."""

from __future__ import annotations

import socket
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench import disturbances, load, paced, registry, wire
from bench.contenders import Contenders, contenders, not_compared, registries
from bench.errors import BenchError
from bench.links import SILENCE_SECONDS
from bench.measure import Options, Row, Waits, create_work
from bench.paced import Talk
from bench.processes import LoadProcesses, started_on
from bench.server import Server

RATE = 500
"""Commands per second of the bystander. A stall of 10 ms delays five of them."""
SETTLE_SECONDS = 1.0
"""How long the client continues after a disturbance: the server may answer before it has done all the work."""
CONSUMERS = 50
SET_ASIDE = 1_000_000
TOPICS_OF_A_PEER = 100_000
NOP_BYTES = 1_000_000_000
BYSTANDERS_TOPIC = "bystander"

Disturbance = Callable[[], None]
Scene = Callable[[Options, LoadProcesses, Server, ExitStack], Disturbance]
"""Prepares a server while the stack is open, and returns the disturbance to run."""


@dataclass(frozen=True)
class Seen:
    """The bystander's response times, and the duration and processor time of the disturbance."""

    waits: list[Waits]
    seconds: float
    processor_seconds: float


def full_consumers(
    options: Options, processes: LoadProcesses, server: Server, stack: ExitStack
) -> disturbances.FullConsumers:
    """Open consumers of one channel, each with as many messages in flight as RDY allows."""
    create_work(server)
    consumers = min(CONSUMERS, options.connections)
    commands = -(-consumers * disturbances.RDY_COUNT // options.batch)
    processes.run(load.publish, server.tcp, options.batch_command, options.batch, 60.0, commands)
    return stack.enter_context(disturbances.full_consumers(server.tcp, consumers, options.size))


def requeueing(options: Options, processes: LoadProcesses, server: Server, stack: ExitStack) -> Disturbance:
    return full_consumers(options, processes, server, stack).requeue


def touching(options: Options, processes: LoadProcesses, server: Server, stack: ExitStack) -> Disturbance:
    return full_consumers(options, processes, server, stack).touch


def leaving(options: Options, processes: LoadProcesses, server: Server, stack: ExitStack) -> Disturbance:
    return full_consumers(options, processes, server, stack).leave


def _nop_bytes(options: Options) -> int:
    return min(NOP_BYTES, 100 * options.messages)


def inflating(options: Options, processes: LoadProcesses, server: Server, stack: ExitStack) -> Disturbance:
    connections = min(CONSUMERS, options.connections)
    return stack.enter_context(disturbances.deflated_nops(server.tcp, connections, _nop_bytes(options))).send


def deferring(options: Options, processes: LoadProcesses, server: Server, stack: ExitStack) -> Disturbance:
    create_work(server)
    set_aside = min(SET_ASIDE, options.messages)
    deferrals = disturbances.Deferrals(stack.enter_context(disturbances.publisher(server.tcp)), server.data_path)
    deferrals.publish(set_aside)
    return lambda: deferrals.publish_until_checkpoint(set_aside)


def disconnecting(options: Options, processes: LoadProcesses, server: Server, stack: ExitStack) -> Disturbance:
    names = [f"topic{i:06}" for i in range(min(TOPICS_OF_A_PEER, 100 * options.topics))]
    peer = ExitStack()
    stack.enter_context(peer)
    registry.Fleet(server.tcp, 1, names, peer).register()
    return peer.close


TO_BROKER = Talk(
    greeting=wire.MAGIC + wire.identify(client_id="bystander", heartbeat_interval=-1),
    greeted=wire.OK,
    command=wire.pub(BYSTANDERS_TOPIC, bytes(16)),
    answer=wire.OK,
)
TO_REGISTRY = Talk(greeting=registry.MAGIC, greeted=b"", command=b"PING\n", answer=registry.OK)

SCENES: dict[str, tuple[str, Scene]] = {
    "req": ("{consumers} consumers × 2,500 REQ 0", requeueing),
    "touch": ("{consumers} consumers × 2,500 TOUCH", touching),
    "leave": ("{consumers} consumers with 2,500 in flight leave", leaving),
    "deflate": ("{consumers} connections send {nop_mb:,} MB of NOPs, deflated to a thousandth", inflating),
    "checkpoint": ("a checkpoint with {set_aside:,} set aside", deferring),
}


def bystander(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Send a PUB (to the registry, a PING) every 2 ms, first alone, then during each disturbance."""
    for name, (what, scene) in SCENES.items():
        shown = what.format(
            consumers=min(CONSUMERS, options.connections),
            set_aside=min(SET_ASIDE, options.messages),
            nop_mb=_nop_bytes(options) // 1_000_000,
        )
        yield beside(name, shown, scene, TO_BROKER, contenders(options), options, processes)
    topics = min(TOPICS_OF_A_PEER, 100 * options.topics)
    what = f"a peer with {topics:,} topics leaves the registry"
    yield beside("registry", what, disconnecting, TO_REGISTRY, registries(options), options, processes)


def beside(
    name: str,
    what: str,
    scene: Scene,
    talk: Talk,
    servers: Contenders,
    options: Options,
    processes: LoadProcesses,
) -> Row:
    waits: list[Waits] = []
    also: dict[str, float] = {}
    for server_name, started in servers.items():
        with started() as server, ExitStack() as stack:
            disturbance = scene(options, processes, server, stack)
            seen = disturbed(server_name, server, talk, disturbance, options, processes)
        waits += seen.waits
        also[f"{server_name}, processor s"] = seen.processor_seconds
        also[f"{server_name}, s until answered"] = seen.seconds
    what += not_compared(options)
    return Row(name=f"bystander {name}", what=what, twin=options.twin, size=0, also=also, waits=waits)


def disturbed(
    name: str, server: Server, talk: Talk, disturbance: Disturbance, options: Options, processes: LoadProcesses
) -> Seen:
    with control_connection() as (address, accept):
        bystanding = processes.start(paced.until_stopped, server.tcp, talk, RATE, address)
        accept()
        time.sleep(options.seconds)
    quiet = Waits.of(name, "quiet", bystanding.result())
    with control_connection() as (address, accept):
        bystanding = processes.start(paced.until_stopped, server.tcp, talk, RATE, address)
        accept()
        before, begun = server.processor_seconds(), time.perf_counter()
        with started_on(options.cores.load):  # a disturbance is load, too
            disturbance()
        seconds = time.perf_counter() - begun
        time.sleep(SETTLE_SECONDS)
    waits: array[int] = bystanding.result()
    spent = server.processor_seconds() - before
    return Seen([quiet, Waits.of(name, "meanwhile", waits, quiet)], seconds, spent)


@contextmanager
def control_connection() -> Iterator[tuple[tuple[str, int], Callable[[], None]]]:
    """Yield an address to which the bystander connects, and a function that waits for that connection.

    The bystander runs until the connection is closed at the end of the block.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(SILENCE_SECONDS)
        accepted: list[socket.socket] = []

        def accept() -> None:
            if not accepted:
                try:
                    accepted.append(listening.accept()[0])
                except TimeoutError:
                    raise BenchError("the bystander did not connect") from None

        try:
            yield listening.getsockname(), accept
        finally:
            accept()
            for sock in accepted:
                sock.close()
