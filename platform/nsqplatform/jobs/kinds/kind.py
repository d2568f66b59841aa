"""The interface of a kind of job: its permission, its subjects, and how to act on one.

To add a kind:

1. Write a subclass of :class:`Kind` in a module of this folder. It belongs to the application ``jobs``, and calls the
   functions of the lower applications that do the work.
2. Add an instance to :data:`nsqplatform.jobs.kinds.KINDS`. The API, the audit trail and the panel of the web app then
   support it. Its name is the ``kind`` of its jobs and the ``action`` of their audit entries.
3. If a subject is more than a topic, channel and node, add a field to :class:`Subject` and a column of the same name to
   :class:`nsqplatform.jobs.models.JobSubject`. It must be possible to act on a subject alone: whatever is in memory is
   lost when the worker is killed.

The runner (``jobs/runner.py``) does the rest: concurrency, deadlines, progress, cancellation, permission checks, the
audit trail, and resuming after a killed worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple

from django.core.exceptions import ValidationError

from nsqcluster import Result, outcome_of
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster.actions.notification import Origin

ParameterValue = str | int | float | bool | None
Parameters = dict[str, ParameterValue]


class Subject(NamedTuple):
    """What one step of a job acts on. ``node`` is the only node to act on; empty: every node of the topic.

    ``messages`` are the ids of a batch of messages, one a line; empty: the topic or channel as a whole.
    """

    topic: str
    channel: str | None = None
    node: str = ""
    messages: str = ""

    def __str__(self) -> str:
        """``topic / channel on node``."""
        where = f" on {self.node}" if self.node else ""
        return f"{self.topic} / {self.channel}{where}" if self.channel else f"{self.topic}{where}"


class Outcome(NamedTuple):
    """The outcome for one subject. ``message`` says why it was not ``done``, or what was done if the subject does not
    say it; ``results``: of each server."""

    state: Literal["done", "partial", "failed"]
    message: str = ""
    results: Sequence[Result] = ()


def outcome_of_results(results: Sequence[Result]) -> Outcome:
    """The outcome of an action, from its results on the servers."""
    failures = [f"{each['node']}: {each['detail']}" for each in results if each["outcome"] in ("failed", "unreachable")]
    return Outcome(outcome_of(results), "; ".join(failures), results)


def topics_to_check(user: User, topics: Collection[str]) -> Collection[str]:
    """The topics for which to check a user's rights: any one of them, if the user's rights do not depend on topics."""
    return topics if user.rights.topic_patterns else list(topics)[:1]


class Performer(ABC):
    """Acts on the subjects of one job. ``batch`` and ``concurrency`` may change with what it finds out about the
    servers."""

    batch = 1
    """Largest number of subjects of one call."""
    concurrency = 64
    """Largest number of calls at once."""

    @abstractmethod
    async def act(self, subjects: Sequence[Subject], may_be_done: bool) -> Sequence[Outcome]:
        """Act on the subjects, and return their outcomes in the same order.

        ``may_be_done``: an earlier worker was killed while it acted on them, so any of them may be done already. Errors
        that the kind expects are outcomes; any other exception fails the subjects and is logged.
        """


class OneByOne(Performer):
    """Acts on each subject by a function, with the arguments of ``act``."""

    def __init__(self, one: Callable[[Subject, bool], Awaitable[Outcome]], concurrency: int) -> None:
        self._one = one
        self.concurrency = concurrency

    async def act(self, subjects: Sequence[Subject], may_be_done: bool) -> Sequence[Outcome]:
        return [await self._one(subject, may_be_done) for subject in subjects]


class Kind(ABC):
    """A kind of job."""

    name: str
    """Its name in the API, and the ``action`` of its audit entries; at most 32 characters."""
    permission: Permission
    """Required of the user, for the topic of each subject, when the job is requested and until it ends."""
    is_repeatable: bool
    """Whether acting twice on a subject has the same effect as acting once. Other kinds do not repeat a subject whose
    worker was killed: its outcome is a failure, which says that it may have been done."""

    @abstractmethod
    def noun(self, subjects: Sequence[Subject]) -> str:
        """What the subjects are, in the singular: ``topic``. Raises ValidationError if they do not fit."""

    def check(self, parameters: Parameters) -> None:
        """Raise ValidationError unless the parameters fit; by default, there are none."""
        if parameters:
            raise ValidationError({"parameters": f"{self.name} has no parameters"})

    def check_rights(self, user: User, topic: str, parameters: Parameters) -> None:
        """Raise PermissionDenied unless ``user`` may act on this topic; called again until the job ends."""
        require(user, self.permission, topic=topic)

    @abstractmethod
    def acting(self, parameters: Parameters) -> AbstractAsyncContextManager[Performer]:
        """A context for all steps of one job, with what they share, such as connections."""

    @abstractmethod
    def recorded(self, origin: Origin, outcomes: Sequence[tuple[Subject, Outcome]]) -> None:
        """Notify others of outcomes, which have been recorded. ``origin``: the job's request."""
