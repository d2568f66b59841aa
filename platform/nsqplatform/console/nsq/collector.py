"""``nsq collector``: polls every broker once a second, for all browsers and the archive."""

from __future__ import annotations

from collections.abc import Sequence

from nsqplatform.console.nsq.prepare import load_django


def main(argv: Sequence[str]) -> int:
    """Exits with status 2 for a cluster that is not declared."""
    load_django()
    from nsqplatform.cluster.collector.process import main as collect

    return collect(argv)
