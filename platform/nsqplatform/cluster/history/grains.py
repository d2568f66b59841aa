"""Grains: the resolutions in which figures are kept, and the conversion to coarser ones.

Times are Unix seconds. A slot is the time of one value: slot ``n`` of a grain begins at ``n * step_s``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from nsqwire.figures import FIGURES
from nsqwire.units import WholeSeconds

Values = NDArray[np.float32]
"""NaN where the value is unknown."""
DAY_S = 86_400
COMBINED: dict[str, Callable[..., Values]] = {"mean": np.nanmean, "lowest": np.nanmin, "highest": np.nanmax}
OVER_TIME: dict[str, str] = {figure.history: figure.over_time for figure in FIGURES if figure.history}


@dataclass(frozen=True)
class Grain:
    """One resolution. ``name`` is that of its folder. ``form`` is the format of a file's name; a file covers an hour, a
    day or a month."""

    name: str
    step_s: int
    form: str

    def file_start(self, at: WholeSeconds) -> WholeSeconds:
        """The start of the file that contains ``at``."""
        moment = datetime.fromtimestamp(at, UTC).replace(minute=0, second=0)
        if self is not TEN_SECONDS:
            moment = moment.replace(hour=0)
        return int((moment.replace(day=1) if self is HOURS else moment).timestamp())

    def file_end(self, start: WholeSeconds) -> WholeSeconds:
        """The end of the file that begins at ``start``."""
        if self is TEN_SECONDS:
            return start + 3600
        if self is MINUTES:
            return start + DAY_S
        moment = datetime.fromtimestamp(start, UTC)
        return int((moment + timedelta(days=31)).replace(day=1).timestamp())

    def file_name(self, start: WholeSeconds) -> str:
        return f"{self.name}/{datetime.fromtimestamp(start, UTC).strftime(self.form)}.parquet"

    def files(self, since: WholeSeconds, until: WholeSeconds) -> Iterator[WholeSeconds]:
        """The starts of the files that cover the time from ``since`` to ``until``."""
        start = self.file_start(since)
        while start < until:
            yield start
            start = self.file_end(start)

    def start_of(self, name: str) -> WholeSeconds | None:
        """The start of the file with this name; None for other names."""
        try:
            parsed = datetime.strptime(name, f"{self.form}.parquet").replace(tzinfo=UTC)
        except ValueError:
            return None
        return int(parsed.timestamp())


TEN_SECONDS = Grain("10s", 10, "%Y-%m-%dT%H")
MINUTES = Grain("1m", 60, "%Y-%m-%d")
HOURS = Grain("1h", 3600, "%Y-%m")
GRAINS = (TEN_SECONDS, MINUTES, HOURS)


def coarsened(values: Values, metric: str, count: int) -> Values:
    """Combine every ``count`` values along the last axis. Unknown values are ignored; if all are unknown, so is the
    result.

    Rates are averaged. Of other figures the worst value is kept, so that no peak disappears: the lowest number of
    clients, and the highest value of all others.
    """
    if count == 1:
        return values
    groups = values.reshape(*values.shape[:-1], -1, count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # groups in which all values are unknown
        combined: Values = COMBINED[OVER_TIME[metric]](groups, axis=-1)
    return combined.astype(np.float32)
