"""Requests that act on many topics or channels: a name a line in the body, and the names that failed in the response.

This is an extension; nsqd and nsqlookupd answer 404 to its paths, ``/topics/…`` and ``/channels/…``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final

from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER, HTTPError, Request, Response
from nsqdaemon.http.router import refusal_code
from nsqwire.gojson import encode

MAX_NAMES: Final = 1000
"""Largest number of names in a request."""


def names_of(request: Request) -> list[str]:
    """The names in the body, each once: ``topic`` or ``topic/channel``. Raises HTTPError if there are none, or too
    many."""
    names = request.body.decode("utf-8", "replace").split()
    if not names:
        raise HTTPError(400, "MISSING_NAMES")
    if len(names) > MAX_NAMES:
        raise HTTPError(400, "TOO_MANY_NAMES")
    return list(dict.fromkeys(names))


def topic_and_channel(name: str) -> tuple[str, str]:
    """Split ``topic/channel``. Raises HTTPError 400 if there is no channel."""
    topic, _, channel = name.partition("/")
    if not channel:
        raise HTTPError(400, "MISSING_ARG_CHANNEL")
    return topic, channel


def act_on_each(
    request: Request, names: Iterable[str], act: Callable[[str], object]
) -> Generator[None, None, Response]:
    """Call ``act`` with one name in each step, and return the response: ``{"done": 2, "errors": [{"name": "orders",
    "status": 404, "message": "TOPIC_NOT_FOUND"}]}``. The error of one name does not affect the others."""
    done, errors = 0, list[dict[str, object]]()
    for name in names:
        try:
            act(name)
        except Exception as error:
            status, code = refusal_code(request, error)
            errors.append({"name": name, "status": status, "message": code})
        else:
            done += 1
        yield
    return Response(200, encode({"done": done, "errors": errors}), (JSON_HEADER, NSQ_HEADER))
