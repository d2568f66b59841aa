from brokerd.kernel.frames import Buffer
from nsqwire.scan import Input
from nsqwire.units import Nanoseconds

def dpub_run(buffer: Input, start: int, end: int, max_size: int, max_ms: int) -> tuple[int, int, int, int]: ...
def append_deferred(
    log: Buffer,
    offset: int,
    commands: Buffer,
    count: int,
    timestamp: Nanoseconds,
    id_head: bytes,
    first_seq: int,
    segment_offset: int,
) -> tuple[bytes, bytes]: ...
