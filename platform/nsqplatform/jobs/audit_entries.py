"""The audit trail of jobs: an entry for the job, which gets its outcome at the end, and one for each subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nsqplatform.accounts import audit
from nsqplatform.accounts.models import AuditEntry, User
from nsqplatform.jobs.kinds.kind import Outcome, Subject
from nsqplatform.jobs.models import Job
from nsqwire.counted import counted

RUNNING = "running"


def add_job_entry(job: Job, *, by: User) -> None:
    """Add the entry of a requested job."""
    audit.record(
        user=by,
        action=job.kind,
        outcome=RUNNING,
        subject=f"{size_of(job)}, job {job.pk}",
        remote_address=job.remote_address,
        job=job.pk,
        subject_count=job.total,
    )


def complete_job_entry(job: Job) -> None:
    """Give the job's entry its outcome, with the numbers if not every subject is done."""
    outcome = "done" if job.done_count == job.total else "partial" if job.done_count + job.partial_count else "failed"
    detail = "" if outcome == "done" else summary(job)
    AuditEntry.objects.filter(job=job.pk, subject_count__isnull=False).update(outcome=outcome, detail=detail[:500])


def summary(job: Job) -> str:
    """``8 of 10 done, 1 on some nodes only, 1 not done: cancelled by ana``."""
    parts = [
        f"{job.done_count:,} of {job.total:,} done",
        *([f"{job.partial_count:,} on some nodes only"] if job.partial_count else []),
        *([f"{job.failed_count:,} failed"] if job.failed_count else []),
        *([f"{job.remaining_count:,} not done"] if job.remaining_count else []),
    ]
    return ", ".join(parts) + (f": {audit.printable(job.message)}" if job.message else "")


def add_subject_entries(job: Job, outcomes: Iterable[tuple[Subject, Outcome]], *, refused: bool = False) -> None:
    """Add the entries of subjects that have got their outcome. ``refused``: the user may not act on these.

    The log has a line for each outcome, with the number of its subjects: a line for each subject would take as
    long as storing its entry.
    """
    entries = [
        AuditEntry(
            user=job.requested_by,
            via=job.via,
            action=job.kind,
            topic=subject.topic,
            channel=subject.channel,
            outcome=audit.REFUSED if refused else outcome.state,
            detail=audit.printable(outcome.message)[:500],
            results=list(outcome.results),
            remote_address=job.remote_address,
            job=job.pk,
        )
        for subject, outcome in outcomes
    ]
    if entries:
        audit.store_all(entries)
    for outcome, count in Counter(entry.outcome for entry in entries).items():
        audit.log_entry(
            AuditEntry(
                user=job.requested_by,
                via=job.via,
                action=job.kind,
                subject=counted(count, job.noun),
                outcome=outcome,
                job=job.pk,
            )
        )


def size_of(job: Job) -> str:
    """``2,000 topics``; of batches of messages, their number and the target topic: ``5,000 messages to returns``."""
    messages = job.parameters.get("messages")
    if messages is None:
        return counted(job.total, job.noun)
    target = job.parameters.get("target")
    return counted(messages, "message") + (f" to {target}" if target else "")
