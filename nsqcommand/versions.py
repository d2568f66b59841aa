"""The answer to ``nsq --version``: this release, NSQ's, Python's and the broker's kernel."""

from __future__ import annotations

import platform
import sys
from importlib import import_module
from importlib.util import find_spec

from nsqwire.version import NSQ_VERSION, product_version


def versions() -> str:
    """Return one line each for the release, Python and the kernel."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return "\n".join(
        [
            f"nsq {product_version()}, compatible with NSQ {NSQ_VERSION}",
            f"Python: {python}, {sys.executable}",
            f"kernel: {_kernel()}",
        ]
    )


def _kernel() -> str:
    if find_spec("brokerd") is None:
        return "not installed (pip install nsq-daemons)"
    # Imported by name: this package must not depend on the broker.
    compiled = import_module("brokerd.kernel").COMPILED
    return "compiled" if compiled else "pure Python, at a fraction of the speed"
