"""Numbers in sentences."""

from __future__ import annotations

from math import floor, isfinite, log10


def number(value: float) -> str:
    """Three significant digits, all digits before the point, thousands separators, no exponent: 0.0205, 1.6, 1,230."""
    if not value or not isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - floor(log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
