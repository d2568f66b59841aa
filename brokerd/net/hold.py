"""Why a client is not heard for the moment."""

from __future__ import annotations

import enum


class Hold(enum.Flag):
    """A connection is read from while none of these holds it."""

    OUTPUT = enum.auto()
    """It asks for answers and reads none."""
    COMMAND = enum.auto()
    """One of its commands waits for the auth server."""
    TURN = enum.auto()
    """It sent more than is handled at once."""
    MEMORY = enum.auto()
    """Unfinished commands exceed the memory limit, and this connection has to wait."""
