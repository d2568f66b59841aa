"""Deletes removed segments and frees their space in a thread: it takes the system milliseconds if they are large."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from brokerd.background import pieces, use_batch_scheduling

logger = logging.getLogger("brokerd")

# One thread for all: starting a thread takes as long as removing a segment's files.
_thread = ThreadPoolExecutor(1, "free segment", initializer=use_batch_scheduling)


def free_in_a_thread(fd: int, nbytes: int, *maps: mmap.mmap | None) -> Future[None]:
    """Close the descriptor of a deleted segment (-1: none), whose file has ``nbytes``, and the maps of its files.

    A map with slices that wait to be sent is closed with the last of them.
    """
    try:
        return _thread.submit(_free, fd, nbytes, [map_ for map_ in maps if map_ is not None])
    except RuntimeError:  # the thread cannot be started for lack of memory: the next call starts it for both
        return Future()


def delete_in_a_thread(delete: Callable[[], int], nbytes: int, *maps: mmap.mmap | None) -> Future[None]:
    """Call ``delete`` in the thread, and free the file of the descriptor that it returns, as ``free_in_a_thread`` does.

    If ``delete`` fails, the file stays until the next start.
    """

    def work() -> None:
        fd = -1
        try:
            fd = delete()
        except OSError as error:
            logger.error("cannot delete a segment: %s", error)
        _free(fd, nbytes, [map_ for map_ in maps if map_ is not None])

    try:
        return _thread.submit(work)
    except RuntimeError:  # as above
        return Future()


def close_map(map_: mmap.mmap) -> bool:
    """Close a map. False if it has slices; it is closed with the last of them."""
    with suppress(BufferError):
        map_.close()
        return True
    return False


def _free(fd: int, nbytes: int, maps: list[mmap.mmap]) -> None:
    if fd < 0:
        for map_ in maps:
            close_map(map_)
        return
    try:
        for map_ in maps:
            for start, end in pieces(0, len(map_)):
                map_.madvise(mmap.MADV_DONTNEED, start, end - start)  # the bytes stay in the file
        closed = [close_map(map_) for map_ in maps]
        if all(closed):  # in the map of a truncated file, a slice could not be read
            for _, end in pieces(0, nbytes):
                os.ftruncate(fd, nbytes - end)
    finally:
        os.close(fd)
