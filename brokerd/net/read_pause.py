"""Reasons why the broker pauses reading from a connection."""

from __future__ import annotations

import enum


class ReadPause(enum.Flag):
    """The reasons. A connection is read from while none is set."""

    OUTPUT = enum.auto()
    """The client sends commands and does not read their responses."""
    COMMAND = enum.auto()
    """A command of the client waits for the auth server or for a sync."""
    SLICE = enum.auto()
    """The client sent more input than one slice of time can handle."""
    MEMORY = enum.auto()
    """Unfinished commands exceed the memory limit, and this connection has to wait."""
