"""The columns of the archive and of each job's result over HTTP: what they are called, and what they mean."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from nsqanalytics.jobs import JOBS
from nsqanalytics.meanings import meaning
from nsqanalytics.schema import ARROW_SCHEMA, COLUMNS
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
    name: str = Field(description="archive, or the name of a job")
    title: str
    columns: list[ColumnMeaningOut]


class TablesOut(Schema):
    tables: list[TableOut]


@router.get("columns", auth=needs(Permission.VIEW), response={200: TablesOut, **REFUSALS})
def columns(request: HttpRequest) -> TablesOut:
    """The columns of the archive's samples, then those of each job's result."""
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
    return TablesOut(tables=[_archive(), *results])


def _archive() -> TableOut:
    found = [
        ColumnMeaningOut(
            name=field.name,
            type=str(field.type),
            unit=COLUMNS[field.name].unit,
            nullable=field.nullable,
            meaning=COLUMNS[field.name].meaning,
        )
        for field in ARROW_SCHEMA
    ]
    return TableOut(name="archive", title="The archive", columns=found)
