"""When the process is to end: by a signal, or because its node was drained."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from types import FrameType
from typing import Any


class Stop(asyncio.Event):
    """Set once the process is to end. ``is_requested`` is true a little earlier: from the signal on.

    The event loop sets the event in a later turn. A process that was paused may run a timer before that; a timer that
    replaces the process has to know of the signal.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_requested = False

    def set(self) -> None:
        """Let the process end."""
        self.is_requested = True
        super().set()

    def set_at(self, *signals: signal.Signals) -> None:
        """Set the event at these signals. A second signal has no effect."""
        loop = asyncio.get_running_loop()
        for number in signals:
            loop.add_signal_handler(number, self.set)
            signal.signal(number, partial(self._signalled, signal.getsignal(number)))
            signal.siginterrupt(number, False)

    def _signalled(self, of_loop: Any, number: int, frame: FrameType | None) -> None:
        self.is_requested = True
        of_loop(number, frame)
