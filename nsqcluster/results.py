"""Results of an action, one for each server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

# The platform publishes results with pydantic, which requires this TypedDict below Python 3.12.
from typing_extensions import TypedDict

from nsqcluster.cluster import Target

NO_TOPIC: Final[tuple[Literal["absent"], str]] = ("absent", "404 TOPIC_NOT_FOUND")
"""Outcome and detail of a server that does not have the topic."""


class Result(TypedDict):
    """The outcome of an action on one node or registry. ``node`` is its id, for a registry its address.

    ``absent``: it answered 404, because it does not have the topic, channel or policy, or, as Go's nsqd, no policies.
    That is not a failure.
    """

    node: str
    target: Target
    outcome: Literal["done", "absent", "failed", "unreachable"]
    detail: str


Outcome = Literal["done", "partial", "failed"]


def outcome_of(results: Sequence[Result]) -> Outcome:
    """Return the overall outcome. ``absent`` results do not count; without any other result it is ``done``."""
    asked = [result["outcome"] for result in results if result["outcome"] != "absent"]
    done = asked.count("done")
    return "done" if done == len(asked) else "partial" if done else "failed"


def merged(before: Iterable[Result], after: Sequence[Result]) -> list[Result]:
    """Merge the results of two steps on the same servers.

    A server's result is that of the first step unless it is ``done``, otherwise that of the second.
    """
    failures = {result["node"]: result for result in before if result["outcome"] != "done"}
    return [failures.get(result["node"], result) for result in after]
