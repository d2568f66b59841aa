"""A job: its name and texts, its parameters, the columns of its result, and the function that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from nsqanalytics.job_parameters import JobParameters
from nsqanalytics.locations import Locations
from nsqanalytics.parameters import FormField, Given, described, parse
from nsqanalytics.progress import Progress
from nsqanalytics.tables import Figure

P = TypeVar("P", bound=JobParameters)


def nothing_read(place: Locations, parameters: JobParameters, now: datetime) -> int:
    """``bytes_read`` of a job that does not need Spark."""
    return 0


@dataclass(frozen=True)
class Job(Generic[P]):
    """``run(spark, place, parameters, now, progress)`` returns the number of rows it wrote.

    ``figures`` are the columns of its result. A job with ``needs_spark`` false gets None for ``spark``. If
    ``without_spark(place, parameters, now, progress)`` is given, it is called first: it does the job and returns the
    number of rows, or returns None if the job needs Spark; ``run`` is then called.
    ``bytes_read(place, parameters, now)`` returns the approximate number of bytes of the archive that ``run`` reads.
    ``worst`` is the column of the result in which the largest figure is the worst; empty if there is none.
    """

    name: str
    title: str
    description: str
    kind: Literal["report", "maintenance"]
    parameters: type[P]
    figures: Sequence[Figure]
    run: Callable[[Any, Locations, P, datetime, Progress], int]
    needs_spark: bool = True
    without_spark: Callable[[Locations, P, datetime, Progress], int | None] | None = None
    bytes_read: Callable[[Locations, P, datetime], int] = nothing_read
    worst: str = ""

    def checked(self, given: Given, now: datetime | None = None) -> P:
        """Return the parameters. Raises BadParameter.

        ``now`` is the current time by default. No period may end after it.
        """
        parameters = parse(self.parameters, given)
        parameters.check(now or datetime.now(UTC))
        return parameters

    def form(self) -> dict[str, FormField]:
        """Return a description of the parameters as JSON, for a form."""
        return described(self.parameters)


AnyJob: TypeAlias = "Job[Any]"
"""A job that was found by its name; ``checked`` then returns what ``run`` takes."""
