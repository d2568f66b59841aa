"""Reasons why the broker pauses reading from a connection."""

from __future__ import annotations

import enum


class ReadPause(enum.Flag):
    """A connection is read from while none of these is set."""

    OUTPUT = enum.auto()
    """The client sends commands and does not read their responses."""
    COMMAND = enum.auto()
    """One of its commands waits for the auth server or for a sync."""
    SLICE = enum.auto()
    """It sent more input than one slice of time allows."""
    MEMORY = enum.auto()
    """Unfinished commands exceed the memory limit, and this connection has to wait."""
