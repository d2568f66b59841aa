"""The collector's reads and writes of objectives in the database. The functions block."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import orjson
from django.db import transaction
from django.db.models import Q, Sum

from nsqplatform.objectives.burn import DAY_S, HOUR_S, LONGEST_S, MINUTE_S, Counted
from nsqplatform.objectives.models import Count, Last, Objective
from nsqplatform.objectives.tally import Step, Totals, Watched
from nsqwire.units import Seconds

MINUTES_KEPT_S = LONGEST_S + DAY_S
"""Older minutes are added up to hours."""


def objectives() -> list[Objective]:
    return list(Objective.objects.all())


def lasts() -> dict[tuple[int, str], Totals]:
    """The last reading of each node that is in each objective's counts, by objective and node."""
    found = {}
    for each in Last.objects.filter(objective__in=Objective.objects.all()):
        stored = orjson.loads(zlib.decompress(each.totals))
        keys = [(topic, channel) for topic, channel in stored["keys"]]
        numbers = np.array(stored["numbers"], np.int64).reshape(-1, 4)
        totals = Totals(boot=each.boot, taken_at=each.taken_at, keys=keys, numbers=numbers)
        found[each.objective_id, each.node] = totals
    return found


def save(
    counts: Mapping[Step, Counted],
    watched: Iterable[Watched],
    lasts: Mapping[tuple[int, str], Totals],
    *,
    until: Seconds,
) -> list[Objective]:
    """Add the counts to those that are stored, in one transaction, and return the objectives. ``until``: all readings
    taken before this time are in the counts, in Unix seconds. ``lasts``: the last of these, by objective and node.

    Objectives that were deleted, or whose counts a person has reset, since they were read are left out: their rows are
    locked, so that neither can happen meanwhile.
    """
    counting = {each.objective.pk: each for each in watched}
    with transaction.atomic():
        there = [
            each
            for each in Objective.objects.select_for_update().filter(pk__in=counting).order_by("pk")
            if each.revision == counting[each.pk].objective.revision
        ]
        known = {each.pk for each in there}
        kept = {step: counted for step, counted in counts.items() if step.objective in known}
        _add(kept)
        _keep_lasts({key: totals for key, totals in lasts.items() if key[0] in known})
        for each in there:
            if each.counted_since is None:
                each.counted_since = counting[each.pk].since
            each.counted_until = max(until, each.counted_until or each.counted_since)
        Objective.objects.bulk_update(there, ["counted_since", "counted_until"])
        return there


def _add(counts: Mapping[Step, Counted]) -> None:
    if not counts:
        return
    steps = [*counts]
    stored = Count.objects.filter(
        objective__in={step.objective for step in steps},
        at__gte=min(step.at for step in steps),
        at__lte=max(step.at for step in steps),
    )
    before = {Step(each.objective_id, each.at, each.step_s): each for each in stored}
    rows = []
    for step, counted in counts.items():
        row = before.get(step) or Count(objective_id=step.objective, at=step.at, step_s=step.step_s, good=0, bad=0)
        row.good += counted.good
        row.bad += counted.bad
        row.pk = None
        rows.append(row)
    Count.objects.bulk_create(
        rows,
        batch_size=1000,
        update_conflicts=True,
        unique_fields=["objective", "step_s", "at"],
        update_fields=["good", "bad"],
    )


def _keep_lasts(lasts: Mapping[tuple[int, str], Totals]) -> None:
    rows = [
        Last(
            objective_id=objective,
            node=node,
            boot=totals.boot,
            taken_at=totals.taken_at,
            totals=zlib.compress(orjson.dumps({"keys": totals.keys, "numbers": totals.numbers.tolist()}), 1),
        )
        for (objective, node), totals in lasts.items()
    ]
    Last.objects.bulk_create(
        rows,
        batch_size=1000,
        update_conflicts=True,
        unique_fields=["objective", "node"],
        update_fields=["boot", "taken_at", "totals"],
    )


def sweep(now: Seconds) -> None:
    """Add up the minutes of past days to hours, and delete counts and last readings from before each objective's
    window."""
    until = int((now - MINUTES_KEPT_S) // HOUR_S) * HOUR_S
    for objective in Objective.objects.all():
        with transaction.atomic():
            if not Objective.objects.select_for_update().filter(pk=objective.pk).exists():
                continue
            old = Count.objects.filter(objective=objective, step_s=MINUTE_S, at__lt=until)
            hours: defaultdict[Step, Counted] = defaultdict(Counted)
            for at, good, bad in old.values_list("at", "good", "bad"):
                step = Step(objective.pk, at // HOUR_S * HOUR_S, HOUR_S)
                hours[step] = Counted(hours[step].good + good, hours[step].bad + bad)
            _add(hours)
            old.delete()
            first = now - objective.window_days * DAY_S - HOUR_S
            Last.objects.filter(objective=objective, taken_at__lt=first).delete()
            Count.objects.filter(objective=objective, at__lt=min(first, until)).delete()


def messages_since(
    objectives: Iterable[int], since: Mapping[str, Seconds], until: Seconds
) -> dict[int, dict[str, Counted]]:
    """The messages of each objective in the steps that begin between each of the times ``since`` and ``until``, in Unix
    seconds: by objective, and by the names of ``since``."""
    sums = {
        f"{which}_{name}": Sum(which, filter=Q(at__gte=at), default=0)
        for name, at in since.items()
        for which in ("good", "bad")
    }
    rows: Any = (
        Count.objects.filter(objective__in=list(objectives), at__gte=min(since.values()), at__lt=until)
        .values("objective")
        .annotate(**sums)
    )
    return {
        row["objective"]: {name: Counted(int(row[f"good_{name}"]), int(row[f"bad_{name}"])) for name in since}
        for row in rows
    }
