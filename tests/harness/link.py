"""A network link that can be cut: it forwards connections, and holds their bytes while it is cut."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import Final

POLL_S: Final = 0.05
CHUNK_BYTES: Final = 64 * 1024
HELD_BYTES: Final = 8 * 1024 * 1024
"""Bytes that a link takes from a sender before they are delivered."""


class Link:
    """Forwards ``ports`` of ``host``, a loopback address of its own, to those of ``target``."""

    def __init__(self, host: str, target: str, ports: tuple[int, ...]) -> None:
        self.host, self._target = host, target
        self.is_cut = False
        self.accepted = 0
        """The number of connections so far."""
        self._selector = selectors.DefaultSelector()
        self._listeners = {}
        for port in ports:
            listener = socket.create_server((host, port))
            listener.setblocking(False)
            self._listeners[listener] = port
            self._selector.register(listener, selectors.EVENT_READ)
        self._held: dict[socket.socket, bytearray] = {}
        """What is to be sent to each socket."""
        self._peers: dict[socket.socket, socket.socket] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Deliver nothing, in either direction, and open no connection."""
        self.is_cut = True

    def heal(self) -> None:
        """Deliver what was held, and all that follows."""
        self.is_cut = False

    def close(self) -> None:
        """Close all connections."""
        self._ends.set()
        self._thread.join()
        for opened in (*self._listeners, *self._peers):
            opened.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._ends.is_set():
            if self.is_cut:
                self._ends.wait(POLL_S)
                continue
            for key, events in self._selector.select(POLL_S):
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj in self._listeners:
                    self._accept(key.fileobj)
                else:
                    self._forward(key.fileobj, events)

    def _accept(self, listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        self.accepted += 1
        try:
            connected = socket.create_connection((self._target, self._listeners[listener]))
        except OSError:
            accepted.close()
            return
        for one, other in ((accepted, connected), (connected, accepted)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            self._held[one], self._peers[one] = bytearray(), other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, received: socket.socket, events: int) -> None:
        peer = self._peers.get(received)
        if peer is None:
            return
        try:
            if events & selectors.EVENT_READ:
                data = received.recv(CHUNK_BYTES)
                if not data:
                    raise ConnectionError("closed")
                self._held[peer] += data
            for each in (peer, received):
                held = self._held[each]
                if held:
                    with suppress(BlockingIOError):
                        del held[: each.send(held)]
        except OSError:
            self._drop(received)
            return
        for each in (peer, received):
            reads = selectors.EVENT_READ if len(self._held[self._peers[each]]) < HELD_BYTES else 0
            wanted = reads | (selectors.EVENT_WRITE if self._held[each] else 0)
            self._selector.modify(each, wanted or selectors.EVENT_WRITE)

    def _drop(self, one: socket.socket) -> None:
        for each in (one, self._peers[one]):
            self._selector.unregister(each)
            each.close()
            del self._held[each], self._peers[each]
