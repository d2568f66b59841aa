"""The rows for connections with TLS and with deflate."""

from __future__ import annotations

import datetime
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from bench import load, wire
from bench.links import Layer
from bench.measure import PATIENCE_SECONDS, TOPIC, Measured, Options, Row, check_counts, create_work, drain, measure
from bench.processes import LoadProcesses
from bench.server import brokerd


@contextmanager
def certificate() -> Iterator[tuple[str, str]]:
    """Yield the flags for a temporary certificate and key."""
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    issued = trustme.CA().issue_cert("127.0.0.1", not_after=tomorrow)
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        pem = Path(directory) / "server.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(pem))
        yield f"--tls-cert={pem}", f"--tls-key={pem}"


def text_command(options: Options) -> bytes:
    """Return an MPUB of hex digits, which deflate compresses to about half their size, like most payloads."""
    dice = random.Random(1)
    bodies = [dice.randbytes(-(-options.size // 2)).hex().encode()[: options.size] for _ in range(options.batch)]
    return wire.mpub(TOPIC, bodies)


def layers(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure ``pub`` and ``sub`` through each layer; ``sub`` drains the messages that ``pub`` published."""
    command = text_command(options)
    with certificate() as flags:
        for layer in Layer:
            published, drained = through(layer, command, options, processes, flags)
            yield published.row(f"pub {layer}", f"as pub, through {layer.name}", options)
            yield drained.row(f"sub {layer}", f"as sub, through {layer.name}", options)


def through(
    layer: Layer, command: bytes, options: Options, processes: LoadProcesses, flags: tuple[str, str]
) -> tuple[Measured, Measured]:
    with brokerd(options.cores, options.data_path, *flags, twin=options.twin) as server:
        create_work(server)
        published = measure(
            server,
            lambda: processes.run(load.publish_through, server.tcp, layer, command, options.batch, options.seconds),
        )
        count = published.load.messages
        drained = measure(server, lambda: drain(options, processes, server.tcp, count, PATIENCE_SECONDS, layer))
        check_counts(server, count, drained.load.messages)
        return published, drained
