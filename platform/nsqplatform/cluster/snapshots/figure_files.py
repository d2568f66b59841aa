"""The files made from the declared figures: docs/figures.md and frontend/src/api/figures.ts.

``make docs`` writes them. A test compares them with the declarations.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsqplatform.cluster.snapshots.table import SHARES
from nsqwire.figures import FIGURES, Figure

ROOT = Path(__file__).parents[4]
DOCS = Path("docs/figures.md")
TYPESCRIPT = Path("frontend/src/api/figures.ts")

PAGE = """# Figures

The numbers that the platform shows, records and archives. They are declared in `nsqwire/figures.py`, and `make docs`
makes this page from it.

A rate is per second over the last poll, a latency that of the messages finished in the last minute. The figure of a
topic or channel is made from those of its nodes: gauges, counters and rates are summed, of ages the largest is taken,
latencies come from merged histograms. A latency range is the lowest and highest of the percentiles that nodes without a
histogram (Go's) report. Counters by zone and region are in nsqadmin's API only.

"""


def main() -> None:
    """Write both files."""
    for path, text in files().items():
        (ROOT / path).write_text(text)


def files() -> dict[Path, str]:
    """The text of each file, by its path in the repository."""
    return {DOCS: PAGE + markdown(FIGURES), TYPESCRIPT: typescript()}


def typescript() -> str:
    """The wire order of the nodes' shares, and the names of the last hour."""
    metrics = sorted({figure.history for figure in FIGURES if figure.history})
    return (
        "/** Made from nsqwire/figures.py by `make docs`. */\n\n"
        "/** The values of one node's share of a topic or channel, in the order they are sent. */\n"
        f"export const TOPIC_SHARE = {array(SHARES['topics'])} as const;\n"
        f"export const CHANNEL_SHARE = {array(SHARES['channels'])} as const;\n\n"
        "/** The figures of the last hour. */\n"
        "export type Metric =\n" + "\n".join(f"  | '{metric}'" for metric in metrics) + ";\n"
    )


def array(names: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def markdown(figures: Sequence[Figure]) -> str:
    """The figures as a table."""
    lines = [
        "| scope | figure | unit | kind | meaning | source | last hour | alert metric | archive |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for figure in figures:
        cells = (
            figure.scope,
            f"`{figure.name}`",
            figure.unit,
            figure.kind.title,
            figure.meaning,
            source(figure),
            f"`{figure.history}`" if figure.history else "",
            f"`{figure.alert.name or figure.name}`" if figure.alert else "",
            f"since version {figure.archived_since}" if figure.archived_since else "",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def source(figure: Figure) -> str:
    """Where its values come from."""
    if figure.json_key:
        return f"`{figure.json_key}` of `/stats`"
    if figure.rate_of:
        return f"increase of `{figure.rate_of}`"
    if figure.sum_of:
        counted = [f"sum of `{name}`" if "." in name else f"number of {name}s" for name in figure.sum_of]
        return " and ".join(counted).replace(" and sum of", " and")
    return "computed"


if __name__ == "__main__":
    main()
