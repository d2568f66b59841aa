"""The child process that pushes a daemon's metrics: ``python -m nsqdaemon.otlp.child ENDPOINT [NAME=VALUE …]``.

Reads ``size u32, big-endian | text`` from standard input until its end. After each push, it writes a line: the reason
of the failure, or an empty line. The arguments are the resource's attributes.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from nsqdaemon.otlp import SIZE
from nsqdaemon.otlp.exporter import Exporter


def main(arguments: Sequence[str]) -> None:
    """Push until standard input ends, which happens when the daemon ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which ends this process
    endpoint, *attributes = arguments
    exporter = Exporter(endpoint, dict(pair.split("=", 1) for pair in attributes))
    read = sys.stdin.buffer.read
    while len(head := read(SIZE.size)) == SIZE.size:
        (size,) = SIZE.unpack(head)
        text = read(size)
        if len(text) < size:
            return
        print(exporter.export(text.decode()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
