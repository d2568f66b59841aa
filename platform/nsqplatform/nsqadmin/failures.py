"""Failures of nodes and registries, in nsqadmin's words."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from nsqcluster import ConnectTimedOut, Interrupted, NotReached, Refused, RequestFailed, TimedOut
from nsqcluster.discovery import NobodyAnswered
from nsqcluster.errors import system_error


class UpstreamFailed(Exception):
    """No server could answer; the text follows ``UPSTREAM_ERROR: `` in the response."""


class Warnings:
    """Failures of a request's steps: those of one step are separated by line ends, the steps by semicolons."""

    def __init__(self) -> None:
        self._steps: list[str] = []

    def add(self, failures: Sequence[RequestFailed]) -> None:
        """Add the failures of one step."""
        if failures:
            self._steps.append(texts(failures))

    def __str__(self) -> str:
        """The ``message`` of a response: empty if nothing failed."""
        return "WARNING: " + "; ".join(self._steps) if self._steps else ""


def nobody_answered(error: NobodyAnswered) -> UpstreamFailed:
    """Translate the failure of all servers of one kind."""
    return UpstreamFailed(f"failed to query any {error.target}: {texts(error.failures.values())}")


def texts(failures: Iterable[RequestFailed]) -> str:
    """The failures of one step, one a line."""
    return "\n".join(map(text, failures))


def text(error: RequestFailed) -> str:
    """Describe a failure as Go's HTTP client does, for scripts that search for its words."""
    if isinstance(error, Refused):
        return f"got response {error.status} {error.phrase} {json.dumps(error.text[:500])}"
    return f'Get "{error.url}": {_cause(error)}'


def _cause(error: RequestFailed) -> str:
    where = urlsplit(error.url).netloc
    if isinstance(error, ConnectTimedOut):
        return f"dial tcp {where}: i/o timeout"
    if isinstance(error, TimedOut):
        return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    if isinstance(error, NotReached) and error.error is not None and not isinstance(error.error, ssl.SSLError):
        number = error.error.errno or 0
        if number > 0:
            return f"dial tcp {where}: connect: {os.strerror(number).lower()}"
        return f"dial tcp: lookup {where}: {error.reason}"
    if isinstance(error, Interrupted) and system_error(error.__cause__) is None:
        return "EOF"
    return error.reason
