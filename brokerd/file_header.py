"""The header of a file in a data path: its kind, the version of its format, and the first release that reads it.

Layout, one line of text of 48 bytes, padded with spaces:
``kind, 16 | format, 4, right-aligned | space | release, 9 | space | check, 16 hex digits | newline``.
``check`` is XXH3-64 of the 31 bytes before it. The layout never changes, so that every release can read the headers of
later ones. A header with one wrong bit is corrected, so that damage never looks like another format.
Format 0 is that of files without a header, which were written before there were versions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from xxhash import xxh3_64_hexdigest

HEADER_BYTES: Final = 48
JSON_MEMBER: Final = b'{"header":"'
"""The bytes before the header in a JSON file. The header has no newline there."""
_CHECK_AT: Final = 31
_TEXT: Final = bytes(range(32, 127)) + b"\n"


class Header(NamedTuple):
    """The contents of a header. ``release`` is the first release that reads the format."""

    kind: str
    format: int
    release: str

    def to_bytes(self) -> bytes:
        """The bytes of the header."""
        described = f"{self.kind:<16}{self.format:>4} {self.release:<9} ".encode()
        return described + xxh3_64_hexdigest(described).encode() + b"\n"

    @property
    def is_supported(self) -> bool:
        """True if this release reads files with this header."""
        return any(self.kind == known.kind and self.format <= known.format for known in KNOWN)


# The formats that are written. A change that this code cannot read gets the next format number, and its release.
SEGMENT: Final = Header("nsqd segment", 1, "0.1.0")
INDEX: Final = Header("nsqd index", 1, "0.1.0")
HEADERS: Final = Header("nsqd headers", 1, "0.1.0")
# Format 2 has the failed deliveries of messages and dead messages.
JOURNAL: Final = Header("nsqd journal", 2, "0.1.0")
CHECKPOINT: Final = Header("nsqd checkpoint", 2, "0.1.0")
STATS: Final = Header("nsqd stats", 1, "0.1.0")
KNOWN: Final = (SEGMENT, INDEX, HEADERS, JOURNAL, CHECKPOINT, STATS)
WRITTEN: Final = {known.kind: known.to_bytes() for known in KNOWN}
"""The header of each kind of file, as bytes."""


class UnsupportedFormat(Exception):
    """This release cannot read a file's format; the text has the file, the format and the first release that can."""

    def __init__(self, path: Path, found: Header) -> None:
        super().__init__(
            f"{path} has format {found.format} of a file of kind {found.kind!r}, which this release cannot read; "
            f"release {found.release} and later can. Nothing was changed"
        )


def read_header(data: bytes) -> Header | None:
    """The header at the beginning of ``data``, with one wrong bit corrected if needed; None if there is none."""
    found = data[:HEADER_BYTES]
    if len(found) < HEADER_BYTES:
        return None
    header = _parse(found)
    if header is not None or len(found.translate(None, _TEXT)) > 1:
        return header
    as_number = int.from_bytes(found)
    corrected = ((as_number ^ 1 << bit).to_bytes(HEADER_BYTES) for bit in range(8 * HEADER_BYTES))
    return next((header for each in corrected if (header := _parse(each)) is not None), None)


def is_intact(data: bytes) -> bool:
    """Return whether ``data`` begins with a header without a wrong bit."""
    return len(data) >= HEADER_BYTES and _parse(data[:HEADER_BYTES]) is not None


def data_start(data: bytes) -> int:
    """The offset of the data after the header; 0 for format 0.

    Zeros count as a header: it was lost by damage, or by a power loss before it was synced.
    """
    head = data[:HEADER_BYTES]
    return HEADER_BYTES if not any(head) or read_header(head) is not None else 0


def _parse(data: bytes) -> Header | None:
    described, check = data[:_CHECK_AT], data[_CHECK_AT:]
    if check != xxh3_64_hexdigest(described).encode() + b"\n":
        return None
    try:
        text = described.decode("ascii")
        return Header(text[:16].rstrip(), int(text[16:20]), text[21:30].rstrip())
    except ValueError:
        return None
