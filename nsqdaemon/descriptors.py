"""The standard descriptors of a process, and its limit of open descriptors."""

import os
import resource


def occupy_standard_descriptors() -> None:
    """Open the null device in place of a closed standard input, output or error. Call it before opening anything.

    Some supervisors start servers with closed streams. Sockets would get the free numbers, and libuv aborts the process
    when it closes one of those.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def allow_many_descriptors() -> int:
    """Raise the soft limit of open descriptors to the hard one, as Go's runtime does, and return it.

    Each connection and each mapped file takes one, and many systems start their processes with a soft limit of 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
