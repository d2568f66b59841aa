"""A broker starts quickly: rarely used modules are imported on demand, and nothing is done twice."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests.harness.waiting import wait_until

RARELY_USED = {
    "ctypes",
    "email.utils",
    "importlib.metadata",
    "orjson",
    "tomllib",
    "tracemalloc",
    "brokerd.net.https",
    "brokerd.net.tls",
}


def test_a_broker_imports_nothing_that_it_may_never_use() -> None:
    """Each of these modules costs a start some milliseconds."""
    program = f"import sys, brokerd.process; print(*({RARELY_USED!r} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_the_collector_of_garbage_runs_only_after_the_start() -> None:
    """A start makes no garbage, and each collection would visit all imported objects."""
    program = (
        "import gc, sys, brokerd.__main__, brokerd.process\n"
        "before = sum(each['collections'] for each in gc.get_stats())\n"
        "def serve(settings):\n"
        "    print(gc.isenabled(), sum(each['collections'] for each in gc.get_stats()) - before)\n"
        "    sys.exit()\n"
        "brokerd.process.serve = serve\n"
        "brokerd.__main__.main([])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "0"]


def test_the_collector_of_garbage_runs_in_a_broker(broker: Any) -> None:
    """The start enables it at the end: /stats counts its runs."""

    def runs() -> Any:
        return broker.stats(format="json")["memory"]["gc_total_runs"]

    before = runs()
    wait_until(lambda: runs() != before, "a collection")
