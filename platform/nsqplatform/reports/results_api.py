"""Results of runs over HTTP: pages of matching rows, data of charts over all matching rows, downloads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TypedDict

from django.core.exceptions import ValidationError
from django.http import FileResponse, HttpRequest, StreamingHttpResponse
from ninja import Query, Router
from ninja.errors import HttpError

from nsqanalytics.heat import MAX_COLUMNS, heat
from nsqanalytics.meanings import meaning
from nsqanalytics.parameters import BadParameter
from nsqanalytics.results import Selection
from nsqanalytics.series import MAX_POINTS, Series, calendar, groups, series
from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.ranges import check_range
from nsqplatform.accounts.roles import Permission
from nsqplatform.downloads import download, read_in_threads
from nsqplatform.reports import selectors
from nsqplatform.reports.api import REFUSALS
from nsqplatform.reports.document.pdf import browser
from nsqplatform.reports.schemas import (
    CalendarDay,
    CalendarOut,
    ColumnOut,
    GroupOut,
    GroupsOut,
    HeatCellOut,
    HeatOut,
    ObjectiveName,
    ResultPage,
    RowsIn,
    SeriesOut,
)
from nsqplatform.reports.selectors import NoResult
from nsqplatform.unix_time import from_unix_ms

router = Router(tags=["reports"])


class Page(TypedDict):
    """A ResultPage. It is validated only once, as the response, because it may have 10,000 rows."""

    columns: list[ColumnOut]
    rows: list[list[str | int | float | None]]
    total: int
    matching: int
    hours: str
    pdf: bool
    covered: dict[str, int]


@router.get("runs/{int:run_id}/result", auth=needs(Permission.VIEW), response={200: ResultPage, **REFUSALS})
def result(
    request: HttpRequest,
    run_id: int,
    rows: Query[RowsIn],
    limit: int = Query(1000, ge=1, le=10_000),
    offset: int = Query(0, ge=0, lt=2**63),
    sort: str = Query("", max_length=100, description="a column, with a leading - for descending"),
    columns: str = Query("", max_length=1000, description="names, separated by commas; empty: all"),
) -> Page:
    """A page of the matching rows, each a list in the order of ``columns``."""
    with _refusals():
        selection, found = _selection(rows), selectors.result(run_id)
        wanted = columns.split(",") if columns else [column.name for column in found.columns]
        page = found.page(offset, limit, selection, sort=sort, columns=wanted)
        matching = found.count(selection)
    job = selectors.run(run_id).job
    by_name = {column.name: ColumnOut(**asdict(column), meaning=meaning(job, column.name)) for column in found.columns}
    return {
        "columns": [by_name[name] for name in wanted],
        "rows": page,
        "total": found.total,
        "matching": matching,
        "hours": found.hours,
        "pdf": browser() is not None,
        "covered": found.covered,
    }


@router.get("runs/{int:run_id}/result/groups", auth=needs(Permission.VIEW), response={200: GroupsOut, **REFUSALS})
def result_groups(request: HttpRequest, run_id: int) -> GroupsOut:
    """The topics and channels in the result, the worst first."""
    with _refusals():
        found_result, worst = selectors.result(run_id), selectors.run(run_id).worst
        found = groups(found_result, worst if worst in found_result.names else "")
    return GroupsOut(groups=[GroupOut(**group._asdict()) for group in found])


@router.get("runs/{int:run_id}/result/series", auth=needs(Permission.VIEW), response={200: SeriesOut, **REFUSALS})
def result_series(
    request: HttpRequest,
    run_id: int,
    rows: Query[RowsIn],
    figures: str = Query(..., max_length=1000, description="names of columns, separated by commas"),
    points: int = Query(1000, ge=1, le=MAX_POINTS, description="maximum number of points"),
) -> Series:
    """Figures over time of all matching rows, for a chart. If there are more windows than ``points``, adjacent windows
    share a point."""
    with _refusals():
        selection = _selection(rows)
        found = series(selectors.result(run_id), selection, figures.split(","), points)
    return found


@router.get("runs/{int:run_id}/result/heat", auth=needs(Permission.VIEW), response={200: HeatOut, **REFUSALS})
def result_heat(
    request: HttpRequest,
    run_id: int,
    rows: Query[RowsIn],
    points: int = Query(120, ge=1, le=MAX_COLUMNS, description="maximum number of columns of time"),
) -> HeatOut:
    """Messages of all matching rows of a latency report by time and latency, from the histograms."""
    with _refusals():
        selection = _selection(rows)
        found = heat(selectors.result(run_id), selection, points)
    cells = [HeatCellOut(at=cell.at, band=cell.band, count=cell.count) for cell in found.cells]
    return HeatOut(step_ms=found.step_ms, bounds_ms=found.bounds_ms, times=found.times, cells=cells)


@router.get("runs/{int:run_id}/result/calendar", auth=needs(Permission.VIEW), response={200: CalendarOut, **REFUSALS})
def result_calendar(request: HttpRequest, run_id: int, rows: Query[RowsIn], objective: ObjectiveName) -> CalendarOut:
    """For each UTC day, the number of messages whose windows met the target, over all matching topics and channels."""
    with _refusals():
        selection = _selection(rows)
        days = calendar(selectors.result(run_id), objective, selection)
    return CalendarOut(days=[CalendarDay(at=at, held=held, total=total) for at, held, total in days])


def _selection(rows: RowsIn) -> Selection:
    check_range(rows.since, rows.until)
    return Selection(
        topic=rows.topic,
        channel=rows.channel,
        figure=rows.figure,
        since=None if rows.since is None else from_unix_ms(rows.since),
        until=None if rows.until is None else from_unix_ms(rows.until),
        words=rows.words,
    )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except NoResult as error:
        raise HttpError(404, str(error)) from None
    except BadParameter as error:
        raise ValidationError({error.parameter: error.reason} if error.parameter else error.reason) from None


@router.get("runs/{int:run_id}/result.parquet", auth=needs(Permission.VIEW), response={200: None, **REFUSALS})
def result_parquet(request: HttpRequest, run_id: int) -> FileResponse:
    """The whole result as Parquet, with units in its metadata."""
    job = selectors.run(run_id).job
    with _refusals():
        file = selectors.parquet(run_id)
    return FileResponse(file.open("rb"), as_attachment=True, filename=f"{job}-{run_id}.parquet")


@router.get("runs/{int:run_id}/result.csv", auth=needs(Permission.VIEW), response={200: None, **REFUSALS})
def result_csv(request: HttpRequest, run_id: int) -> StreamingHttpResponse:
    """The whole result as CSV."""
    job = selectors.run(run_id).job
    with _refusals():
        pieces = selectors.result(run_id).csv()
    return download(read_in_threads(pieces), "text/csv; charset=utf-8", f"{job}-{run_id}.csv")
