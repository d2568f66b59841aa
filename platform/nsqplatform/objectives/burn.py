"""Error budgets and burn rates. No clock and no I/O.

The budget of an objective is the number of bad messages that its target allows. The burn rate over a time is the share
of bad messages in it, divided by the share that the target allows: at 1, the budget lasts exactly for the objective's
window.

The pairs of times and their limits are those of Google's Site Reliability Workbook, chapter 5, "Alerting on SLOs":
https://sre.google/workbook/alerting-on-slos/. The long time shows that the burn matters, the short one that it lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nsqwire.units import Seconds

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86_400


class Counted(NamedTuple):
    """Numbers of messages."""

    good: int = 0
    bad: int = 0

    @property
    def total(self) -> int:
        return self.good + self.bad


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An alert's two times: it fires while the burn rate is above ``limit`` over both."""

    metric: str
    long: str
    short: str
    limit: float


PAIRS = (
    Pair(metric="burn_1h", long="1h", short="5m", limit=14.4),
    Pair(metric="burn_6h", long="6h", short="30m", limit=6.0),
    Pair(metric="burn_3d", long="3d", short="6h", limit=1.0),
)
SPANS_S: Mapping[str, int] = {
    "5m": 5 * MINUTE_S,
    "30m": 30 * MINUTE_S,
    "1h": HOUR_S,
    "6h": 6 * HOUR_S,
    "3d": 3 * DAY_S,
}
LONGEST_S = max(SPANS_S.values())


def burn_rate(counted: Counted, *, target_percent: float, span_s: int, counted_s: Seconds) -> float:
    """The burn rate over ``span_s``, of which only the last ``counted_s`` are counted.

    The time before is taken to have had as many messages per second, all of them good: an objective that is a few
    minutes old fires only when it has burnt what the whole span would have to burn. Without messages, nothing burns.
    """
    if not counted.bad:
        return 0.0
    share = counted.bad / counted.total
    return share / (1 - target_percent / 100) * min(1.0, max(0.0, counted_s) / span_s)


def smaller(rates: Mapping[str, float], pair: Pair) -> float:
    """The smaller of the two burn rates of a pair. It is above the limit if both are."""
    return min(rates[pair.long], rates[pair.short])


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Numbers of bad messages in the objective's window. ``allowed`` need not be whole."""

    counted: Counted
    allowed: float

    @property
    def left(self) -> float:
        """Negative if the budget is overspent."""
        return self.allowed - self.counted.bad

    @property
    def left_percent(self) -> float | None:
        """What is left, as a share of what is allowed; None if no message was counted."""
        return 100 * self.left / self.allowed if self.allowed else None


def budget(counted: Counted, target_percent: float) -> Budget:
    """The budget of a window with these messages."""
    return Budget(counted=counted, allowed=counted.total * (100 - target_percent) / 100)
