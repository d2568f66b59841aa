"""The columns of the archive and of each job's result over HTTP: what they are called, and what they mean."""

from __future__ import annotations

import pyarrow as pa
from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from nsqanalytics.job_list import JOBS
from nsqanalytics.life_events import EVENT_SCHEMA
from nsqanalytics.meanings import meaning
from nsqanalytics.schema import ARROW_SCHEMA
from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.reports.api import REFUSALS

router = Router(tags=["reports"])


class ColumnMeaningOut(Schema):
    name: str
    type: str = Field(description="of the archive, Arrow's; of a result, timestamp, string, integer, number, histogram")
    unit: str = Field(description="empty if there is none")
    nullable: bool = Field(description="whether it may be empty")
    meaning: str


class TableOut(Schema):
    name: str = Field(description="archive, archive/lives, or the name of a job")
    title: str
    columns: list[ColumnMeaningOut]


class TablesOut(Schema):
    tables: list[TableOut]


@router.get("columns", auth=needs(Permission.VIEW), response={200: TablesOut, **REFUSALS})
def columns(request: HttpRequest) -> TablesOut:
    """The columns of the archive's samples and of its events of sampled messages, then those of each job's result."""
    results = [
        TableOut(
            name=job.name,
            title=job.title,
            columns=[
                ColumnMeaningOut(
                    name=figure.name,
                    type=figure.type,
                    unit=figure.unit,
                    nullable=figure.nullable,
                    meaning=meaning(job.name, figure.name),
                )
                for figure in job.figures
            ],
        )
        for job in JOBS.values()
    ]
    archived = [
        _archived("archive", "The archive", ARROW_SCHEMA),
        _archived("archive/lives", "The archive: events of sampled messages", EVENT_SCHEMA),
    ]
    return TablesOut(tables=[*archived, *results])


def _archived(name: str, title: str, schema: pa.Schema) -> TableOut:
    found = [
        ColumnMeaningOut(
            name=field.name,
            type=str(field.type),
            unit=field.metadata[b"unit"].decode(),
            nullable=field.nullable,
            meaning=field.metadata[b"meaning"].decode(),
        )
        for field in schema
    ]
    return TableOut(name=name, title=title, columns=found)
