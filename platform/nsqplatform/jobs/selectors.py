"""Reading jobs and their subjects."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import QuerySet
from django.http import Http404

from nsqplatform.jobs.models import Job, JobSubject


def jobs(*, limit: int, before: int | None = None, states: Collection[str] = ()) -> QuerySet[Job]:
    """Jobs in any of ``states`` (empty: in all), newest first. ``before`` is the id of the last one already seen."""
    found = Job.objects.all()
    if before is not None:
        found = found.filter(pk__lt=before)
    if states:
        found = found.filter(state__in=states)
    return found[:limit]


def job(job_id: int) -> Job:
    """The job. Raises Http404."""
    found = Job.objects.filter(pk=job_id).first()
    if found is None:
        raise Http404(f"there is no job {job_id}")
    return found


def subjects(
    job_id: int, *, limit: int, after: int | None = None, states: Collection[str] = ()
) -> QuerySet[JobSubject]:
    """The job's subjects in any of ``states`` (empty: in all), in the requested order. ``after`` is the id of the last
    one already seen. Raises Http404 if there is no such job."""
    found = JobSubject.objects.filter(job=job(job_id)).order_by("pk")
    if after is not None:
        found = found.filter(pk__gt=after)
    if states:
        found = found.filter(state__in=states)
    return found[:limit]
