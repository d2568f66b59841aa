"""A job: its name and texts, its parameters, the columns of its result, and the function that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from nsqanalytics.job_parameters import CompareParameters
from nsqanalytics.locations import Locations
from nsqanalytics.parameters import FormField, Given, described, parse, refuse_future
from nsqanalytics.progress import Progress
from nsqanalytics.tables import Figure


@dataclass(frozen=True)
class Job:
    """``run(spark, place, parameters, now, progress)`` returns the number of rows it wrote.

    ``figures`` are the columns of its result. A job with ``needs_spark`` false gets None for ``spark``. If
    ``without_spark(place, parameters, now, progress)`` is given, it is called first: it does the job and returns the
    number of rows, or returns None if the job needs Spark; ``run`` is then called. ``worst`` is the column of the
    result in which the largest figure is the worst; empty if there is none.
    """

    name: str
    title: str
    description: str
    kind: Literal["report", "maintenance"]
    parameters: type
    figures: Sequence[Figure]
    run: Callable[[Any, Locations, Any, datetime, Progress], int]
    needs_spark: bool = True
    without_spark: Callable[[Locations, Any, datetime, Progress], int | None] | None = None
    worst: str = ""

    def checked(self, given: Given, now: datetime | None = None) -> Any:
        """Return the parameters as an instance of ``parameters``. Raises BadParameter.

        ``now`` is the current time by default. No period may end after it.
        """
        now = now or datetime.now(UTC)
        parameters: Any = parse(self.parameters, given)
        refuse_future(parameters, now)
        if isinstance(parameters, CompareParameters):
            parameters.other(now)
        return parameters

    def form(self) -> dict[str, FormField]:
        """Return a description of the parameters as JSON, for a form."""
        return described(self.parameters)
