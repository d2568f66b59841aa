"""Adds the figures of an earlier period to the rows of a report."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from nsqanalytics.job_parameters import ComparedScope
from nsqanalytics.rollups import Rollups
from nsqanalytics.span import Span
from nsqanalytics.tables import Earlier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compared(
    rows_of: Callable[[Span], DataFrame],
    rollups: Rollups,
    args: ComparedScope,
    span: Span,
    window: timedelta,
    columns: Earlier,
    *,
    whole: bool = False,
) -> tuple[DataFrame, Span | None]:
    """Return the rows of the span with ``columns``, and the period that they are compared with.

    The latter is None if there is no comparison, or if the archive has nothing of that period, or with ``whole`` not
    all of it.
    """
    from nsqanalytics.transforms.earlier import with_earlier

    shift = args.shift(window)
    earlier = None if shift is None else _archived(rollups, span.earlier(shift), window, whole=whole)
    if shift is None or earlier is None:
        return with_earlier(rows_of(span), None, columns, timedelta(0)), None
    return with_earlier(rows_of(span), rows_of(earlier), columns, shift), earlier


def comparable(rollups: Rollups, earlier: Span, shift: timedelta) -> tuple[Span, Span]:
    """Return the parts of a period and of ``earlier``, which is ``shift`` before it, that can both be counted.

    They are equally long, and empty if there is nothing to compare. If the shift is not a whole number of hours,
    cutting one at an hour whose samples were removed may move the end of the other into another such hour.
    """
    while True:
        counted = rollups.countable(earlier)
        span = rollups.countable(counted.earlier(-shift))
        earlier = span.earlier(shift)
        if earlier == counted or span.since >= span.until:
            return span, earlier


def _archived(rollups: Rollups, span: Span, window: timedelta, *, whole: bool) -> Span | None:
    """Return the part of the span that can be counted in these windows; None if there is none, or with ``whole`` if it
    is not all.

    The archive has all of a span if it has hours at or before its start. Hours without readings after that are gaps,
    not missing archive.
    """
    counted = rollups.countable(span, window)
    first = counted.since.replace(minute=0, second=0, microsecond=0)
    if counted.since >= counted.until or not rollups.between(first, counted.until):
        return None
    return None if whole and (counted != span or first < next(iter(rollups.hours))) else counted
