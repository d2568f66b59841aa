"""Cells of results as text for people, as the web app shows them, with times in UTC."""

from __future__ import annotations

from datetime import datetime

from nsqanalytics.parameters import Parameter
from nsqanalytics.results import ResultColumn
from nsqplatform.number_format import number
from nsqplatform.unix_time import from_unix_ms, unix_ms
from nsqwire.units import Milliseconds

DASH = "–"
_MS_PER_UNIT = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1000.0}
_MOST = 1e15
"""Beyond it, all digits are more than anybody reads; a parameter of an earlier version may be as large."""
_OF_ROW = frozenset(
    {
        *("target", "worst_value", "now", "before", "difference"),
        *("actual", "forecast", "low_95", "low_80", "high_80", "high_95", "mae", "expected", "low", "high"),
    }
)
"""Columns whose figures are in the unit of the row's column ``unit``."""


def cell_text(column: ResultColumn, cell: str | int | float | None, row_unit: str = "") -> str:
    """Return the cell with its unit where that differs between rows; times and shares always have theirs."""
    if cell is None:
        return DASH
    if isinstance(cell, str):
        return cell
    if column.type == "timestamp":
        return moment(int(cell))
    unit = row_unit if column.name in _OF_ROW else column.unit
    if unit in _MS_PER_UNIT:
        return duration(cell * _MS_PER_UNIT[unit])
    text = f"{cell:,}" if isinstance(cell, int) else number(cell)
    if unit == "%":
        sign = "+" if column.name.endswith("change_percent") and cell > 0 else ""
        return f"{sign}{text} %".replace("-", "−")
    return f"{text} {row_unit}" if column.name in _OF_ROW and row_unit else text


def heading(column: ResultColumn) -> str:
    """Return ``P99 change`` for ``p99_change_percent``, and ``In rate, messages/s``: units that cells do not have."""
    name = column.name
    for end in ("_ms", "_ns", "_s", "_change_percent", "_percent"):
        if name.endswith(end):
            name = name.removesuffix(end) + (" change" if end == "_change_percent" else "")
            break
    words = name.replace("p999", "p99.9").replace("_", " ")
    has_unit = column.unit in ("", "%") or column.unit in _MS_PER_UNIT
    return words[:1].upper() + words[1:] + ("" if has_unit else f", {column.unit}")


def moment(at: Milliseconds) -> str:
    """Return a time in UTC, without seconds that are 0: ``14 Mar 2026, 15:00``."""
    time = from_unix_ms(at)
    return f"{time.day} {time:%b %Y, %H:%M}" + (f":{time:%S}" if time.second else "")


def short_moment(at: Milliseconds) -> str:
    """Return a time in UTC for an axis: ``14 Mar, 15:00``."""
    time = from_unix_ms(at)
    return f"{time.day} {time:%b, %H:%M}"


def plain_moment(at: Milliseconds) -> str:
    """Return a time in UTC in digits: ``03-14 15:00``."""
    return f"{from_unix_ms(at):%m-%d %H:%M}"


def parameter_text(parameter: Parameter | None, value: str | int | float) -> str:
    """Return a run's parameter as text: a time in UTC, a number with separators."""
    try:
        if parameter is not None and parameter.kind == "time":
            return f"{moment(unix_ms(datetime.fromisoformat(str(value))))} UTC"
        if parameter is not None and parameter.kind in ("integer", "number") and abs(float(value)) < _MOST:
            return f"{float(value):,.15g}"
    except ValueError:  # of a version that had another kind
        pass
    return str(value)


def duration(ms: float) -> str:
    """Return milliseconds in the unit that fits: ``0.25 ms``, ``61 ms``, ``4.1 s``, ``2 m 5 s``, ``3 h 20 m``."""
    if ms < 0:
        return f"−{duration(-ms)}"
    if 0 < ms < 0.01:
        return f"{number(ms * 1000)} µs"
    if ms < 999.5:
        return f"{number(ms)} ms"
    if ms < 59_950:
        return f"{number(ms / 1000)} s"
    seconds, minutes, hours = (round(ms / unit) for unit in (1000, 60_000, 3_600_000))
    if seconds < 3600:
        return f"{seconds // 60} m {seconds % 60} s"
    if minutes < 1440:
        return f"{minutes // 60} h {minutes % 60} m"
    return f"{hours // 24} d {hours % 24} h"
