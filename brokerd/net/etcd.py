"""etcd as the arbiter of a pair, by the JSON gateway of its v3 API (etcd 3.4 and later).

Two keys below ``/nsq/<pair's name>/``: ``leader``, the election key, which is bound to a lease, and ``record``
(:mod:`brokerd.mirror.pair`). Each call is one request, but a campaign, which is granted a lease first.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import httptools

from brokerd.arbiter_address import parse_arbiter
from brokerd.mirror.election import Found
from brokerd.mirror.pair import PairRecord
from brokerd.net.etcd_access import EtcdAccess
from nsqwire.units import Seconds

MAX_ANSWER_BYTES: Final = 1024 * 1024


class ArbiterFailed(Exception):
    """The arbiter did not answer, or not as expected; whether it did what was asked is not known."""


class _Refused(ValueError):
    """etcd answered with another status than 200."""


class Leadership(NamedTuple):
    """A lead that was granted: the lease, and the revision of the record."""

    lease: str
    revision: int


class Etcd:
    """The four calls to an arbiter. ``timeout_s`` is that of each request, for all addresses together."""

    def __init__(self, address: str, *, timeout_s: Seconds, access: EtcdAccess | None = None) -> None:
        """``access`` is by default without a user, and with the system's authorities for TLS. Raises InvalidArbiter."""
        self._servers, name, has_tls = parse_arbiter(address)
        self._access = access or EtcdAccess()
        self._tls = (self._access.tls or ssl.create_default_context()) if has_tls else None
        self._token = ""
        self._timeout_s = timeout_s
        self._leader, self._record = _encoded(f"/nsq/{name}/leader"), _encoded(f"/nsq/{name}/record")

    async def read(self) -> Found:
        """Read the election key and the record together. Raises ArbiterFailed and InvalidRecord."""
        ranges = [{"requestRange": {"key": key}} for key in (self._leader, self._record)]
        answer = await self._post("/v3/kv/txn", {"compare": [], "success": ranges, "failure": []})
        try:
            leader, record = (each["response_range"].get("kvs", []) for each in answer["responses"])
            return Found(
                PairRecord.from_bytes(_decoded(record[0]["value"])) if record else None,
                int(record[0]["mod_revision"]) if record else 0,
                _decoded(leader[0]["value"]).decode() if leader else None,
            )
        except (KeyError, ValueError, TypeError) as error:
            raise ArbiterFailed(f"its answer cannot be read: {error!r}") from None

    async def campaign(self, member: str, record: PairRecord, revision: int, lease_s: int) -> Leadership | None:
        """Take the lead if nobody has it and the record has this revision, 0 for none; None if not.

        Raises ArbiterFailed. If it is not known who has won, the lease is ended, so that nobody waits for its end.
        """
        granted = await self._post("/v3/lease/grant", {"TTL": lease_s})
        lease = str(granted.get("ID", ""))
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
        """Renew the lease; False if it has ended. Raises ArbiterFailed."""
        answer = await self._post("/v3/lease/keepalive", {"ID": lease})
        try:
            return int(answer["result"].get("TTL", 0)) > 0
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise ArbiterFailed(f"its answer cannot be read: {error!r}") from None

    async def write(self, lease: str, record: PairRecord, revision: int) -> int | None:
        """Write the record if the lease holds the election key and the record has this revision.

        Returns the new revision; None if it was not written. Raises ArbiterFailed.
        """
        held = {"target": "LEASE", "key": self._leader, "result": "EQUAL", "lease": lease}
        put = [{"requestPut": {"key": self._record, "value": _encoded(record.to_bytes())}}]
        return await self._transact([held, self._unchanged(revision)], put)

    async def write_without_lead(self, record: PairRecord, revision: int) -> int | None:
        """Write the record if nobody leads and it has this revision. Returns as ``write``. Raises ArbiterFailed."""
        put = [{"requestPut": {"key": self._record, "value": _encoded(record.to_bytes())}}]
        return await self._transact([self._nobody_leads, self._unchanged(revision)], put)

    async def resign(self, lease: str) -> None:
        """End a lease, and with it the lead. Raises ArbiterFailed."""
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
        except (KeyError, ValueError, TypeError) as error:
            raise ArbiterFailed(f"its answer cannot be read: {error!r}") from None

    async def _post(self, target: str, body: object) -> Any:
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
        except (OSError, httptools.HttpParserError, ValueError) as error:
            raise ArbiterFailed(str(error)) from error

    async def _authenticate(self) -> None:
        self._token = ""
        user = {"name": self._access.user, "password": self._access.password}
        self._token = str((await self._post_to_first("/v3/auth/authenticate", user)).get("token", ""))

    async def _post_to_first(self, target: str, body: object) -> Any:
        """POST to the first server that accepts a connection. Raises ArbiterFailed, OSError and ValueError.

        The next request begins with another server than one that failed: the machine of that one may be lost.
        """
        failures = list[str]()
        for server in tuple(self._servers):
            shown, is_answered = f"{server[0]}:{server[1]}", False
            try:
                try:
                    reader, writer = await asyncio.open_connection(*server, ssl=self._tls)
                except OSError as error:
                    failures.append(f"{shown}: {error}")
                    continue
                try:
                    answer = await _post(reader, writer, shown, target, body, self._token)
                finally:
                    writer.close()
                is_answered = True
                return answer
            finally:
                if not is_answered and server in self._servers:
                    self._servers.remove(server)
                    self._servers.append(server)
        raise ArbiterFailed("; ".join(failures))


def _encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)


class _Answer:
    """The callbacks of httptools for one response."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


async def _post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, target: str, body: object, token: str
) -> Any:
    data = json.dumps(body).encode()
    head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: {token}\r\n" if token else ""
    writer.write(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    while not answer.complete and (received := await reader.read(65536)):
        parser.feed_data(received)
        if len(answer.body) > MAX_ANSWER_BYTES:
            raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    status = parser.get_status_code() if answer.complete or answer.body else 0
    if status != 200:
        text = bytes(answer.body[:200]).decode("utf-8", "replace").strip()
        if not status:
            raise ValueError("the connection was closed without an answer")
        raise _Refused(f"status {status} {text}".strip())
    return json.loads(bytes(answer.body))
