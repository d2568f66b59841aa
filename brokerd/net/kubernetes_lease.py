"""A Lease of Kubernetes as the arbiter of a pair.

One object of ``coordination.k8s.io/v1`` names the member that leads, in its spec as for every leader election in
Kubernetes, and has the pair's record, in annotations. A change is a read and an update. The API server refuses the
update if the object was changed in between; the change is then tried again, from the read.

Kubernetes does not end a Lease that is not renewed. As in client-go, a process considers it ended once it has seen no
change of it for the Lease's duration, by its own clock. The holder counts from before its last change, so it stops
earlier.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from brokerd.arbiter_address import LeaseAddress
from brokerd.mirror.election import ArbiterAnswer
from brokerd.mirror.pair import PairRecord
from brokerd.net.arbiter import ArbiterFailed, Leadership
from brokerd.net.arbiter_access import ArbiterAccess, InvalidAccess
from brokerd.net.http_client import Answer, Server, ask
from nsqwire.foreign_json import UNREADABLE_JSON
from nsqwire.units import Seconds

RECORD: Final = "nsq.io/pair"
"""The annotation with the record."""
REVISION: Final = "nsq.io/pair-revision"
"""The annotation with the number of changes of the record: the object's own version changes with each renewal."""
_ROUNDING_S: Final = 0.01
"""Added to a sleep, because event loops may wake a little early."""


class KubernetesLease:
    """``timeout_s`` is that of each call. ``now`` returns seconds of a clock that is never set."""

    def __init__(
        self,
        address: LeaseAddress,
        *,
        timeout_s: Seconds,
        access: ArbiterAccess | None = None,
        now: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """Raises InvalidAccess: outside of a cluster, or without the files of a service account."""
        directory = (access or ArbiterAccess()).service_account
        self._token_file = directory / "token"
        self._server = _api_server(str(directory / "ca.crt"))
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{address.namespace}/leases"
        self._address = address
        self._timeout_s = timeout_s
        self._now = now
        self._seen: tuple[str, Seconds] | None = None  # the object's version, and when it was first seen

    # -- calls: see brokerd.net.arbiter.Arbiter --------------------------------------------------------------------

    async def read(self) -> ArbiterAnswer:
        """See :meth:`brokerd.net.arbiter.Arbiter.read`."""
        return (await self._read())[0]

    async def read_settled(self) -> ArbiterAnswer:
        """``read``. If a member leads, ``read`` again after the time within which it has to renew the lease."""
        found, ends_in_s = await self._read()
        if found.leader is None:
            return found
        await asyncio.sleep(ends_in_s + _ROUNDING_S)
        return await self.read()

    async def campaign(self, member: str, record: PairRecord, revision: int, lease_s: int) -> Leadership | None:
        """See :meth:`brokerd.net.arbiter.Arbiter.campaign`."""
        tried = ""

        def take(lease: _Lease) -> bool:
            nonlocal tried
            if self._leader_of(lease) is not None or lease.revision != revision:
                return False
            tried = lease.take(member, lease_s)
            lease.set_record(record)
            return True

        try:
            won = await self._change(take)
        except ArbiterFailed:
            with suppress(ArbiterFailed):
                await self.resign(tried)
            raise
        return None if won is None else Leadership(tried, won.revision)

    async def renew(self, lease: str) -> bool:
        """See :meth:`brokerd.net.arbiter.Arbiter.renew`."""

        def renew(found: _Lease) -> bool:
            if found.token != lease:
                return False
            found.renew()
            return True

        return await self._change(renew) is not None

    async def write(self, lease: str, record: PairRecord, revision: int) -> int | None:
        """See :meth:`brokerd.net.arbiter.Arbiter.write`."""
        return await self._write(record, lambda found: found.token == lease and found.revision == revision)

    async def write_without_lead(self, record: PairRecord, revision: int) -> int | None:
        """See :meth:`brokerd.net.arbiter.Arbiter.write_without_lead`."""
        return await self._write(record, lambda found: self._leader_of(found) is None and found.revision == revision)

    async def resign(self, lease: str) -> None:
        """See :meth:`brokerd.net.arbiter.Arbiter.resign`."""

        def resign(found: _Lease) -> bool:
            if found.token != lease:
                return False
            found.free()
            return True

        await self._change(resign)

    # -- the object ------------------------------------------------------------------------------------------------

    async def _read(self) -> tuple[ArbiterAnswer, Seconds]:
        """The object's contents, and the time after which the Lease has ended unless it is renewed.

        Raises ArbiterFailed and InvalidRecord.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                lease = await self._get()
        except TimeoutError:
            raise self._late() from None
        leader = self._leader_of(lease)
        seen_at = self._now() if self._seen is None else self._seen[1]
        return ArbiterAnswer(lease.record, lease.revision, leader), max(0.0, seen_at + lease.duration_s - self._now())

    def _leader_of(self, lease: _Lease) -> str | None:
        """The member that leads; None if nobody does, or if the Lease has ended."""
        if self._seen is None or self._seen[0] != lease.version:
            self._seen = lease.version, self._now()
        if lease.holder is None or self._now() - self._seen[1] >= lease.duration_s:
            return None
        return lease.holder

    async def _write(self, record: PairRecord, may_write: Callable[[_Lease], bool]) -> int | None:
        def write(found: _Lease) -> bool:
            if not may_write(found):
                return False
            found.set_record(record)
            return True

        written = await self._change(write)
        return None if written is None else written.revision

    async def _change(self, change: Callable[[_Lease], bool]) -> _Lease | None:
        """Let ``change`` alter the object, and store it; None if it returned False. Raises ArbiterFailed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    lease = await self._get()
                    if not change(lease):
                        return None
                    if await self._put(lease):
                        return lease
        except TimeoutError:
            raise self._late() from None

    def _late(self) -> ArbiterFailed:
        return ArbiterFailed(f"no answer within {self._timeout_s:g} s")

    # -- requests --------------------------------------------------------------------------------------------------

    async def _get(self) -> _Lease:
        """The object; a new one if there is none. Raises ArbiterFailed."""
        answer = await self._ask("GET", f"{self._leases}/{self._address.name}")
        if answer.status == HTTPStatus.NOT_FOUND:
            return _Lease.new(self._address.name)
        if answer.status != HTTPStatus.OK:
            raise ArbiterFailed(_refusal(answer))
        try:
            return _Lease(json.loads(answer.body))
        except UNREADABLE_JSON as error:
            raise ArbiterFailed(f"its Lease {self._address.name} cannot be read: {error!r}") from None

    async def _put(self, lease: _Lease) -> bool:
        """Store the object; False if it was changed since it was read. Raises ArbiterFailed."""
        if lease.version:
            answer = await self._ask("PUT", f"{self._leases}/{self._address.name}", lease.to_json())
        else:
            answer = await self._ask("POST", self._leases, lease.to_json())
        if answer.status == HTTPStatus.CONFLICT:
            return False
        if answer.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise ArbiterFailed(_refusal(answer))
        return True

    async def _ask(self, method: str, target: str, body: object | None = None) -> Answer:
        """Send a request as the service account, whose token is replaced every hour. Raises ArbiterFailed."""
        try:
            headers = {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}
            return await ask(self._server, method, target, body, headers)
        except (OSError, ValueError) as error:
            raise ArbiterFailed(str(error)) from error


class _Lease:
    """The Lease object. Its other annotations, labels and fields are kept.

    Raises KeyError, ValueError, TypeError and AttributeError for JSON that is no Lease.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = deepcopy(fields)
        metadata = self._fields["metadata"]
        self._spec: dict[str, Any] = self._fields.setdefault("spec", {})
        self._annotations: dict[str, str] = metadata.setdefault("annotations", {})
        self.version = str(metadata.get("resourceVersion", ""))
        """Empty if the object does not exist yet."""
        self.revision = int(self._annotations.get(REVISION, 0))
        self.duration_s = int(self._spec.get("leaseDurationSeconds", 0))
        self._transitions = int(self._spec.get("leaseTransitions", 0))

    @classmethod
    def new(cls, name: str) -> _Lease:
        """An object that does not exist yet."""
        return cls({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}})

    @property
    def holder(self) -> str | None:
        """The member that holds the Lease, which may have ended; None if nobody does."""
        return self._spec.get("holderIdentity") or None

    @property
    def token(self) -> str:
        """Identifies one hold of the Lease by one member; empty if nobody holds it."""
        return f"{self._transitions}/{self.holder}" if self.holder else ""

    @property
    def record(self) -> PairRecord | None:
        """The pair's record. Raises InvalidRecord."""
        record = self._annotations.get(RECORD)
        return None if record is None else PairRecord.from_bytes(record.encode())

    def take(self, member: str, lease_s: int) -> str:
        """Give the Lease to a member, and return the token."""
        self._transitions += 1
        self.duration_s = lease_s
        self._spec |= {
            "holderIdentity": member,
            "leaseDurationSeconds": lease_s,
            "leaseTransitions": self._transitions,
            "acquireTime": _wall_clock(),
        }
        self.renew()
        return self.token

    def renew(self) -> None:
        """Set the time of the last renewal. Only people read it, but every change of the object renews the Lease."""
        self._spec["renewTime"] = _wall_clock()

    def free(self) -> None:
        """Take the Lease from its holder, by removing the name: Kubernetes refuses an empty one."""
        self._spec.pop("holderIdentity", None)

    def set_record(self, record: PairRecord) -> None:
        """Change the record, and count the change."""
        self.revision += 1
        self._annotations |= {RECORD: record.to_bytes().decode(), REVISION: str(self.revision)}

    def to_json(self) -> dict[str, Any]:
        """The object for the API server, with the version that it was read with."""
        return self._fields


def _wall_clock() -> str:
    """Kubernetes' MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _api_server(ca_file: str) -> Server:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port.isdigit():
        raise InvalidAccess(
            "--arbiter: kubernetes:// needs KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which a pod has"
        )
    try:
        return Server(host, int(port), ssl.create_default_context(cafile=ca_file))
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise InvalidAccess(f"--arbiter-service-account: {ca_file}: {reason}") from None
    except OSError as error:
        raise InvalidAccess(
            f"--arbiter-service-account: open {ca_file}: {os.strerror(error.errno or 0).lower()}"
        ) from None


def _refusal(answer: Answer) -> str:
    """The status, and the message of Kubernetes' Status object."""
    text = answer.body[:200].decode("utf-8", "replace").strip()
    with suppress(*UNREADABLE_JSON):
        text = str(json.loads(answer.body)["message"])
    return f"status {answer.status} {text}".strip()
