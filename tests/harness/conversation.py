"""A client that keeps to no protocol."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct

from tests.harness.waiting import DEADLINE_S


def converse(address: tuple[str, int], data: bytes, piece: int, *, abrupt: bool) -> None:
    """Send ``data`` in pieces. Then reset the connection if ``abrupt``, or end it and read all answers.

    The other side may disconnect at any time. Raises TimeoutError if it neither answers nor disconnects.
    """
    with socket.create_connection(address, DEADLINE_S) as peer, contextlib.suppress(ConnectionError):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(data), piece):
            peer.sendall(data[at : at + piece])
        if abrupt:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        try:
            peer.shutdown(socket.SHUT_WR)
        except OSError as error:  # no ConnectionError, but what it says is that the connection was reset before
            if error.errno != errno.ENOTCONN:
                raise
        while peer.recv(65536):
            pass
