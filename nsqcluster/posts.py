"""One POST to several servers at once, with a result from each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Literal

from nsqcluster.client import Client
from nsqcluster.cluster import STEP_S, Target
from nsqcluster.errors import Malformed, NotReached, Refused, RequestFailed, TimedOut, detail_of
from nsqcluster.results import Result

UNKNOWN: Final = "404 NOT_FOUND"
"""Detail of a server that does not know the verb."""


async def post_everywhere(
    http: Client,
    target: Target,
    addresses: Mapping[str, str],
    verb: str,
    params: Mapping[str, str],
    step_s: float = STEP_S,
    *,
    body: bytes = b"",
    describe: Callable[[bytearray], str] = lambda answer: "",
    unknown: str = UNKNOWN,
) -> list[Result]:
    """POST the verb to all servers at once. Returns the results, sorted by the servers' names.

    ``describe`` turns a response into the result's detail; ``unknown`` is the detail of a server that does not know the
    verb.
    """

    async def one(name: str, address: str) -> Result:
        try:
            answer = await http.post(address, verb, params, body, timeout_s=step_s)
        except RequestFailed as error:
            return failed(name, target, error, unknown)
        return Result(node=name, target=target, outcome="done", detail=describe(answer))

    return await asyncio.gather(*(one(name, address) for name, address in sorted(addresses.items())))


def failed(name: str, target: Target, error: RequestFailed, unknown: str = UNKNOWN) -> Result:
    """The result of a server whose request failed."""
    outcome: Literal["absent", "failed", "unreachable"] = "unreachable"
    detail = detail_of(error)
    if isinstance(error, (Refused, Malformed)):
        outcome = "absent" if isinstance(error, Refused) and error.is_unknown_name else "failed"
        detail = unknown if isinstance(error, Refused) and error.is_unknown_request else detail
    elif isinstance(error, TimedOut) and not isinstance(error, NotReached):
        detail += "; it may still do it"
    return Result(node=name, target=target, outcome=outcome, detail=detail)
