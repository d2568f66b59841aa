"""Digests of the contents of an hour of the archive, independent of how they are divided into files.

An hour's digest is the sum, modulo 2**64, of its files' digests. A file's digest is a hash of its name and size; names
are random, so a new file has a new digest. A compacted file has the digest of the files that it replaces. Its name
contains the digest, ``compact-<digest, 16 hex digits>-<random>.parquet``; its metadata contains the names of these
files, under REPLACES_KEY. Therefore neither compaction nor the removal of replaced files changes an hour's digest, and
a listing of the names is nearly always enough to compute it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from nsqanalytics.files import File, Folder

REPLACES_KEY = b"nsq.replaces"
_MODULUS = 1 << 64
_COMPACTED = re.compile(r"compact-([0-9a-f]{16})-[0-9a-f]+\.parquet")
_COMPACTED_WITHOUT_DIGEST = re.compile(r"compact-[0-9a-f]{16}\.parquet")
"""Names of compacted files in older archives, without a digest."""


def is_compacted(file: File) -> bool:
    """Return whether the file replaces several files of the collector."""
    return bool(_COMPACTED.fullmatch(file.name) or _COMPACTED_WITHOUT_DIGEST.fullmatch(file.name))


def compacted_name(files: Iterable[File]) -> str:
    """Return a name for the file that replaces these."""
    return f"compact-{digest_of(files):016x}-{secrets.token_hex(4)}.parquet"


def digest_of(files: Iterable[File]) -> int:
    """Return the digest of these files, none of which may replace another of them."""
    return sum(_digest(file) for file in files) % _MODULUS


def replaced_by(folder: Folder, file: File) -> frozenset[str]:
    """Return the names of the files that a compacted file replaces.

    Raises OSError or ArrowInvalid if it cannot be read.
    """
    metadata = pq.read_metadata(file.path, filesystem=folder.system).metadata or {}
    return frozenset(filter(None, metadata.get(REPLACES_KEY, b"").decode().split(",")))


def current(folder: Folder, files: Sequence[File]) -> list[File]:
    """Return the files of an hour that no other file of the hour replaces."""
    compacted = [file for file in files if is_compacted(file)]
    if not compacted or len(files) == 1:
        return list(files)
    if len(compacted) == 1 and digest_of(compacted) == digest_of(f for f in files if f is not compacted[0]):
        return compacted  # the other files are exactly those that it replaced: its footer need not be read
    replaced = frozenset[str]()
    for file in compacted:
        try:
            replaced |= replaced_by(folder, file)
        except (pa.ArrowInvalid, OSError):  # damaged: it replaces nothing
            continue
    return [file for file in files if file.name not in replaced]


def _digest(file: File) -> int:
    if named := _COMPACTED.fullmatch(file.name):
        return int(named[1], 16)
    return int.from_bytes(hashlib.blake2b(f"{file.name}:{file.size}".encode(), digest_size=8).digest())
