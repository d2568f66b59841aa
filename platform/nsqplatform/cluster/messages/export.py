"""Exports the messages of a channel that match a search, as NDJSON or CSV."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Literal

from typing_extensions import TypedDict

from nsqplatform.accounts import audit
from nsqplatform.accounts.models import User
from nsqplatform.cluster.actions.topic_nodes import NodeFailed
from nsqplatform.cluster.messages.hidden_paths import Visibility
from nsqplatform.cluster.messages.search import Found, Search

Format = Literal["ndjson", "csv"]


class ExportedMessage(TypedDict):
    """``published_at`` is ISO 8601 in UTC. ``body`` is null if it is withheld; ``encoding`` is that of ``body``.
    ``headers`` are by name; in CSV they are JSON, and empty without any."""

    node: str
    id: str
    state: str
    published_at: str
    attempts: int
    size: int
    visibility: Visibility
    encoding: Literal["utf-8", "base64"]
    body: str | None
    headers: dict[str, str]


def export_messages(*, user: User, search: Search, format: Format, remote_address: str) -> AsyncIterator[bytes]:
    """The lines of an export, which is recorded in the audit trail before the first line is sent.

    Raises NodeFailed if a node cannot be read: an export contains all messages that match, or ends with an error.
    """
    _require_all(search)
    audit.record(
        user=user,
        action="export messages",
        topic=search.channel.topic,
        channel=search.channel.channel,
        detail=f"{format}, {search.criteria.described}",
        remote_address=remote_address,
    )
    return _lines(search, csv_lines if format == "csv" else ndjson_lines, csv_head() if format == "csv" else b"")


async def _lines(search: Search, lines_of: Callable[[Sequence[Found]], bytes], head: bytes) -> AsyncIterator[bytes]:
    if head:
        yield head
    async with aclosing(search.pages()) as pages:
        async for page in pages:
            if page:
                yield await asyncio.to_thread(lines_of, page)
    _require_all(search)


def _require_all(search: Search) -> None:
    for part in search.nodes.values():
        if part["error"]:
            raise NodeFailed(f"the export would not be complete: node {part['node']}: {part['error']}")


def ndjson_lines(page: Sequence[Found]) -> bytes:
    return b"".join(json.dumps(exported(each), ensure_ascii=False).encode() + b"\n" for each in page)


def csv_head() -> bytes:
    return (",".join(ExportedMessage.__annotations__) + "\r\n").encode()


def csv_lines(page: Sequence[Found]) -> bytes:
    """Lines of CSV. A text that a spreadsheet would execute as a formula begins with an apostrophe."""
    lines = io.StringIO()
    writer = csv.writer(lines)
    for each in page:
        row = exported(each)
        headers = json.dumps(row["headers"], ensure_ascii=False) if row["headers"] else ""
        writer.writerow([audit.spreadsheet_safe(value) for value in (row | {"headers": headers}).values()])
    return lines.getvalue().encode()


def exported(found: Found) -> ExportedMessage:
    encoding: Literal["utf-8", "base64"] = "utf-8"
    try:
        body = found.visible.body.decode()
    except UnicodeDecodeError:
        encoding, body = "base64", b64encode(found.visible.body).decode()
    return ExportedMessage(
        node=found.node,
        id=found.message.id,
        state=found.message.state,
        published_at=datetime.fromtimestamp(found.message.timestamp / 1e9, UTC).isoformat(),
        attempts=found.message.attempts,
        size=found.message.size,
        visibility=found.visible.visibility,
        encoding=encoding,
        body=None if found.visible.visibility == "withheld" else body,
        headers=found.headers,
    )
