"""Clusters for the tests of ``nsq topics`` and the other commands on clusters, which run as processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, NamedTuple

from tests.harness import command, web
from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S


class Ended(NamedTuple):
    status: int
    output: str
    errors: str

    @property
    def document(self) -> Any:
        return json.loads(self.output)


class Fleet:
    """A registry and two registered brokers, which both have one topic with two channels."""

    def __init__(self, registry: Any, brokers: list[Any]) -> None:
        self.registry = registry
        self.brokers = brokers

    @property
    def nodes(self) -> list[str]:
        return sorted(broker.http_address for broker in self.brokers)

    async def nsq(self, *words: str, lookupd: bool = True, **options: Any) -> Ended:
        flags = [f"--lookupd-http-address={self.registry.http_address}"] if lookupd else []
        return await nsq(*words, *flags, **options)

    async def post(self, path: str, body: bytes = b"") -> None:
        async with web.async_client() as client:
            for broker in self.brokers:
                answer = await client.post(f"http://{broker.http_address}{path}", content=body)
                assert answer.status_code == 200, answer.text

    async def stats(self, broker: int) -> dict[str, Any]:
        async with web.async_client() as client:
            answer = await client.get(f"http://{self.brokers[broker].http_address}/stats?format=json")
            return {topic["topic_name"]: topic for topic in answer.json()["topics"]}


async def nsq(*words: str, stdin: int = asyncio.subprocess.DEVNULL, env: dict[str, str] | None = None) -> Ended:
    """Run ``manage.py nsq …`` to its end, without a terminal unless ``stdin`` is one."""
    if stdin == asyncio.subprocess.DEVNULL:
        ended = await asyncio.to_thread(command.nsq, *words, env=env)
        return Ended(ended.returncode, ended.stdout, ended.stderr)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "manage.py"),
        "nsq",
        *words,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )
    async with asyncio.timeout(DEADLINE_S):
        output, errors = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, output.decode(), errors.decode())
