"""A chart as a PNG picture, for mail programs, which show no SVG. Needs no drawing library.

PNG (W3C, third edition): a signature, then chunks of length u32, type, data and CRC-32 of type and data. Here: IHDR,
one IDAT with zlib-compressed rows of RGB, each after a filter byte of 0, and IEND.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

from nsqplatform.reports.document.chart import GRID, MUTED, PAPER, Chart, Colour
from nsqplatform.reports.document.texts import plain_moment

WIDTH, HEIGHT = 960, 320
LEFT, RIGHT, TOP, BOTTOM = 92, 12, 12, 36
_SCALE = 2
"""Pixels of a point of a letter."""
_GLYPHS = {
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "11110 00001 00001 01110 00001 00001 11110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
    ".": "00000 00000 00000 00000 00000 01100 01100",
    ",": "00000 00000 00000 00000 01100 00100 01000",
    ":": "00000 01100 01100 00000 01100 01100 00000",
    "-": "00000 00000 00000 11111 00000 00000 00000",
    "m": "00000 00000 11010 10101 10101 10101 10101",
    "s": "00000 00000 01111 10000 01110 00001 11110",
    "h": "10000 10000 10110 11001 10001 10001 10001",
    "d": "00001 00001 01101 10011 10001 10001 01111",
    "µ": "00000 00000 10001 10001 10011 11101 10000",
}
"""Letters of durations, numbers and times, seven rows of five points each; others are left blank."""


def png(chart: Chart) -> bytes:
    """Return the chart's band and lines, with the axes' labels; times as month, day and hour in UTC."""
    canvas = _Canvas()
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def row_of(y: float) -> int:
        return TOP + round(inner_height * (1 - y))

    for level in chart.levels:
        row = row_of(chart.y(level))
        canvas.fill(LEFT, row, inner_width, 1, GRID)
        canvas.write(chart.text_of(level), LEFT - 8, row - 7, MUTED)
    for at, _ in chart.moments:
        column = LEFT + round(inner_width * chart.x(at))
        canvas.fill(min(column, WIDTH - RIGHT - 1), TOP, 1, inner_height, GRID)
        label = plain_moment(at)
        canvas.write(label, min(column + _width(label) // 2, WIDTH - 2), HEIGHT - BOTTOM + 12, MUTED)
    columns = [list(_columns(chart, line.values, inner_width)) for line in chart.lines]
    if chart.band is not None:
        low, high = (columns[place] for place in chart.band)
        for x, (below, above) in enumerate(zip(low, high, strict=True)):
            if below is not None and above is not None:
                top, bottom = row_of(above), row_of(below)
                canvas.fill(LEFT + x, top, 1, bottom - top, _lighter(chart.lines[chart.band[1]].colour))
    for line, values in zip(chart.lines, columns, strict=True):
        before: int | None = None
        for x, y in enumerate(values):
            now = None if y is None else row_of(y)
            if now is not None:
                first, last = sorted((now, now if before is None else before))
                canvas.fill(LEFT + x, first - 1, 1, last - first + 3, line.colour)
            before = now
    return canvas.png()


def _columns(chart: Chart, values: Sequence[float | None], width: int) -> Iterator[float | None]:
    """Yield the line's place on the vertical axis, 0 to 1, at each column of pixels; None where there is no line."""
    places = [chart.x(at) * width for at in chart.times]
    heights = [None if value is None else chart.y(value) for value in values]
    after = 0
    for x in range(width):
        while after < len(places) and places[after] < x:
            after += 1
        if after < len(places) and round(places[after]) == x:
            yield heights[after]
        elif (
            0 < after < len(places) and (low := heights[after - 1]) is not None and (high := heights[after]) is not None
        ):
            share = (x - places[after - 1]) / (places[after] - places[after - 1])
            yield low + share * (high - low)
        else:
            yield None


def _width(text: str) -> int:
    return 6 * _SCALE * len(text)


def _lighter(colour: Colour) -> Colour:
    return Colour(*(round(255 - 0.2 * (255 - part)) for part in colour))


class _Canvas:
    """WIDTH by HEIGHT pixels, three bytes each."""

    def __init__(self) -> None:
        self._rows = [bytearray(bytes(PAPER) * WIDTH) for _ in range(HEIGHT)]

    def fill(self, left: int, top: int, width: int, height: int, colour: Colour) -> None:
        """Fill a rectangle; the part of it beyond the picture is left out."""
        first, last = max(0, left), min(WIDTH, left + width)
        pixels = bytes(colour) * max(0, last - first)
        for row in self._rows[max(0, top) : max(0, top + height)]:
            row[3 * first : 3 * first + len(pixels)] = pixels

    def write(self, text: str, right: int, top: int, colour: Colour) -> None:
        """Write a text that ends at ``right``."""
        left = right - _width(text)
        for place, letter in enumerate(text):
            for row, points in enumerate(_GLYPHS.get(letter, "").split()):
                for column, point in enumerate(points):
                    if point == "1":
                        x = left + (6 * place + column) * _SCALE
                        self.fill(x, top + row * _SCALE, _SCALE, _SCALE, colour)

    def png(self) -> bytes:
        header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
        data = zlib.compress(b"".join(b"\0" + row for row in self._rows), 9)
        chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )
