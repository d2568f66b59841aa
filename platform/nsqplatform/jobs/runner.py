"""Executes a job: acts on many subjects at once, and records each outcome.

A subject is recorded as started before it is acted on, and with its outcome afterwards. If the worker is killed between
the two, the worker that resumes the job knows which subjects may be done already.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, ParamSpec, TypeVar

from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone
from redis.exceptions import RedisError

from nsqplatform.accounts.current_user import user_now
from nsqplatform.accounts.rights import require
from nsqplatform.cluster.actions.notification import Origin
from nsqplatform.clusters import current
from nsqplatform.jobs import audit_entries
from nsqplatform.jobs.kinds import find_kind
from nsqplatform.jobs.kinds.kind import Outcome, Performer, Subject, topics_to_check
from nsqplatform.jobs.live import broadcast_job
from nsqplatform.jobs.models import MESSAGE_CHARACTERS, Job, JobSubject
from nsqplatform.worker_task import WrongState
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SAVE_EVERY_S = 0.25
"""Longest time for which an outcome is in memory only. Also the time within which a cancellation, or the loss of the
user's permission, is noticed."""
SHOW_EVERY_S = 0.2
"""Time between two messages to browsers about the progress, and between two calls of ``Kind.recorded``."""
DEADLINE_S = 60.0
"""Longest time for one call of ``Performer.act``. Kinds have their own deadlines for requests, which are shorter."""
RATE_OVER_S = 5.0
FEW_CALLS = 2
"""Up to this number of calls, a new one is made as soon as one has ended."""
MAY_BE_DONE = "the worker was killed or failed while it did this: it may be done, and is not repeated"
INTERNAL_ERROR = "internal error; the dispatcher has logged it"

stopping = threading.Event()
"""Set when this worker has to stop: its jobs are queued again, for another worker."""


@contextmanager
def changing(job_id: int) -> Iterator[Job]:
    """The locked job, which is saved and broadcast at the end. Raises Job.DoesNotExist."""
    with saving(job_id) as job:
        yield job
    broadcast_job(job)


@contextmanager
def saving(job_id: int) -> Iterator[Job]:
    """The locked job, which is saved at the end. Raises Job.DoesNotExist."""
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=job_id)
        yield job
        job.save()


def execute(job_id: int) -> None:
    """Execute a queued job to its end, or until this worker has to stop.

    Does nothing if the job is not queued: it was cancelled, or the queue delivered it twice.
    """
    try:
        with changing(job_id) as job:
            job.start(at=timezone.now())
            if not find_kind(job.kind).is_repeatable:
                fail_interrupted(job)
    except (WrongState, Job.DoesNotExist) as error:
        logger.info("job not started", extra={"job": job_id, "reason": str(error)})
        return
    logger.info("job started", extra={"job": job_id, "kind": job.kind, "attempt": job.attempt})
    try:
        asyncio.run(Execution(job).run())
    except WrongState as error:  # another worker has resumed it, after a long pause of this one
        logger.warning("job left to another worker", extra={"job": job_id, "reason": str(error)})
    except Exception:
        with suppress(WrongState), changing(job_id) as broken:
            broken.check_attempt(job.attempt)
            fail_interrupted(broken)
            broken.end(Job.State.STOPPED, at=timezone.now(), message=INTERNAL_ERROR)
            audit_entries.complete_job_entry(broken)
        raise


def requeue_abandoned(*, restarted: str = "") -> list[Job]:
    """Queue again the jobs of the current cluster whose worker died, and return them. ``restarted``: a worker that has
    just started, which therefore runs none of its jobs any more."""
    requeued = []
    for job_id in Job.objects.filter(state=Job.State.RUNNING).values_list("pk", flat=True):
        with suppress(WrongState, Job.DoesNotExist), changing(job_id) as job:
            if job.worker != restarted and not job.is_abandoned(at=timezone.now()):
                raise WrongState("its worker is alive")
            job.requeue()
            requeued.append(job)
    return requeued


def fail_interrupted(job: Job) -> None:
    """Record a failure for the subjects that a killed worker had started, and that are not acted on again."""
    interrupted = list(job.subjects.filter(state=JobSubject.State.STARTED))
    outcome = Outcome("failed", MAY_BE_DONE)
    _record(job, [(row, outcome) for row in interrupted])


def _record(job: Job, outcomes: Sequence[tuple[JobSubject, Outcome]]) -> None:
    """Store the outcomes of subjects, count them, and add them to the audit trail. The caller saves the job."""
    if not outcomes:
        return
    rows: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row, outcome in outcomes:
        rows[outcome.state, outcome.message[:MESSAGE_CHARACTERS]].append(row.pk)
    # Nearly all outcomes are the same, and Django's bulk_update costs more than the requests to the nodes.
    for (state, message), keys in rows.items():
        JobSubject.objects.filter(pk__in=keys).update(state=state, message=message)
    states = Counter(outcome.state for _, outcome in outcomes)
    job.count(done=states["done"], partial=states["partial"], failed=states["failed"])
    audit_entries.add_subject_entries(job, [(subject_of(row), outcome) for row, outcome in outcomes])


def subject_of(row: JobSubject) -> Subject:
    return Subject(row.topic, row.channel, row.node, row.messages)


class Step(NamedTuple):
    """A subject to act on. ``may_be_done``: a worker was killed while it acted on it."""

    row: JobSubject
    may_be_done: bool


class Claim(NamedTuple):
    """The next steps, and whether there will be no others."""

    steps: Sequence[Step]
    is_last: bool


class Execution:
    """One worker's attempt at a job. All of its queries run in one thread beside the event loop, so that a slow
    database delays no request to a node."""

    def __init__(self, job: Job) -> None:
        self.job_id, self.attempt = job.pk, job.attempt
        self.kind = find_kind(job.kind)
        self.parameters = job.parameters
        self.username, self.via = job.requested_by, job.via
        self.origin = Origin(**job.origin)
        self.pace = Pace()
        self._progress, self._notification = Interval(SHOW_EVERY_S), Interval(SHOW_EVERY_S)
        self._unnotified: list[tuple[Subject, Outcome]] = []
        self._outcomes: list[tuple[JobSubject, Outcome]] = []
        self._acting: set[asyncio.Task[None]] = set()
        self._wanted_below = 0
        """The next subjects are claimed when fewer than this number are being acted on."""
        self._wanted = asyncio.Event()
        self._database = ThreadPoolExecutor(
            1, thread_name_prefix=f"job {job.pk}", initializer=current.enter, initargs=(current.name(),)
        )

    async def run(self) -> None:
        """Act on the subjects that are left. Raises WrongState if another worker has resumed the job."""
        try:
            async with self.kind.acting(self.parameters) as performer:
                await self._act(performer)
            await self._query(self._end)
        finally:
            for task in self._acting:
                task.cancel()
            try:
                await self._query(lambda: connection.close())  # looked up in the thread, which has its own connection
            finally:
                self._database.shutdown()

    async def _act(self, performer: Performer) -> None:
        is_last = False
        while not is_last or self._acting or self._outcomes:
            outcomes, self._outcomes = self._outcomes, []
            batch, calls = performer.batch, performer.concurrency
            wanted = 0 if is_last else batch * max(0, calls - len(self._acting))
            claim = await self._query(self._save, outcomes, wanted)
            is_last = is_last or claim.is_last
            # Few calls act on many subjects each; of many, half are made at once, for a query of the database each.
            self._wanted_below = 1 if is_last else max(calls // 2, min(calls, FEW_CALLS))
            for steps in batches(claim.steps, batch):
                task = asyncio.create_task(self._act_on(steps, performer))
                self._acting.add(task)
                task.add_done_callback(self._acted)
            await self._wait()

    async def _wait(self) -> None:
        """Wait until further subjects are wanted, at most SAVE_EVERY_S seconds."""
        self._wanted.clear()
        if len(self._acting) >= self._wanted_below:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAVE_EVERY_S):
                    await self._wanted.wait()

    def _acted(self, task: asyncio.Task[None]) -> None:
        self._acting.discard(task)
        if len(self._acting) < self._wanted_below:
            self._wanted.set()

    async def _act_on(self, steps: Sequence[Step], performer: Performer) -> None:
        subjects = [subject_of(step.row) for step in steps]
        outcomes: Sequence[Outcome]
        try:
            async with asyncio.timeout(DEADLINE_S):
                outcomes = await performer.act(subjects, steps[0].may_be_done)
        except TimeoutError:
            outcomes = [Outcome("failed", f"took longer than {DEADLINE_S:g} s; it may still be done")] * len(steps)
        except Exception:
            logger.exception("cannot act on subjects", extra={"job": self.job_id, "subject": str(subjects[0])})
            outcomes = [Outcome("failed", INTERNAL_ERROR)] * len(steps)
        self._outcomes += [(step.row, outcome) for step, outcome in zip(steps, outcomes, strict=True)]

    async def _query(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._database, partial(call, *arguments, **keywords))

    # ---- queries, in their thread

    def _save(self, outcomes: Sequence[tuple[JobSubject, Outcome]], wanted: int) -> Claim:
        """Record outcomes, and claim up to ``wanted`` subjects, unless the job has to end now."""
        with saving(self.job_id) as job:
            job.check_attempt(self.attempt)
            _record(job, outcomes)
            claim = self._claim(job, wanted)
            job.rate = self.pace.rate(job.total - job.remaining_count, time.monotonic())
            job.worker_seen_at = timezone.now()
        if self._progress.is_over():
            broadcast_job(job)
        self._unnotified += [(subject_of(row), outcome) for row, outcome in outcomes]
        if self._notification.is_over():
            self._notify()
        return claim

    def _claim(self, job: Job, wanted: int) -> Claim:
        if job.message or stopping.is_set():
            return Claim((), is_last=True)
        left = Q(state=JobSubject.State.WAITING) | Q(state=JobSubject.State.STARTED, attempt__lt=self.attempt)
        rows = list(job.subjects.filter(left)[:wanted])
        try:
            self._check_permission({row.topic for row in rows})
        except PermissionDenied as error:
            job.message = f"{self.username} lost the permission: {error}"[:MESSAGE_CHARACTERS]
            return Claim((), is_last=True)
        steps = [Step(row, may_be_done=row.state == JobSubject.State.STARTED) for row in rows]
        JobSubject.objects.filter(pk__in=[row.pk for row in rows]).update(
            state=JobSubject.State.STARTED, attempt=self.attempt
        )
        return Claim(steps, is_last=len(rows) < wanted)

    def _check_permission(self, topics: Collection[str]) -> None:
        """Raise PermissionDenied unless the user may still act, on these topics."""
        user = user_now(username=self.username, via=self.via)
        require(user, self.kind.permission)
        for topic in topics_to_check(user, topics):
            self.kind.check_rights(user, topic, self.parameters)

    def _notify(self) -> None:
        outcomes, self._unnotified = self._unnotified, []
        try:
            self.kind.recorded(self.origin, outcomes)
        except (RedisError, OSError) as error:
            logger.warning("cannot notify of outcomes", extra={"job": self.job_id, "error": str(error)})

    def _end(self) -> None:
        self._notify()
        with changing(self.job_id) as job:
            job.check_attempt(self.attempt)
            if job.remaining_count and not job.message:
                job.requeue()  # this worker has to stop
                return
            fail_interrupted(job)
            if not job.remaining_count:
                job.message = ""
                job.end(Job.State.FINISHED, at=timezone.now())
            else:
                job.end(Job.State.CANCELLED if job.cancel_requested else Job.State.STOPPED, at=timezone.now())
            audit_entries.complete_job_entry(job)
        logger.info("job ended", extra={"job": job.pk, "state": job.state, "reason": job.message})


def batches(steps: Sequence[Step], size: int) -> Iterator[Sequence[Step]]:
    """Split the steps into batches of at most ``size`` that agree in ``may_be_done``."""
    for _, group in groupby(steps, key=attrgetter("may_be_done")):
        alike = list(group)
        for start in range(0, len(alike), size):
            yield alike[start : start + size]


class Interval:
    """A time that must pass between two events; the first may happen at once."""

    def __init__(self, length: Seconds) -> None:
        self._length = length
        self._ends_at: Seconds = 0.0

    def is_over(self) -> bool:
        """Whether the time has passed since the call that last returned true."""
        now = time.monotonic()
        if now < self._ends_at:
            return False
        self._ends_at = now + self._length
        return True


class Pace:
    """Subjects per second, over the last RATE_OVER_S."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def rate(self, count: int, at: Seconds) -> float | None:
        """The rate when ``count`` subjects have an outcome at ``at``, in seconds of a monotonic clock; None if
        unknown."""
        self._counts.append((at, count))
        while len(self._counts) > 2 and at - self._counts[1][0] >= RATE_OVER_S:
            self._counts.popleft()
        first_at, first = self._counts[0]
        return (count - first) / (at - first_at) if at - first_at >= SAVE_EVERY_S else None
