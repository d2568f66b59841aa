"""Requesting jobs on all messages of a channel that match a search."""

from __future__ import annotations

from django.http import Http404

from nsqplatform.accounts.models import User
from nsqplatform.cluster.actions.notification import Origin
from nsqplatform.cluster.actions.topic_nodes import NodeFailed
from nsqplatform.cluster.messages.actions import MessageAction, check_rights, check_target
from nsqplatform.cluster.messages.criteria import Criteria
from nsqplatform.cluster.messages.matches import matches
from nsqplatform.cluster.messages.scan import NOT_OFFERED
from nsqplatform.cluster.messages.search import Search
from nsqplatform.jobs import services
from nsqplatform.jobs.kinds.kind import Parameters, Subject
from nsqplatform.jobs.kinds.messages import BATCH
from nsqplatform.jobs.models import Job


def request_messages(
    *,
    action: MessageAction,
    topic: str,
    channel: str,
    criteria: Criteria,
    as_of: int,
    target: str | None,
    by: User,
    origin: Origin,
    remote_address: str = "",
) -> Job:
    """Queue a job on the messages that match and were published until ``as_of``, Unix milliseconds.

    The job stores the ids in batches: a worker that resumes it acts on the same messages, whatever has been published
    since. Raises CannotPublish, PermissionDenied, NotInCluster and ClusterUnreachable, NodeFailed if a node that can
    list messages does not, and Http404 if no message matches; then nothing has changed.
    """
    check_target(action, topic, target)
    check_rights(by, action, topic, target)
    found = matches(Search(by, topic, channel, criteria), as_of=as_of)
    for part in found.nodes:
        if part["error"] and part["error"] != NOT_OFFERED:
            raise NodeFailed(f"not all messages that match would be included: node {part['node']}: {part['error']}")
    if not found.matching:
        raise Http404("no message matches any more")
    parameters: Parameters = {"messages": found.matching}
    if target:
        parameters["target"] = target
    return services.request_job(
        kind=f"{action} messages",
        parameters=parameters,
        subjects=[
            Subject(topic, channel, node, "\n".join(ids[start : start + BATCH]))
            for node, ids in found.ids.items()
            for start in range(0, len(ids), BATCH)
        ],
        by=by,
        origin=origin,
        remote_address=remote_address,
    )
