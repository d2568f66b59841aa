"""A broker starts quickly: what most brokers never use is imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys

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
    """Each of these costs a start some thousandths of a second."""
    program = f"import sys, brokerd.__main__; print(*({RARELY_USED!r} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []
