"""nsqadmin's POST and DELETE endpoints, which use the platform's actions with permissions and audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from asgiref.sync import sync_to_async

from nsqcluster import Action, ClusterUnreachable, NotInCluster, Result
from nsqdaemon.http import HTTPError
from nsqplatform.accounts.models import AuditEntry, User
from nsqplatform.cluster.actions import services
from nsqplatform.cluster.actions.notification import Origin, notify, notify_all
from nsqplatform.nsqadmin import body
from nsqplatform.nsqadmin.reads import Reads
from nsqwire.names import is_valid_name

VERBS = {"pause": Action.PAUSE, "unpause": Action.UNPAUSE, "empty": Action.EMPTY}


class Performed(TypedDict):
    """The body of the answers. ``message`` names the servers that failed; ``results`` are those of every server."""

    message: str
    results: Sequence[Result]


class Writes:
    """The writes of one request, on behalf of its caller."""

    def __init__(self, user: User, origin: Origin) -> None:
        self.user = user
        self.origin = origin

    async def create(self, raw: bytes) -> Performed:
        given = body.read(raw, "topic", "channel")
        topic, channel = given["topic"], given["channel"] or None
        if not is_valid_name(topic):
            raise HTTPError(400, "INVALID_TOPIC")
        if channel is not None and not is_valid_name(channel):
            raise HTTPError(400, "INVALID_CHANNEL")
        return await self._act(Action.CREATE, topic, channel)

    async def act(self, raw: bytes, topic: str, channel: str | None) -> Performed:
        action = VERBS.get(body.read(raw, "action")["action"])
        if action is None:
            raise HTTPError(400, "INVALID_ACTION")
        return await self._act(action, topic, channel)

    async def delete(self, topic: str, channel: str | None) -> Performed:
        return await self._act(Action.DELETE, topic, channel)

    async def tombstone(self, raw: bytes, name: str, asking: Reads) -> Performed:
        """Tombstone a topic on a node. Raises as ``Reads.address_of``, so that no request can make us call an arbitrary
        address."""
        try:
            topic = body.read(raw, "topic")["topic"]
        except HTTPError:
            raise HTTPError(400, "INVALID_BODY") from None
        if not is_valid_name(topic):
            raise HTTPError(400, "INVALID_TOPIC")
        try:
            entry = await sync_to_async(services.tombstone)(
                user=self.user,
                topic=topic,
                node=name,
                address=await asking.address_of(name),
                remote_address=self._address,
            )
        except NotInCluster as error:
            raise HTTPError(404, f"{error.what.upper()}_NOT_FOUND") from None
        notify(self.origin, "tombstone_topic_producer", topic, node=name)
        return response_of(entry)

    async def _act(self, action: Action, topic: str, channel: str | None) -> Performed:
        if not is_valid_name(topic):  # it cannot exist; nodes would return errors
            raise HTTPError(404, "TOPIC_NOT_FOUND")
        if channel is not None and not is_valid_name(channel):
            raise HTTPError(404, "CHANNEL_NOT_FOUND")
        try:
            entry = await sync_to_async(services.act)(
                user=self.user, action=action, topic=topic, channel=channel, remote_address=self._address
            )
        except NotInCluster as error:
            raise HTTPError(404, f"{error.what.upper()}_NOT_FOUND") from None
        except ClusterUnreachable as error:
            raise HTTPError(502, f"UPSTREAM_ERROR: failed to query any {error.target}: {error}") from None
        notify_all(self.origin, action, topic, channel)
        return response_of(entry)

    @property
    def _address(self) -> str:
        return self.origin.peer.rpartition(":")[0].strip("[]")


class AllFailed(Exception):
    """No server performed the action; ``body`` has each server's error."""

    def __init__(self, body: Performed) -> None:
        super().__init__(body["message"])
        self.body = body


def response_of(entry: AuditEntry) -> Performed:
    """nsqadmin's ``message``, and the outcome on each node. Raises AllFailed."""
    results: Sequence[Result] = entry.results
    failures = [f"{each['target']} {each['node']}: {each['detail']}" for each in results if each["outcome"] != "done"]
    if entry.outcome == "failed":
        raise AllFailed({"message": "UPSTREAM_ERROR: " + "\n".join(failures), "results": results})
    return {"message": "WARNING: " + "\n".join(failures) if failures else "", "results": results}
