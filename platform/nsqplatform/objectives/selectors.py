"""Reading objectives, with their budgets and burn rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from django.http import Http404

from nsqplatform.objectives.burn import DAY_S, HOUR_S, PAIRS, Counted, budget
from nsqplatform.objectives.burns import rates_of
from nsqplatform.objectives.models import Count, Objective
from nsqplatform.objectives.persistence import messages_since
from nsqplatform.objectives.schemas import BudgetHistoryOut, BurnOut, ObjectiveDetailOut, ObjectiveOut
from nsqplatform.objectives.status import status
from nsqplatform.unix_time import unix_ms
from nsqwire.units import Milliseconds, Seconds

_COPIED = (
    *("id", "name", "kind", "threshold_ms", "target_percent", "window_days"),
    *("topic_pattern", "channel_pattern", "created_by"),
)


def objective(objective_id: int) -> Objective:
    """Raises Http404."""
    found = Objective.objects.filter(pk=objective_id).first()
    if found is None:
        raise Http404(f"there is no objective {objective_id}")
    return found


def window_of(objective: Objective) -> tuple[Seconds, Seconds]:
    """The objective's window in Unix seconds: it ends with the last count, and starts with an hour. Empty, at 0, until
    there are counts."""
    until = objective.counted_until or 0.0
    since = (until - objective.window_days * DAY_S) // HOUR_S * HOUR_S
    return max(since, 0.0), until


def described(objectives: Iterable[Objective]) -> list[ObjectiveOut]:
    return [ObjectiveOut.model_validate(values) for values in _values(list(objectives))]


def detail(objective: Objective) -> ObjectiveDetailOut:
    [values] = _values([objective])
    return ObjectiveDetailOut.model_validate(values | {"history": history(objective)})


def _values(objectives: Sequence[Objective]) -> list[dict[str, object]]:
    """The values of the objectives. They need two queries for each time until which some are counted: usually one."""
    uncounted = status()["uncounted"]
    counted: dict[int, Counted] = {}
    rates: dict[int, dict[str, float]] = {}
    by_end: defaultdict[Seconds, list[Objective]] = defaultdict(list)
    for each in objectives:
        if each.counted_until is not None:
            by_end[each.counted_until].append(each)
    for until, those in by_end.items():
        windows = {str(each.window_days): window_of(each)[0] for each in those}
        found = messages_since([each.pk for each in those], windows, until)
        counted |= {each.pk: found.get(each.pk, {}).get(str(each.window_days), Counted()) for each in those}
        rates |= rates_of(those, until)
    return [
        _of(each, counted.get(each.pk, Counted()), rates.get(each.pk, {}), uncounted.get(str(each.pk), []))
        for each in objectives
    ]


def _of(
    objective: Objective, counted: Counted, rates: Mapping[str, float], uncounted: Sequence[str]
) -> dict[str, object]:
    since, _ = window_of(objective)
    own = budget(counted, objective.target_percent)
    limit_ns = objective.limit_ns
    has_counts = objective.counted_until is not None
    return {name: getattr(objective, name) for name in _COPIED} | {
        "created_at": unix_ms(objective.created_at),
        "limit_ms": None if limit_ns is None else limit_ns / 1e6,
        "counted_since": _ms(objective.counted_since),
        "counted_until": _ms(objective.counted_until),
        "window_since": _ms(since) if has_counts else None,
        "good": counted.good,
        "bad": counted.bad,
        "good_percent": 100 * counted.good / counted.total if counted.total else None,
        "allowed": own.allowed,
        "left": own.left,
        "left_percent": own.left_percent,
        "burns": [
            BurnOut(
                metric=pair.metric,
                long=pair.long,
                short=pair.short,
                limit=pair.limit,
                long_rate=rates.get(pair.long),
                short_rate=rates.get(pair.short),
            )
            for pair in PAIRS
        ],
        "uncounted_nodes": uncounted,
    }


def history(objective: Objective) -> BudgetHistoryOut:
    """The hours of the objective's window."""
    since, until = window_of(objective)
    hours: defaultdict[int, Counted] = defaultdict(Counted)
    rows = Count.objects.filter(objective=objective, at__gte=since, at__lt=until)
    for at, good, bad in rows.values_list("at", "good", "bad"):
        hour = at // HOUR_S * HOUR_S
        hours[hour] = Counted(hours[hour].good + good, hours[hour].bad + bad)
    times = sorted(hours)
    total = Counted(sum(each.good for each in hours.values()), sum(each.bad for each in hours.values()))
    allowed = budget(total, objective.target_percent).allowed
    left, bad = [], 0
    for at in times:
        bad += hours[at].bad
        left.append(100 * (allowed - bad) / allowed)
    return BudgetHistoryOut(
        at=[at * 1000 for at in times],
        good=[hours[at].good for at in times],
        bad=[hours[at].bad for at in times],
        left_percent=left,
    )


def _ms(at: Seconds | None) -> Milliseconds | None:
    return None if at is None else int(at * 1000)
