"""Descriptors that a process is started with."""

import os


def occupy_standard_descriptors() -> None:
    """Put the null device where standard input, output or error were closed; call it before anything is opened.

    Harnesses start servers with closed streams. The next sockets would get the free numbers, and libuv aborts the
    process when it is to close one of those.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
