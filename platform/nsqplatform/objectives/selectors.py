"""Reading objectives, with their budgets and burn rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from django.http import Http404

from nsqplatform.accounts.schemas import ms
from nsqplatform.objectives.burn import DAY_S, HOUR_S, PAIRS, Counted, budget
from nsqplatform.objectives.burns import rates_of
from nsqplatform.objectives.models import Count, Objective
from nsqplatform.objectives.persistence import messages_since
from nsqplatform.objectives.schemas import BudgetHistoryOut, BurnOut, ObjectiveDetailOut, ObjectiveOut
from nsqplatform.objectives.status import status
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
    """The objective's window in unix seconds: it ends with the last count, and starts with an hour. Empty, at 0, until
    there are counts."""
    until = objective.counted_until or 0.0
    since = (until - objective.window_days * DAY_S) // HOUR_S * HOUR_S
    return max(since, 0.0), until


def described(objectives: Iterable[Objective]) -> list[ObjectiveOut]:
    uncounted = status()["uncounted"]
    return [ObjectiveOut.model_validate(_values(each, uncounted.get(str(each.pk), []))) for each in objectives]


def detail(objective: Objective) -> ObjectiveDetailOut:
    values = _values(objective, status()["uncounted"].get(str(objective.pk), []))
    return ObjectiveDetailOut.model_validate(values | {"history": history(objective)})


def _values(objective: Objective, uncounted: list[str]) -> dict[str, object]:
    since, until = window_of(objective)
    counted = messages_since([objective.pk], {"window": since}, until).get(objective.pk, {}).get("window", Counted())
    own = budget(counted, objective.target_percent)
    rates = rates_of([objective], until).get(objective.pk, {})
    limit_ns = objective.limit_ns
    has_counts = objective.counted_until is not None
    return {name: getattr(objective, name) for name in _COPIED} | {
        "created_at": ms(objective.created_at),
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
