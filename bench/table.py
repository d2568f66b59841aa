"""The rows as a table for a terminal."""

from __future__ import annotations

from rich.table import Table

from bench.measure import Options, Row


def number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def short(value: float) -> str:
    """Format with three significant digits, from 100 on as a whole number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: list[Row], options: Options, kernel: str) -> Table:
    title = f"brokerd, {options.seconds:g} s a row, {options.size} B messages, {kernel}"
    grid = Table(title=title, title_justify="left")
    grid.add_column("row")
    grid.add_column("load")
    for heading in (
        "messages/s",
        "spread",
        "MB/s",
        "broker\nµs/msg",
        "floor\nmessages/s",
        "floor\nµs/msg",
        "of\nfloor",
        "kept\nmessages/s",
        "of\nkept",
        "cost,\nfirst = 1",
        "p50 µs",
        "p99 µs",
        "broker\nbusy",
        "load\nbusy",
        "anon\nMB",
    ):
        grid.add_column(heading, justify="right")
    for row in rows:
        add(grid, row)
    return grid


def waits_table(rows: list[Row]) -> Table | None:
    """Return the second table, with the ``waits`` of the rows that have any; None if no row has."""
    grid = Table(title="waits", title_justify="left")
    for heading in ("row", "wait", "server"):
        grid.add_column(heading)
    for heading in ("count", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "p99, quiet = 1"):
        grid.add_column(heading, justify="right")
    for row in rows:
        for each in row.waits:
            times = (each.p50_us, each.p99_us, each.p999_us, each.max_us)
            shown = [f"{time_us / 1000:,.3f}" for time_us in times]
            ratio = "" if each.to_quiet is None else short(each.to_quiet)
            grid.add_row(row.name, each.what, each.server, f"{each.count:,}", *shown, ratio)
    return grid if grid.row_count else None


def add(grid: Table, row: Row) -> None:
    """Add a row, with one more line for each figure that only this row has."""
    cells = [
        f"{row.name}, twin" if row.twin else row.name,
        row.what,
        number(row.per_second),
        percent(row.spread),
        number(row.mb_per_second, 1),
        number(row.broker_us, 2),
        number(row.floor_per_second),
        number(row.floor_us, 2),
        percent(row.floor_ratio),
        number(row.kept_per_second),
        percent(row.kept_ratio),
        number(row.cost_ratio, 2),
        number(row.p50_us),
        number(row.p99_us),
        percent(row.broker_busy),
        percent(row.load_busy),
        number(row.anonymous_mb),
    ]
    if row.also:
        cells[1] += "\n" + "\n".join(f"  {name}: {short(value)}" for name, value in row.also.items())
    grid.add_row(*cells)
