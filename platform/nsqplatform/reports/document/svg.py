"""Charts and heat maps as SVG within a page: no scripts, no fonts or pictures from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from nsqanalytics.heat import Heat
from nsqplatform.reports.document.chart import ORANGE, Chart, Line

WIDTH, HEIGHT = 860, 250
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 10, 24
_INNER_WIDTH, _INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


def svg(chart: Chart, heat: Heat | None = None, alone_ms: int = 3_600_000) -> SafeString:
    """Return the chart, over the messages of ``heat`` if given, whose single column is ``alone_ms`` long.

    The text of the picture, for those who do not see it, is the chart's title.
    """
    band = SafeString("")
    if chart.band is not None:
        low, high = (chart.lines[place] for place in chart.band)
        both = [None not in pair for pair in zip(low.values, high.values, strict=True)]

        def edge(of: Line) -> Iterator[list[str]]:
            return _parts(chart, [value if known else None for value, known in zip(of.values, both, strict=True)])

        for above, below in zip(edge(high), edge(low), strict=True):
            outline = "L".join((*above, *reversed(below)))
            band += format_html('<path d="M{}Z" fill="{}" fill-opacity="0.14"/>', outline, high.colour.css)
    lines = format_html_join(
        "",
        '<path d="{}" fill="none" stroke="{}" stroke-width="1.6" stroke-linejoin="round" stroke-linecap="round"/>',
        ((_path(chart, line.values), line.colour.css) for line in chart.lines),
    )
    return format_html(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" font-size="11" fill="#55625f">{}{}{}{}</svg>',
        *(WIDTH, HEIGHT, chart.title),
        _tiles(chart, heat, alone_ms) if heat else "",
        _axes(chart),
        band,
        lines,
    )


def _axes(chart: Chart) -> SafeString:
    levels = format_html_join(
        "",
        '<path d="M{0} {1}H{2}" stroke="#dbe0dd"/><text x="{3}" y="{4}" text-anchor="end">{5}</text>',
        (
            (LEFT, round(y, 1), WIDTH - RIGHT, LEFT - 6, round(y + 4, 1), chart.text_of(level))
            for level in chart.levels
            for y in [_y(chart, level)]
        ),
    )
    moments = format_html_join(
        "",
        '<path d="M{0} {1}V{2}" stroke="#dbe0dd"/><text x="{0}" y="{3}" text-anchor="{4}">{5}</text>',
        (
            (round(_x(chart, at), 1), TOP, HEIGHT - BOTTOM, HEIGHT - 8, "middle" if at < chart.until else "end", text)
            for at, text in chart.moments
        ),
    )
    return levels + moments


def _tiles(chart: Chart, heat: Heat, alone_ms: int) -> SafeString:
    """Return the heat map's rectangles, on the chart's axes; the more messages, the darker."""
    most = max((cell.count for cell in heat.cells), default=1)
    step = heat.step_ms or alone_ms

    def rectangles() -> Iterator[tuple[float, float, float, float, float]]:
        for cell in heat.cells:
            left, right = max(LEFT, _x(chart, cell.at)), min(WIDTH - RIGHT, _x(chart, cell.at + step))
            top, bottom = _y(chart, heat.bounds_ms[cell.band + 1]), _y(chart, heat.bounds_ms[cell.band])
            share = 1.0 if most == 1 else log(cell.count) / log(most)
            if right > left and bottom > top:
                width, height = max(0.5, right - left - 0.4), bottom - top
                yield round(left, 1), round(top, 1), round(width, 1), round(height, 1), round(0.12 + 0.88 * share, 2)

    tile = '<rect x="{}" y="{}" width="{}" height="{}" fill-opacity="{}"/>'
    return format_html('<g fill="{}">{}</g>', ORANGE.css, format_html_join("", tile, rectangles()))


def _x(chart: Chart, at: int) -> float:
    return LEFT + _INNER_WIDTH * chart.x(at)


def _y(chart: Chart, value: float) -> float:
    return TOP + _INNER_HEIGHT * (1 - chart.y(value))


def _path(chart: Chart, values: Sequence[float | None]) -> str:
    """Return a line as the data of a path; a single point between two gaps becomes a dot."""
    return "".join("M" + "L".join(part if len(part) > 1 else part * 2) for part in _parts(chart, values))


def _parts(chart: Chart, values: Sequence[float | None]) -> Iterator[list[str]]:
    """Yield the points of each part of a line between its gaps, as ``x y``."""
    part: list[str] = []
    for at, value in zip(chart.times, values, strict=True):
        if value is None:
            if part:
                yield part
            part = []
        else:
            part.append(f"{_x(chart, at):.1f} {_y(chart, value):.1f}")
    if part:
        yield part
