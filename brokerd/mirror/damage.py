"""How a follower checks what it has written: commit records against the bytes of their logs, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from brokerd.file_header import HEADER_BYTES, data_start
from brokerd.kernel.commit import FIELDS, RECORD_BYTES, is_sound
from brokerd.mirror.actions import NEW_CHECKPOINT, Rename, Write
from brokerd.mirror.errors import MirrorDamaged

_INDEX: Final = ".idx"
_LOG: Final = ".log"
_DIGEST_BYTES: Final = 16
_READ_BYTES: Final = 1024 * 1024

ReadFile = Callable[[str, int, int], bytes]
"""Returns the bytes ``[start, end)`` of a file of the follower, or fewer if the file is shorter."""


def check_commits(write: Write, read: ReadFile) -> None:
    """Check the commit records that this write has completed. Raises MirrorDamaged, which names the log."""
    if not write.path.endswith(_INDEX):
        return
    before = (write.offset - HEADER_BYTES) % RECORD_BYTES if write.offset > HEADER_BYTES else 0
    start, data = write.offset - before, write.data
    if before:  # the first record is divided: a long write comes in several parts
        data = read(write.path, start, write.offset) + bytes(data)
    log = write.path.removesuffix(_INDEX) + _LOG
    for at in range(max(0, HEADER_BYTES - start), len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        record = bytes(data[at : at + RECORD_BYTES])
        if any(record):
            _check(record, log, read)


def _check(record: bytes, log: str, read: ReadFile) -> None:
    first_seq, end, _, data_hash, messages, _, length = FIELDS.unpack_from(record)
    if not is_sound(record):
        raise MirrorDamaged(f"a commit record of {log} is damaged")
    if messages and xxh3_64_intdigest(read(log, end - length, end)) != data_hash:
        raise MirrorDamaged(
            f"{log} is damaged: the messages from number {first_seq} on do not match their commit record"
        )


def check_checkpoint(rename: Rename, read: ReadFile) -> None:
    """Check the new checkpoint, before it is renamed. Raises MirrorDamaged."""
    if rename.path != NEW_CHECKPOINT:
        return
    data = bytearray()
    while part := read(NEW_CHECKPOINT, len(data), len(data) + _READ_BYTES):
        data += part
    start = data_start(bytes(data[:HEADER_BYTES]))
    digest, contents = data[start : start + _DIGEST_BYTES], data[start + _DIGEST_BYTES + 1 :]
    if digest != xxh3_64_hexdigest(contents).encode():
        raise MirrorDamaged("a new checkpoint is damaged: its checksum does not match")
