from collections.abc import Sequence

from brokerd.kernel.frames import Buffer
from nsqwire.scan import Input

def append_messages(
    log: Buffer,
    offset: int,
    messages: Buffer,
    count: int,
    timestamp: int,
    id_head: bytes,
    first_seq: int,
    gap: int = 0,
) -> int: ...
def append_batches(
    log: Buffer,
    offset: int,
    commands: Buffer,
    count: int,
    timestamp: int,
    id_head: bytes,
    first_seq: int,
    gap: int,
) -> int: ...
def append_bodies(
    log: Buffer, offset: int, bodies: Sequence[Buffer], timestamp: int, id_head: bytes, first_seq: int
) -> int: ...
def append_commands(
    commands: Input,
    nbytes: int,
    line: bytes,
    max_size: int,
    max_body: int,
    log: Buffer,
    offset: int,
    end: int,
    id_head: bytes,
    first_seq: int,
    timestamp: int,
    index: Buffer,
    index_offset: int,
) -> tuple[int, int, int]: ...
def fin_run(buffer: Input, start: int, end: int) -> int: ...
def nop_run(buffer: Input, start: int, end: int) -> int: ...
def pub_run(buffer: Input, start: int, end: int, max_size: int) -> tuple[int, int, int]: ...
def mpub_run(buffer: Input, start: int, end: int, max_size: int, max_body: int) -> tuple[int, int, int, int]: ...
def scan_messages(
    buffer: bytes | Input, offset: int, end: int, remaining: int, max_size: int
) -> tuple[int, int, int, int]: ...

class Window:
    head: int
    @property
    def floor(self) -> int: ...
    @property
    def in_flight_count(self) -> int: ...
    def __init__(self, first_seq: int) -> None: ...
    def deliver(
        self, log: Buffer, offset: int, end: int, max_count: int, max_bytes: int, client: int
    ) -> tuple[int, int]: ...
    def skip(self, count: int) -> None: ...
    def finish(
        self, lines: Buffer, count: int, id_head: bytes, client: int, now_ns: int
    ) -> tuple[list[tuple[int, int]], list[bytes]]: ...
    def take(self, first_seq: int, count: int, client: int) -> list[int]: ...
    def holder(self, seq: int) -> int: ...
    def holders(self, max_seq: int) -> list[tuple[int, int]]: ...
    def clear(self, head: int) -> None: ...
    def record(self, latency_ns: int) -> None: ...
    def latencies(self) -> tuple[int, dict[int, int]]: ...
