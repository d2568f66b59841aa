"""The audit trail over HTTP: filtered and paged, or as a download."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router, Schema
from pydantic import Field

from nsqplatform.accounts.audit import spreadsheet_safe
from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.accounts.ranges import check_range
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import (
    AuditEntryOut,
    AuditFacetsOut,
    AuditOut,
    AuditOutcome,
    InvalidRequest,
    Line,
    Message,
)
from nsqplatform.downloads import download, read_in_threads
from nsqplatform.unix_time import LATEST_MS, from_unix_ms, unix_ms
from nsqwire.units import Milliseconds

router = Router(tags=["audit"], auth=needs(Permission.VIEW))
REFUSALS: dict[int, Any] = {401: Message, 403: Message, 422: InvalidRequest}
COLUMNS = (
    *("id", "at", "user", "via", "action", "topic", "channel", "subject", "outcome", "detail", "remote_address"),
    *("job", "subject_count"),
)
CHUNK_ROWS = 500


class Filters(Schema):
    """An entry matches if it satisfies all given filters."""

    user: Line | None = Field(None, max_length=150, description="the exact name; empty: unknown callers")
    action: Line | None = Field(None, max_length=32)
    object: Line = Field("", max_length=200, description="part of the topic, channel or subject, in any case")
    outcome: AuditOutcome | None = None
    job: int | None = Field(None, ge=0, lt=2**63, description="the entries of this job's subjects")
    since: Milliseconds | None = Field(None, ge=0, le=LATEST_MS, description="Unix milliseconds")
    until: Milliseconds | None = Field(None, ge=0, le=LATEST_MS, description="Unix milliseconds, not included")


@router.get("", response={200: AuditOut, **REFUSALS})
def audit(
    request: HttpRequest,
    filters: Query[Filters],
    before: int | None = Query(None, ge=0, lt=2**63),
    limit: int = Query(50, ge=1, le=500),
) -> AuditOut:
    """Who did what, newest first; ``before`` is the id of the last entry already seen.

    A job is listed as one entry. The entries of its subjects are listed only if the filters name the job or an object.
    """
    found = matching(filters)
    if filters.job is None and not filters.object.strip():
        found = found.filter(Q(job=None) | Q(subject_count__isnull=False))
    if before is not None:
        found = found.filter(pk__lt=before)
    return AuditOut(entries=[described(entry) for entry in found[:limit]])


@router.get("facets", response={200: AuditFacetsOut, **REFUSALS})
def facets(request: HttpRequest) -> AuditFacetsOut:
    """The users and actions that occur in the audit trail."""
    entries = AuditEntry.objects.order_by()
    return AuditFacetsOut(
        users=sorted(entries.values_list("user", flat=True).distinct()),
        actions=sorted(entries.values_list("action", flat=True).distinct()),
    )


@router.get("export.csv", response={200: None, **REFUSALS})
def export_csv(request: HttpRequest, filters: Query[Filters]) -> StreamingHttpResponse:
    """All entries that match, newest first; times are ISO 8601 in UTC, ``results`` is JSON."""
    return download(read_in_threads(csv_lines(matching(filters))), "text/csv; charset=utf-8", "audit.csv")


@router.get("export.json", response={200: None, **REFUSALS})
def export_json(request: HttpRequest, filters: Query[Filters]) -> StreamingHttpResponse:
    """All entries that match, as one JSON list."""
    return download(read_in_threads(json_lines(matching(filters))), "application/json", "audit.json")


def matching(filters: Filters) -> QuerySet[AuditEntry]:
    """Raises ValidationError for a range that ends before it begins."""
    check_range(filters.since, filters.until)
    found = AuditEntry.objects.all()
    if filters.user is not None:
        found = found.filter(user=filters.user)
    if filters.action is not None:
        found = found.filter(action=filters.action)
    if filters.outcome is not None:
        found = found.filter(outcome=filters.outcome)
    if filters.job is not None:
        found = found.filter(job=filters.job, subject_count=None)
    for word in filters.object.split():
        found = found.filter(Q(topic__icontains=word) | Q(channel__icontains=word) | Q(subject__icontains=word))
    if filters.since is not None:
        found = found.filter(at__gte=from_unix_ms(filters.since))
    if filters.until is not None:
        found = found.filter(at__lt=from_unix_ms(filters.until))
    return found


def described(entry: AuditEntry) -> AuditEntryOut:
    values = {name: getattr(entry, name) for name in (*COLUMNS, "results")} | {"at": unix_ms(entry.at)}
    return AuditEntryOut.model_validate(values)


def csv_lines(entries: QuerySet[AuditEntry]) -> Iterator[str]:
    yield ",".join((*COLUMNS, "results")) + "\r\n"
    for entry in entries.iterator(chunk_size=CHUNK_ROWS):
        line = io.StringIO()
        values = [entry.at.isoformat() if name == "at" else getattr(entry, name) for name in COLUMNS]
        csv.writer(line).writerow([*map(spreadsheet_safe, values), json.dumps(entry.results)])
        yield line.getvalue()


def json_lines(entries: QuerySet[AuditEntry]) -> Iterator[str]:
    before = "["
    for entry in entries.iterator(chunk_size=CHUNK_ROWS):
        yield before + json.dumps(described(entry).model_dump())
        before = ",\n"
    yield "[]" if before == "[" else "]\n"
