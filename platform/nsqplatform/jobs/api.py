"""Jobs over HTTP: requesting, watching and cancelling them."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from ninja.errors import HttpError

from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster.actions.notification import origin_of
from nsqplatform.cluster.messages.dead import count_dead
from nsqplatform.jobs import selectors, services
from nsqplatform.jobs.dead import request_dead
from nsqplatform.jobs.messages import request_messages
from nsqplatform.jobs.schemas import (
    ChosenDeadIn,
    DeadCountOut,
    DeadJobIn,
    JobIn,
    JobOut,
    JobsOut,
    JobState,
    MessagesJobIn,
    SubjectsOut,
    SubjectState,
    job_detail,
    subject_detail,
)
from nsqplatform.worker_task import WrongState

router = Router(tags=["jobs"])
REFUSALS: dict[int, Any] = {401: Message, 403: Message, 404: Message, 422: InvalidRequest}


@router.post("", auth=needs(Permission.ACT), response={202: JobOut, **REFUSALS})
def request_job(request: HttpRequest, body: JobIn) -> Status:
    """Act on many topics or channels, in the background. Subjects that the caller may not act on fail at once."""
    job = services.request_job(
        kind=body.kind,
        parameters=body.parameters,
        subjects=[each.subject() for each in body.subjects],
        by=caller(request),
        origin=origin_of(request),
        remote_address=remote_address(request),
    )
    return Status(202, job_detail(job))


@router.post("messages", auth=needs(Permission.ACT), response={202: JobOut, 502: Message, **REFUSALS})
def request_messages_job(request: HttpRequest, body: MessagesJobIn) -> Status:
    """Act on all messages of a channel that match and were published until ``as_of``, in the background.

    The search ends before the response; the messages are then acted on in batches. If the worker of a copy or move is
    killed, at most one batch is repeated.
    """
    job = request_messages(
        action=body.action,
        topic=body.topic,
        channel=body.channel,
        criteria=body.criteria.criteria,
        as_of=body.as_of,
        target=body.target,
        by=caller(request),
        origin=origin_of(request),
        remote_address=remote_address(request),
    )
    return Status(202, job_detail(job))


@router.post("dead", auth=needs(Permission.ACT), response={202: JobOut, 502: Message, **REFUSALS})
def request_dead_job(request: HttpRequest, body: DeadJobIn) -> Status:
    """Requeue or remove dead messages of channels, in the background, with one request to each node of a channel.

    A node that requeues at a rate defers the messages to their due times and answers at once, so the job ends before
    they are delivered, and a cancelled job does not call them back.
    """
    job = request_dead(
        action=body.action,
        channels=body.chosen_channels,
        chosen=body.chosen,
        rate=body.rate,
        by=caller(request),
        origin=origin_of(request),
        remote_address=remote_address(request),
    )
    return Status(202, job_detail(job))


@router.post("dead/count", auth=needs(Permission.ACT), response={200: DeadCountOut, 502: Message, **REFUSALS})
def count_dead_messages(request: HttpRequest, body: ChosenDeadIn) -> DeadCountOut:
    """Count the dead messages that a job would act on. Changes nothing."""
    counted_at = time.time_ns() // 1_000_000
    return DeadCountOut(counted_at=counted_at, parts=count_dead(body.chosen_channels, body.chosen))


@router.get("", auth=needs(Permission.VIEW), response={200: JobsOut, **REFUSALS})
def jobs(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=500),
    before: int | None = Query(None, ge=0, lt=2**63),
    state: list[JobState] = Query([], description="several: any of them"),
) -> JobsOut:
    """Jobs, newest first; ``before`` is the id of the last one already seen."""
    return JobsOut(jobs=[job_detail(job) for job in selectors.jobs(limit=limit, before=before, states=state)])


@router.get("{int:job_id}", auth=needs(Permission.VIEW), response={200: JobOut, **REFUSALS})
def job(request: HttpRequest, job_id: int) -> JobOut:
    """One job, with its progress."""
    return job_detail(selectors.job(job_id))


@router.get("{int:job_id}/subjects", auth=needs(Permission.VIEW), response={200: SubjectsOut, **REFUSALS})
def subjects(
    request: HttpRequest,
    job_id: int,
    limit: int = Query(100, ge=1, le=1000),
    after: int | None = Query(None, ge=0, lt=2**63, description="id of the last one already seen"),
    state: list[SubjectState] = Query([], description="several: any of them"),
) -> SubjectsOut:
    """The subjects of a job, with the outcome of each."""
    found = selectors.subjects(job_id, limit=limit, after=after, states=state)
    return SubjectsOut(subjects=[subject_detail(subject) for subject in found])


@router.post("{int:job_id}/cancel", auth=needs(Permission.ACT), response={200: JobOut, 409: Message, **REFUSALS})
def cancel_job(request: HttpRequest, job_id: int) -> JobOut:
    """Cancel a job. Subjects that are being acted on get their outcome; the rest is not changed."""
    try:
        job = services.cancel_job(job_id=job_id, by=caller(request), remote_address=remote_address(request))
    except WrongState as error:
        raise HttpError(409, str(error)) from None
    return job_detail(job)
