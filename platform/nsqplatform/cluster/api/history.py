"""The figures of one series over time, and of all series over the last minutes."""

from __future__ import annotations

import threading
import time

import orjson
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from ninja.decorators import decorate_view
from ninja.errors import HttpError
from pydantic import AwareDatetime, Field

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.ranges import check_range
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster import selectors, store
from nsqplatform.cluster.history import records
from nsqplatform.cluster.history.recent import recent, shortened
from nsqplatform.cluster.history.series import known_part, step_for
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, View
from nsqplatform.clusters.current import PerCluster
from nsqplatform.compression import compressed
from nsqwire.figures import Scope

router = Router(tags=["cluster"])

DEFAULT_POINTS, MAX_POINTS = 1_000, 11_000
MAX_STEP_S = 86_400
EARLIEST = 0
LATEST = 4_102_444_800
"""1970 and 2100, in Unix seconds."""


class HistoryOut(Schema):
    step_s: int = Field(description="seconds from one value to the next: at least the requested step")
    times: list[int] = Field(
        description="Unix seconds of the start of each step, from the first known value to the last"
    )
    metrics: dict[str, list[float | None]] = Field(description="a column for each metric; null where it is unknown")


class RecentSeriesOut(Schema):
    scope: Scope
    names: list[str] = Field(
        description="topics; channels as topic/channel; ids of nodes; one empty name for the cluster"
    )
    times: list[int] = Field(description="Unix seconds, oldest first")
    phases: list[int] = Field(description="for each name, the seconds to be added to the times")
    metrics: dict[str, list[list[float | None]]] = Field(
        description="for each name, a value for each time, null where it is unknown; a single value if all are the same"
    )


class RecentOut(Schema):
    step_s: int = Field(description="seconds from one record to the next")
    series: list[RecentSeriesOut]


class RecentCache:
    """The last response for all series, which every browser requests when it reconnects. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[float, bytes] | None = None

    def answer(self, view: View) -> bytes:
        if view != EVERYTHING:
            return recent_json(view)
        with self._lock:  # concurrent callers wait for the same answer
            if self._kept is None or time.monotonic() - self._kept[0] > records.STEP_S / 2:
                self._kept = (time.monotonic(), recent_json(view))
            return self._kept[1]


cache = PerCluster(RecentCache)


def recent_json(view: View) -> bytes:
    """A RecentOut as JSON."""
    snapshot = selectors.snapshot()
    with store.connect() as redis:
        found = recent(redis, snapshot, view, int(time.time())) if snapshot else []
    series = [
        {
            "scope": each.scope,
            "names": each.names,
            "times": each.times,
            "phases": each.phases,
            "metrics": {name: shortened(column) for name, column in each.columns.items()},
        }
        for each in found
    ]
    return orjson.dumps({"step_s": records.STEP_S, "series": series})


@router.get(
    "history/recent",
    auth=needs(Permission.VIEW),
    response={200: RecentOut, 401: Message, 403: Message, 422: InvalidRequest, 503: Message},
)
@decorate_view(compressed)  # figures, without secrets that a compressed length could reveal
def last_minutes(
    request: HttpRequest, topic: str = Query("", max_length=300), node: str = Query("", max_length=300)
) -> HttpResponse:
    """The records of the last two minutes: of a topic and its channels, of a node, or of everything.

    If everything is requested, topics and channels have only the last minute, and only the metrics that lists show.
    """
    if topic and node:
        raise HttpError(422, "topic and node cannot be combined")
    return HttpResponse(cache().answer(View(topic or None, node or None)), content_type="application/json")


@router.get(
    "history",
    auth=needs(Permission.VIEW),
    response={200: HistoryOut, 401: Message, 403: Message, 422: InvalidRequest, 503: Message},
)
def history(
    request: HttpRequest,
    scope: Scope,
    topic: str = Query("", max_length=300),
    channel: str = Query("", max_length=300),
    node: str = Query("", max_length=300),
    series: str = Query("", max_length=300, description="metrics, separated by commas; empty: all of the scope"),
    since: AwareDatetime | None = Query(
        None, alias="from", description="RFC 3339 with a zone, or Unix seconds; an hour before `to` unless given"
    ),
    until: AwareDatetime | None = Query(None, alias="to", description="the same; now unless given"),
    step: int | None = Query(
        None, ge=records.STEP_S, le=MAX_STEP_S, description="seconds; about 1,000 points unless given, at most 11,000"
    ),
) -> HistoryOut:
    """Figures over time. The value of a step is the mean of a rate, the lowest number of clients, and the highest value
    of any other figure.

    The last days are kept in steps of 10 s, the last weeks by minute, older times by hour.
    """
    names = {"topic": (topic,), "channel": (topic, channel), "node": (node,), "cluster": ()}[scope]
    if not all(names):
        raise HttpError(422, f"a history of scope {scope} needs {'topic and channel' if scope == 'channel' else scope}")
    check_range(since, until, names=("from", "to"))
    kept = selectors.series(scope, "/".join(names), _metrics(scope, series))
    end = kept.now + records.STEP_S if until is None else int(until.timestamp())
    start = end - records.HOUR_S if since is None else int(since.timestamp())
    if not EARLIEST <= start < end <= LATEST:
        raise HttpError(422, "from must be before to, and both between 1970 and 2100")
    end = min(end, max(kept.now, start) + records.STEP_S)
    step_s = kept.step_kept(start, step or step_for(end - start, DEFAULT_POINTS))
    if (end - start) / step_s > MAX_POINTS:
        fits = -(-(end - start) // MAX_POINTS)
        advice = "choose a shorter time" if fits > MAX_STEP_S else f"use a step of at least {fits}"
        raise HttpError(422, f"more than {MAX_POINTS:,} points: {advice}")
    first, values = kept.read(start, end, step_s)
    begin, stop = known_part([*values.values()])
    return HistoryOut(
        step_s=step_s,
        times=[first + step_s * place for place in range(begin, stop)],
        metrics={metric: records.known(column[begin:stop]) for metric, column in values.items()},
    )


def _metrics(scope: Scope, series: str) -> list[str]:
    there = records.METRICS[scope]
    chosen = [name for name in series.split(",") if name] or there
    if unknown := [name for name in chosen if name not in there]:
        raise HttpError(422, f"series: scope {scope} has no {unknown[0]!r}; it has {', '.join(there)}")
    return [*dict.fromkeys(chosen)]
