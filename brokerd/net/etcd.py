"""etcd as the arbiter of a pair, through the JSON gateway of its v3 API (etcd 3.4 and later).

A pair has two keys below ``/nsq/<pair's name>/``: ``leader``, the election key, which is bound to a lease, and
``record`` (:mod:`brokerd.mirror.pair`). Each call is one request, except a campaign, which requests a lease first.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from brokerd.arbiter_address import EtcdAddress
from brokerd.mirror.election import ArbiterAnswer
from brokerd.mirror.pair import PairRecord
from brokerd.net.arbiter import ArbiterFailed, Leadership
from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.http_client import NotConnected, Server, ask
from nsqwire.foreign_json import UNREADABLE_JSON
from nsqwire.units import Seconds


class _Refused(ValueError):
    """etcd answered with another status than 200."""


class Etcd:
    """``timeout_s`` is that of each request, for all addresses together."""

    def __init__(self, address: EtcdAddress, *, timeout_s: Seconds, access: ArbiterAccess | None = None) -> None:
        """The default of ``access`` has no user, and the system's authorities for TLS."""
        self._access = access or ArbiterAccess()
        tls = (self._access.tls or ssl.create_default_context()) if address.has_tls else None
        self._servers = [Server(host, port, tls) for host, port in address.servers]
        self._token = ""
        self._timeout_s = timeout_s
        self._leader = _encoded(f"/nsq/{address.name}/leader")
        self._record = _encoded(f"/nsq/{address.name}/record")

    async def read(self) -> ArbiterAnswer:
        """See :meth:`brokerd.net.arbiter.Arbiter.read`."""
        ranges = [{"requestRange": {"key": key}} for key in (self._leader, self._record)]
        answer = await self._post("/v3/kv/txn", {"compare": [], "success": ranges, "failure": []})
        try:
            leader, record = (each["response_range"].get("kvs", []) for each in answer["responses"])
            return ArbiterAnswer(
                PairRecord.from_bytes(_decoded(record[0]["value"])) if record else None,
                int(record[0]["mod_revision"]) if record else 0,
                _decoded(leader[0]["value"]).decode() if leader else None,
            )
        except UNREADABLE_JSON as error:
            raise ArbiterFailed(f"its answer cannot be read: {error!r}") from None

    async def read_settled(self) -> ArbiterAnswer:
        """``read``: etcd itself ends leases."""
        return await self.read()

    async def campaign(self, member: str, record: PairRecord, revision: int, lease_s: int) -> Leadership | None:
        """See :meth:`brokerd.net.arbiter.Arbiter.campaign`."""
        granted = await self._post("/v3/lease/grant", {"TTL": lease_s})
        try:
            lease = str(granted["ID"])
        except KeyError:
            raise ArbiterFailed("its answer has no lease") from None
        put = [
            {"requestPut": {"key": self._leader, "value": _encoded(member), "lease": lease}},
            {"requestPut": {"key": self._record, "value": _encoded(record.to_bytes())}},
        ]
        try:
            won = await self._transact([self._nobody_leads, self._unchanged(revision)], put)
        except ArbiterFailed:
            with suppress(ArbiterFailed):
                await self.resign(lease)
            raise
        if won is None:
            await self.resign(lease)
            return None
        return Leadership(lease, won)

    async def renew(self, lease: str) -> bool:
        """See :meth:`brokerd.net.arbiter.Arbiter.renew`."""
        answer = await self._post("/v3/lease/keepalive", {"ID": lease})
        try:
            return int(answer["result"].get("TTL", 0)) > 0
        except UNREADABLE_JSON as error:
            raise ArbiterFailed(f"its answer cannot be read: {error!r}") from None

    async def write(self, lease: str, record: PairRecord, revision: int) -> int | None:
        """See :meth:`brokerd.net.arbiter.Arbiter.write`."""
        held = {"target": "LEASE", "key": self._leader, "result": "EQUAL", "lease": lease}
        put = [{"requestPut": {"key": self._record, "value": _encoded(record.to_bytes())}}]
        return await self._transact([held, self._unchanged(revision)], put)

    async def write_without_lead(self, record: PairRecord, revision: int) -> int | None:
        """See :meth:`brokerd.net.arbiter.Arbiter.write_without_lead`."""
        put = [{"requestPut": {"key": self._record, "value": _encoded(record.to_bytes())}}]
        return await self._transact([self._nobody_leads, self._unchanged(revision)], put)

    async def resign(self, lease: str) -> None:
        """See :meth:`brokerd.net.arbiter.Arbiter.resign`."""
        await self._post("/v3/lease/revoke", {"ID": lease})

    @property
    def _nobody_leads(self) -> dict[str, str]:
        return {"target": "CREATE", "key": self._leader, "result": "EQUAL", "createRevision": "0"}

    def _unchanged(self, revision: int) -> dict[str, str]:
        return {"target": "MOD", "key": self._record, "result": "EQUAL", "modRevision": str(revision)}

    async def _transact(self, compare: Sequence[object], success: Sequence[object]) -> int | None:
        answer = await self._post("/v3/kv/txn", {"compare": compare, "success": success, "failure": []})
        try:
            return int(answer["header"]["revision"]) if answer.get("succeeded") else None
        except UNREADABLE_JSON as error:
            raise ArbiterFailed(f"its answer cannot be read: {error!r}") from None

    async def _post(self, target: str, body: object) -> dict[str, Any]:
        """POST JSON, as the user if there is one. Raises ArbiterFailed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._access.user and not self._token:
                    await self._authenticate()
                try:
                    return await self._post_to_first(target, body)
                except _Refused as refusal:
                    if not self._access.user or "auth" not in str(refusal):
                        raise
                    await self._authenticate()  # etcd forgets tokens after a while
                    return await self._post_to_first(target, body)
        except TimeoutError:
            raise ArbiterFailed(f"no answer within {self._timeout_s:g} s") from None
        except (OSError, ValueError, RecursionError) as error:
            raise ArbiterFailed(str(error)) from error

    async def _authenticate(self) -> None:
        self._token = ""
        user = {"name": self._access.user, "password": self._access.password}
        self._token = str((await self._post_to_first("/v3/auth/authenticate", user)).get("token", ""))

    async def _post_to_first(self, target: str, body: object) -> dict[str, Any]:
        """POST to the first server that accepts a connection. Raises ArbiterFailed, OSError and ValueError.

        A server that failed becomes the last one to be asked: its machine may be lost.
        """
        failures = list[str]()
        headers = {"Authorization": self._token} if self._token else {}
        for server in tuple(self._servers):
            is_answered = False
            try:
                status, received = await ask(server, "POST", target, body, headers)
                is_answered = status == HTTPStatus.OK
            except NotConnected as error:
                failures.append(str(error))
                continue
            finally:
                if not is_answered:  # one assignment: the thread that renews the lease asks at the same time
                    self._servers = [*(each for each in self._servers if each != server), server]
            if not is_answered:
                raise _Refused(f"status {status} {received[:200].decode('utf-8', 'replace').strip()}".strip())
            answer = json.loads(received)
            if not isinstance(answer, dict):
                raise ValueError("its answer is no JSON object")
            return answer
        raise ArbiterFailed("; ".join(failures))


def _encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
