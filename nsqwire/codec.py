"""Compression of a connection: one object for both directions, used by the broker and by the client.

``decode`` yields pieces of limited size, so that a small input that inflates to a huge output takes the memory of one
piece only. The caller decides how many pieces to take at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

import cramjam

PIECE_BYTES: Final = 64 * 1024


class StreamBroken(Exception):
    """The received data cannot be decompressed."""


class StreamEnded(Exception):
    """The other side has ended its compressed stream and sends no more."""


class Codec(Protocol):
    """One compression, in both directions."""

    def encode(self, data: bytes | memoryview) -> bytes:
        """Compress so that the other side can decode all of ``data`` at once."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed ``data`` in pieces of 0 to PIECE_BYTES bytes. Take all of them before the next call.

        Raises StreamBroken, StreamEnded.
        """


class Deflate:
    """Raw DEFLATE, RFC 1951, flushed to a byte boundary after each write."""

    def __init__(self, level: int) -> None:
        self._deflate = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
        self._inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)

    def encode(self, data: bytes | memoryview) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def decode(self, data: bytes) -> Iterator[bytes]:
        inflate = self._inflate
        piece = data
        # After a full piece, zlib may have more output even if it has consumed the whole input.
        while data or len(piece) == PIECE_BYTES:
            try:
                piece = inflate.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise StreamBroken(f"deflate: {error}") from None
            data = inflate.unconsumed_tail
            if piece:
                yield piece
            if inflate.eof:
                raise StreamEnded


class Snappy:
    """The Snappy framing format: chunks of ``type u8 | length u24 little-endian | data``, up to 64 KiB of content each.

    Source: https://github.com/google/snappy/blob/main/framing_format.txt
    """

    def __init__(self) -> None:
        self._begun = False
        self._has_identifier = False
        self._rest = b""
        self._skip = 0

    def encode(self, data: bytes | memoryview) -> bytes:
        if not data:
            return b""
        view = memoryview(data)
        chunks: list[bytes | memoryview] = [] if self._begun else [_IDENTIFIER]
        self._begun = True
        for start in range(0, len(view), _WRITTEN_BYTES):
            stream = memoryview(bytes(cramjam.snappy.compress(view[start : start + _WRITTEN_BYTES])))
            chunks.append(stream[len(_IDENTIFIER) :])
        return b"".join(chunks)

    def decode(self, data: bytes) -> Iterator[bytes]:
        data = self._rest + data if self._rest else data
        at = skipped_chunks = 0
        while True:
            skipped = min(self._skip, len(data) - at)
            at += skipped
            self._skip -= skipped
            if len(data) - at < _HEADER_BYTES:
                break
            kind, size = data[at], int.from_bytes(data[at + 1 : at + _HEADER_BYTES], "little")
            if kind in _CONTENT and size > _MAX_CHUNK_BYTES:
                raise StreamBroken(f"snappy: a chunk of {size} bytes")
            if kind >= _FIRST_SKIPPABLE and kind != _IDENTIFIER_KIND:
                self._skip = size
                at += _HEADER_BYTES
                skipped_chunks += 1
                if skipped_chunks % _SKIPPED_AT_ONCE == 0:
                    yield b""  # lets the caller stop here
                continue
            end = at + _HEADER_BYTES + size
            if kind == _IDENTIFIER_KIND:
                if size != len(_IDENTIFIER) - _HEADER_BYTES:
                    raise StreamBroken("snappy: not a stream identifier")
                if len(data) < end:
                    break
                if data[at:end] != _IDENTIFIER:
                    raise StreamBroken("snappy: not a stream identifier")
                self._has_identifier = True
            elif kind not in _CONTENT:
                raise StreamBroken(f"snappy: a chunk of unknown type {kind:#04x}")
            elif not self._has_identifier:
                raise StreamBroken("snappy: no stream identifier")
            elif len(data) < end:
                break
            else:
                yield self._chunk(data[at:end])
            at = end
        self._rest = data[at:]

    def _chunk(self, chunk: bytes) -> bytes:
        """Decompress one chunk. Raises StreamBroken, also if its checksum is wrong."""
        try:
            size = cramjam.snappy.decompress_into(_IDENTIFIER + chunk, _content)
        except cramjam.DecompressionError as error:
            raise StreamBroken(f"snappy: {error}") from None
        return bytes(memoryview(_content)[:size])


_content: Final = bytearray(PIECE_BYTES)
"""Buffer into which chunks of all connections are decompressed; the content is copied out at once."""
_WRITTEN_BYTES: Final = 16 * 1024
"""Bytes of content in each chunk that is sent, the size of nsqd's buffer. pynsq fails if a read ends in a chunk."""
_HEADER_BYTES: Final = 4
_IDENTIFIER: Final = b"\xff\x06\x00\x00sNaPpY"
_IDENTIFIER_KIND: Final = 0xFF
_CONTENT: Final = (0x00, 0x01)  # compressed, uncompressed
_FIRST_SKIPPABLE: Final = 0x80
_SKIPPED_AT_ONCE: Final = 1024  # chunks without content, of at least four bytes each
_MAX_CHUNK_BYTES: Final = 4 + 32 + PIECE_BYTES + PIECE_BYTES // 6  # checksum, and snappy's largest compressed size
