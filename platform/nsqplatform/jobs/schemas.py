"""Bodies of the jobs' API, from which the web app's types are generated. Times are Unix milliseconds."""

from __future__ import annotations

import time
from typing import Literal

from ninja import Schema
from pydantic import ConfigDict, Field, field_validator

from nsqcluster.messages import ChosenDead, DeathReason
from nsqplatform.accounts.schemas import Body, Line
from nsqplatform.cluster.api.messages import SearchIn
from nsqplatform.cluster.api.schemas import Name
from nsqplatform.cluster.messages.actions import MessageAction
from nsqplatform.cluster.messages.dead import Channel, DeadAction, DeadPart
from nsqplatform.jobs.kinds.dead import MAX_RATE
from nsqplatform.jobs.kinds.kind import Parameters, Subject
from nsqplatform.jobs.models import Job, JobSubject
from nsqplatform.unix_time import unix_ms
from nsqwire.units import Milliseconds

MAX_SUBJECTS = 20_000
MAX_CHANNELS = 1000
"""Of one count, or one job, of dead messages."""
JobState = Literal["queued", "running", "finished", "cancelled", "stopped"]
SubjectState = Literal["waiting", "started", "done", "partial", "failed"]


class SubjectIn(Schema):
    model_config = ConfigDict(extra="forbid")

    topic: Name
    channel: Name | None = None
    node: Line = Field("", max_length=300, description="id of the only node to act on; empty: all nodes that have it")

    def subject(self) -> Subject:
        return Subject(self.topic, self.channel, self.node)


class JobIn(Body):
    model_config = ConfigDict(extra="forbid")

    kind: str = Field(max_length=32, description="pause, unpause, empty, delete or tombstone")
    parameters: Parameters = {}
    subjects: list[SubjectIn] = Field(min_length=1, max_length=MAX_SUBJECTS)


class MessagesJobIn(Body):
    model_config = ConfigDict(extra="forbid")

    action: MessageAction
    topic: Name
    channel: Name
    criteria: SearchIn
    as_of: int = Field(ge=0, lt=2**63, description="only messages published until then, Unix milliseconds")
    target: Name | None = Field(None, description="the topic to copy or move the messages to")


class ChannelIn(Schema):
    topic: Name
    name: Name


class ChosenDeadIn(Body):
    """Dead messages of channels, on all their nodes."""

    model_config = ConfigDict(extra="forbid")

    channels: list[ChannelIn] = Field(min_length=1, max_length=MAX_CHANNELS)
    reason: DeathReason | None = Field(None, description="why they died; null for all reasons")
    since: int | None = Field(None, ge=0, description="only those that died since then, Unix milliseconds")

    @field_validator("since")
    @classmethod
    def _is_past(cls, since: int | None) -> int | None:
        if since is not None and since > time.time() * 1000:
            raise ValueError("the time is in the future")
        return since

    @property
    def chosen(self) -> ChosenDead:
        return ChosenDead(self.reason, self.since)

    @property
    def chosen_channels(self) -> list[Channel]:
        return [Channel(each.topic, each.name) for each in self.channels]


class DeadJobIn(ChosenDeadIn):
    action: DeadAction
    rate: int = Field(
        0,
        ge=0,
        le=MAX_RATE,
        description="of a requeue: messages of each channel that each node makes ready per second; 0 for all at once",
    )


class DeadCountOut(Schema):
    counted_at: Milliseconds = Field(description="when the count began, Unix milliseconds")
    parts: list[DeadPart] = Field(description="by topic, channel and node; those without dead messages are left out")


class JobOut(Schema):
    id: int
    kind: str
    noun: str = Field(description="what the subjects are, in the singular")
    parameters: Parameters
    state: JobState
    total: int = Field(
        description="number of subjects; a job on messages counts batches, one on dead messages requests"
    )
    done_count: int
    partial_count: int = Field(description="done on some nodes only")
    failed_count: int
    rate: float | None = Field(description="subjects per second over the last seconds; null if unknown")
    message: str = Field(description="why it did not run to its end")
    cancel_requested: bool
    requested_by: str
    created_at: Milliseconds
    started_at: Milliseconds | None
    finished_at: Milliseconds | None


class JobMessage(Schema):
    """A websocket message: a job that changed."""

    type: Literal["job"]
    job: JobOut


class JobsOut(Schema):
    jobs: list[JobOut] = Field(description="newest first")


class SubjectOut(Schema):
    id: int
    topic: str
    channel: str | None
    node: str = Field(description="id of the only node to act on; empty: all nodes that have it")
    state: SubjectState
    message: str = Field(description="why it failed, or failed on some nodes; of dead messages, what was done")


class SubjectsOut(Schema):
    subjects: list[SubjectOut] = Field(description="in the requested order")


_JOB = (
    *("id", "kind", "noun", "parameters", "state", "total", "done_count", "partial_count", "failed_count", "rate"),
    *("message", "cancel_requested", "requested_by"),
)
_TIMES = ("created_at", "started_at", "finished_at")
_SUBJECT = ("id", "topic", "channel", "node", "state", "message")


def job_detail(job: Job) -> JobOut:
    """A job, as in the API and the websocket's messages."""
    values = {name: getattr(job, name) for name in _JOB} | {name: unix_ms(getattr(job, name)) for name in _TIMES}
    return JobOut.model_validate(values)


def subject_detail(subject: JobSubject) -> SubjectOut:
    return SubjectOut.model_validate({name: getattr(subject, name) for name in _SUBJECT})
