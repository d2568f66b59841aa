"""The broker's command: ``python -m brokerd``, or ``nsqd``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """As :func:`brokerd.process.main`.

    The start creates no garbage, so the garbage collector is off until the broker has recovered its state.
    """
    gc.disable()
    from brokerd.process import main

    return main(argv)


if __name__ == "__main__":
    sys.exit(main())
