"""Asking many at once, and what nsqadmin says of those that did not answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from cluster.directory import reason_of, system_error
from cluster.upstream import request_timeout_s

Model = TypeVar("Model", bound=BaseModel)


class UpstreamFailed(Exception):
    """Nobody could be asked; the text is nsqadmin's, after ``UPSTREAM_ERROR: ``."""


class NoAnswer(Exception):
    """One upstream's failure, in nsqadmin's words. ``status`` is its HTTP status, None where there was none."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class Warnings:
    """The failures of a request's steps. A step's are joined by line ends, steps by semicolons."""

    def __init__(self) -> None:
        self._steps: list[str] = []

    def add(self, failures: Sequence[NoAnswer]) -> None:
        if failures:
            self._steps.append("\n".join(map(str, failures)))

    def __str__(self) -> str:
        """The ``message`` of an answer: empty when all went well."""
        return "WARNING: " + "; ".join(self._steps) if self._steps else ""


async def ask(client: httpx.AsyncClient, url: str, model: type[Model]) -> Model:
    """GET. Raises NoAnswer."""
    try:
        async with asyncio.timeout(request_timeout_s()):
            response = await client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        raise NoAnswer(f'Get "{url}": {dialled(url, error)}') from None
    if response.status_code != 200:
        raise NoAnswer(
            f"got response {response.status_code} {response.reason_phrase} {json.dumps(response.text[:500])}",
            response.status_code,
        )
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise NoAnswer(f'Get "{url}": cannot read the answer: {where + ": " if where else ""}{first["msg"]}') from None


async def ask_all(
    client: httpx.AsyncClient, urls: Mapping[str, str], model: type[Model]
) -> tuple[dict[str, Model], list[NoAnswer]]:
    """All at once: the answers by their keys, and the failures, both in the order of ``urls``."""

    async def one(url: str) -> Model | NoAnswer:
        try:
            return await ask(client, url, model)
        except NoAnswer as failure:
            return failure

    found = dict(zip(urls, await asyncio.gather(*map(one, urls.values())), strict=True))
    answers = {key: answer for key, answer in found.items() if not isinstance(answer, NoAnswer)}
    return answers, [answer for answer in found.values() if isinstance(answer, NoAnswer)]


def nobody(kind: str, failures: Sequence[NoAnswer]) -> UpstreamFailed:
    """``kind`` is ``nsqd`` or ``nsqlookupd``."""
    return UpstreamFailed(f"failed to query any {kind}: " + "\n".join(map(str, failures)))


def dialled(url: str, error: Exception) -> str:
    """The rest of a failure's line, as Go's HTTP client words it where scripts may look for it."""
    where = httpx.URL(url).netloc.decode("ascii") if not isinstance(error, httpx.InvalidURL) else url
    if isinstance(error, httpx.ConnectTimeout):
        return f"dial tcp {where}: i/o timeout"
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
        return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    if isinstance(error, httpx.ConnectError) and (cause := system_error(error)) is not None and cause.errno:
        if cause.errno > 0:
            return f"dial tcp {where}: connect: {os.strerror(cause.errno).lower()}"
        return f"dial tcp: lookup {where}: {reason_of(error)}"
    if isinstance(error, httpx.RemoteProtocolError):
        return "EOF"
    return reason_of(error)
