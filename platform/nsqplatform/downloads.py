"""Responses that are streamed as files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

Piece = TypeVar("Piece", str, bytes)


def download(pieces: AsyncIterator[str] | AsyncIterator[bytes], content_type: str, name: str) -> StreamingHttpResponse:
    """A response that browsers save as a file of this name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(pieces, content_type=content_type, headers=headers)


async def read_in_threads(pieces: Iterator[Piece]) -> AsyncIterator[Piece]:
    """Read each piece outside of the event loop. Daphne would collect a plain iterator in memory first."""
    following = sync_to_async(lambda: next(pieces, None))
    while (piece := await following()) is not None:
        yield piece
