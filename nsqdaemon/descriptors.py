"""The standard descriptors of a process, and its limit of open descriptors."""

from __future__ import annotations

import errno
import os
import resource
import sys

FILES_LEAVE = 1024
"""Files leave a quarter of all descriptors, up to this many, to connections and to what needs one for a moment."""
CONNECTIONS_LEAVE = 64
"""Connections leave an eighth of all descriptors, up to this many, to what needs one for a moment, such as a sync."""

PASSED_ON_LEAVE = 128
"""Connections that a follower passes on, two descriptors each, leave half of all, up to this many, to its files."""


def occupy_standard_descriptors() -> None:
    """Open the null device in place of a closed standard input, output or error. Call it before opening anything.

    Some supervisors and scripts start processes with closed streams, which Python has as None. Sockets would get their
    numbers, and libuv aborts the process when it closes one of those.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def allow_many_descriptors() -> int:
    """Raise the soft limit of open descriptors to the hard one, as Go's runtime does, and return it.

    Each connection and each mapped file takes one, and many systems start their processes with a soft limit of 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def is_for_connections(descriptor: int) -> bool:
    """Return whether a connection may keep ``descriptor``. False if it is one of the last, which are for other uses.

    The system gives each file the lowest free number, so the number shows how many are in use.
    """
    limit = _limit()
    return descriptor < limit - min(limit // 8, CONNECTIONS_LEAVE)


def is_for_passed_on(descriptor: int) -> bool:
    """As is_for_connections, for a connection that a follower passes on to its primary: it has to go on following."""
    limit = _limit()
    return descriptor < limit - min(limit // 2, PASSED_ON_LEAVE)


def is_for_requests(descriptor: int) -> bool:
    """As is_for_connections, for an HTTP connection, which may also have half of the descriptors that other connections
    leave free: an operator has to reach a process that is full of clients."""
    limit = _limit()
    return descriptor < limit - min(limit // 8, CONNECTIONS_LEAVE) // 2


def require_descriptor_for_file() -> None:
    """Check that a file may be kept open, or mapped. Raises OSError with EMFILE.

    Otherwise thousands of files would leave no descriptor for connections, nor for syncs.
    """
    limit, descriptor = _limit(), os.dup(2)
    os.close(descriptor)
    if descriptor >= limit - min(limit // 4, FILES_LEAVE):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
