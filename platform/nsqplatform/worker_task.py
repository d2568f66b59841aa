"""Base of the models of background tasks, whose state and worker several processes may change."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from django.db import models

from nsqplatform.worker_process import is_dead, this_worker


class WrongState(Exception):
    """The task's state does not permit the change; the message has the state."""


_VERBS = {"queued": "is", "running": "is", "cancelled": "was", "stopped": "was"}


def state_in_words(state: str) -> str:
    """The state as a predicate: ``is queued``, ``has succeeded``, ``was cancelled``."""
    return f"{_VERBS.get(state, 'has')} {state}"


class WorkerTask(models.Model):
    """One task of a worker. A subclass has the field ``state``; callers lock and save the row."""

    NAME: ClassVar[str]
    """What error messages call it."""
    UNFINISHED: ClassVar[Iterable[str]] = ("queued", "running")
    state: str

    cancel_requested = models.BooleanField(default=False)
    # host:pid of its worker, and the time of the worker's last update.
    worker = models.CharField(max_length=300, default="")
    worker_seen_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    @property
    def is_unfinished(self) -> bool:
        return self.state in self.UNFINISHED

    def is_abandoned(self, *, at: datetime) -> bool:
        """Whether its worker died: its process on this machine has ended, or its last update is too old."""
        return self.state == "running" and is_dead(self.worker, self.worker_seen_at, at=at)

    def require(self, *states: str, to: str) -> None:
        """Raise WrongState unless it is in one of ``states``; ``to`` says what it cannot do otherwise."""
        if self.state not in states:
            raise WrongState(f"{self.NAME} {self.pk} {state_in_words(self.state)} and cannot {to}")

    def assign(self, *, at: datetime) -> None:
        """Make this process its worker."""
        self.worker, self.worker_seen_at = this_worker(), at
