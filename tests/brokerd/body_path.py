"""Prints, as JSON, the path of three message bodies from the socket of their PUB to the socket of a consumer.

A step is ``[file, function]``: the function received the body, in an argument or as a result. The plain kernel is used,
because ``sys.setprofile`` does not see compiled functions. Run by ``test_body_path.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

os.environ["BROKERD_KERNEL"] = "python"

from brokerd.broker import Broker
from brokerd.net.busy_polling import BusyPolling
from brokerd.net.refused_connections import RefusedConnections
from brokerd.net.tcp import Connection, session_limits
from brokerd.settings import BrokerSettings
from nsqdaemon.input_budget import InputBudget
from nsqwire.read_buffer import SCRATCH_BYTES

ROOT = Path(__file__).resolve().parent.parent.parent
BODY = b"the body whose path is traced"
PUB = b"PUB t\n" + struct.pack(">i", len(BODY)) + BODY
BUFFERS = bytes, bytearray, memoryview


class Transport(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: object) -> None:
        assert isinstance(data, BUFFERS)
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False


def carries(value: object, depth: int = 2) -> bool:
    """Return whether ``value`` is, or contains, a buffer with the body."""
    if isinstance(value, BUFFERS):
        return BODY in bytes(value)
    if depth and isinstance(value, (tuple, list)):
        return any(carries(item, depth - 1) for item in value)
    if depth and type(value).__module__ in ("nsqwire.commands", "brokerd.log.batch"):
        names = [*getattr(value, "__slots__", ()), *getattr(value, "__dict__", ())]
        return any(carries(getattr(value, name, None), depth - 1) for name in names)
    return False


def source(frame: FrameType | None) -> str:
    """The file of ``frame`` below the source tree; empty for other code and for this file."""
    name = "" if frame is None else frame.f_code.co_filename
    is_ours = name.startswith(f"{ROOT}/") and "/site-packages/" not in name and not name.endswith("body_path.py")
    return str(Path(name).relative_to(ROOT)) if is_ours else ""


class Walk:
    """The steps of the body, one for each change of file."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def profile(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event == "call" and any(carries(frame.f_locals.get(name)) for name in code.co_varnames[: code.co_argcount]):
            self._enter(frame)
        elif event == "return" and carries(arg):
            self._enter(frame)
            self._enter(frame.f_back)

    def _enter(self, frame: FrameType | None) -> None:
        if (file := source(frame)) and (not self.steps or self.steps[-1][0] != file):
            assert frame is not None
            if file == "nsqwire/scan.py" and source(frame.f_back).startswith("brokerd/kernel/"):
                return  # the compiled kernel contains these functions
            self.steps.append((file, frame.f_code.co_qualname))


def main(data_path: str) -> None:
    soon: list[Callable[[], None]] = []
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    settings = BrokerSettings(data_path=data_path)
    broker = Broker(settings, now=time.monotonic, call_soon=soon.append, call_at=loop.call_at)
    budget = InputBudget(
        settings.max_unfinished_size, now=time.monotonic, call_later=loop.call_later, released=lambda: None
    )
    scratch = bytearray(SCRATCH_BYTES)

    def connect() -> tuple[Connection, Transport]:
        limits, polling = session_limits(settings), BusyPolling(lambda run: None)
        refused = RefusedConnections()
        connection = Connection(broker, limits, scratch, budget, polling, None, None, refused)
        transport = Transport()
        connection.connection_made(transport)
        connection.restart_heartbeat = lambda: None  # type: ignore[method-assign]
        return connection, transport

    def receive(connection: Connection, data: bytes) -> None:
        scratch[:] = bytes(len(scratch))  # it still contains the previous body
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))

    def run() -> None:
        while soon:
            soon.pop(0)()

    producer, _ = connect()
    consumer, received = connect()
    for connection in (producer, consumer):
        receive(connection, b"  V2")
    receive(consumer, b"SUB t c\nRDY 10\n")
    run()
    walks = []
    for _ in range(3):
        received.written = b""
        walk = Walk()
        sys.setprofile(walk.profile)
        receive(producer, PUB)
        run()
        sys.setprofile(None)
        assert BODY in received.written, "the body was not delivered"
        walks.append(walk.steps)
    print(json.dumps(walks))


if __name__ == "__main__":
    main(sys.argv[1])
