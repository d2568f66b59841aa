"""The broker's command: ``python -m brokerd``, or ``nsqd``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqdaemon.settings import SettingsParser


def main(argv: Sequence[str] | None = None) -> int:
    """As :func:`brokerd.process.main`.

    The start creates no garbage, so the garbage collector is off until the broker has recovered its state.
    """
    gc.disable()
    from brokerd.process import main

    return main(argv)


def parser() -> SettingsParser:
    """The parser of ``nsq brokerd``, for its help."""
    from brokerd.settings import DESCRIPTION, EXAMPLES, BrokerSettings
    from nsqdaemon.settings import parser_of

    return parser_of(BrokerSettings, prog="nsq brokerd", description=DESCRIPTION, examples=EXAMPLES)


if __name__ == "__main__":
    sys.exit(main())
