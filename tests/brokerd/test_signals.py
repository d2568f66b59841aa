"""Signals that end the broker without a cleanup."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from bench.wire import mpub


@pytest.mark.parametrize(("number", "status"), [(signal.SIGHUP, -signal.SIGHUP), (signal.SIGQUIT, 2)])
def test_an_end_without_cleanup_keeps_acknowledged_messages(
    number: signal.Signals, status: int, start_broker: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    """SIGHUP and SIGQUIT end it, as they end nsqd; messages that nsqd would lose are delivered after the start."""
    of_ours = signal.signal(number, signal.SIG_DFL)  # nohup ignores it, and a child process inherits that
    try:
        broker = start_broker()
    finally:
        signal.signal(number, of_ours)
    connect(broker).ok(mpub("t", [b"a", b"b"]))
    broker.process.send_signal(number)
    assert broker.wait_for_exit() == status
    assert "NSQ: bye" not in broker.log[-1]
    consumer = connect(start_broker(data_path=broker.data_path))
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 2\n")
    assert consumer.bodies(2) == [b"a", b"b"]


def test_sigquit_shows_where_every_thread_is(broker: Any) -> None:
    """On standard error, to diagnose a broker that hangs."""
    broker.process.send_signal(signal.SIGQUIT)
    assert broker.wait_for_exit() == 2
    assert any("most recent call first" in line for line in broker.log)
    assert any("brokerd/__main__.py" in line for line in broker.log)
