"""The simulated browsers of the platform's benchmark."""

from __future__ import annotations

import threading

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from bench.watchers import watch
from tests.harness.waiting import DEADLINE_S


def test_a_watcher_answers_pings():
    """As a browser does: the web process closes a WebSocket that does not, which would end a slow run."""
    answered: list[bool] = []

    def send_and_ping(browser: ServerConnection) -> None:
        browser.send('{"type":"snapshot","version":1}')
        answered.append(browser.ping().wait(timeout=DEADLINE_S))
        try:
            browser.recv()
        except ConnectionClosed:
            return

    with serve(send_and_ping, "127.0.0.1", 0) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            seen, _ = watch(server.socket.getsockname(), "", [None], 0.1)
        finally:
            server.shutdown()
            serving.join()
    assert (answered, seen.closed) == ([True], 0)
