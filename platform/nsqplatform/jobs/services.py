"""The actions of people on jobs: requesting and cancelling. Each checks permissions and values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError as QueueUnreachable

from nsqplatform.accounts.audit import record
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.cluster.actions.notification import Origin
from nsqplatform.insertion import insert
from nsqplatform.jobs import audit_entries, selectors, tasks
from nsqplatform.jobs.kinds import find_kind
from nsqplatform.jobs.kinds.kind import Kind, Outcome, Parameters, Subject, topics_to_check
from nsqplatform.jobs.live import broadcast_job
from nsqplatform.jobs.models import MESSAGE_CHARACTERS, Job, JobSubject
from nsqplatform.jobs.runner import changing, fail_interrupted


def request_job(
    *,
    kind: str,
    parameters: Parameters,
    subjects: Sequence[Subject],
    by: User,
    origin: Origin,
    remote_address: str = "",
) -> Job:
    """Queue a job. A repeated subject counts once; subjects on which ``by`` may not act fail at once.

    Raises ValidationError, and PermissionDenied if ``by`` may act on none of them; then nothing has changed.
    """
    known = find_kind(kind)
    require(by, known.permission)
    known.check(parameters)
    distinct = list(dict.fromkeys(subjects))
    refusals = _refusals(known, by, distinct, parameters)
    if len(refusals) == len(distinct):
        known.check_rights(by, distinct[0].topic, parameters)
    job = Job(
        kind=known.name,
        noun=known.noun(distinct),
        parameters=parameters,
        total=len(distinct),
        failed_count=len(refusals),
        requested_by=by.username,
        via=by.via,
        remote_address=remote_address,
        origin=origin._asdict(),
    )
    with transaction.atomic():
        job.save()
        insert(JobSubject, _COLUMNS, (_row(job, subject, refusals.get(subject)) for subject in distinct))
        audit_entries.add_job_entry(job, by=by)
        audit_entries.add_subject_entries(job, refusals.items(), refused=True)
        transaction.on_commit(partial(_enqueue, job.pk))
    job.refresh_from_db()
    return job


def _refusals(kind: Kind, by: User, subjects: Sequence[Subject], parameters: Parameters) -> dict[Subject, Outcome]:
    """The subjects on which ``by`` may not act, with the reason."""
    reasons: dict[str, str] = {}
    topics = {subject.topic for subject in subjects}
    for topic in topics_to_check(by, topics):
        try:
            kind.check_rights(by, topic, parameters)
        except PermissionDenied as error:
            reasons[topic] = str(error)
    if reasons and not by.rights.topic_patterns:
        reasons = dict.fromkeys(topics, *reasons.values())
    return {subject: Outcome("failed", reasons[subject.topic]) for subject in subjects if subject.topic in reasons}


_COLUMNS = ("job", *Subject._fields, "state", "attempt", "message")


def _row(job: Job, subject: Subject, refusal: Outcome | None) -> tuple[Any, ...]:
    """The values of _COLUMNS."""
    if refusal is None:
        return job.pk, *subject, JobSubject.State.WAITING.value, 0, ""
    return job.pk, *subject, JobSubject.State.FAILED.value, 0, refusal.message[:MESSAGE_CHARACTERS]


def _enqueue(job_id: int) -> None:
    """Send the job's id to the queue. The worker reads the job's current state."""
    broadcast_job(selectors.job(job_id))  # before the worker broadcasts its start
    try:
        tasks.run_job.delay(job_id)
    except (QueueUnreachable, OSError) as error:
        with changing(job_id) as job:
            job.end(Job.State.STOPPED, at=timezone.now(), message=f"cannot queue the job: {error}")
            audit_entries.complete_job_entry(job)


def cancel_job(*, job_id: int, by: User, remote_address: str = "") -> Job:
    """Cancel a job that ``by`` requested, or whose topics ``by`` may act on.

    Raises PermissionDenied, Http404, or WrongState if the job has ended.
    """
    kind = find_kind(selectors.job(job_id).kind)
    require(by, kind.permission)
    with changing(job_id) as job:
        if job.requested_by != by.username:
            for topic in job.subjects.order_by().values_list("topic", flat=True).distinct():
                require(by, kind.permission, topic=topic)
        job.request_cancel(by=by.username, at=timezone.now())
        if not job.is_unfinished:
            fail_interrupted(job)
            audit_entries.complete_job_entry(job)
        record(user=by, action="cancel job", subject=f"{job.kind}, job {job_id}", remote_address=remote_address)
    return job
