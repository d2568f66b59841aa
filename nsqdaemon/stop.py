"""``python -m nsqdaemon.stop SIGNAL [PID]``: sends a signal, and waits until the process has ended.

For the `preStop` hook of a container, whose image has no shell: process 1, which is the default, is the server. With
USR1, a broker drains first; the hook lasts until it has ended, or until Kubernetes ends both.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

INTERVAL_S: Final = 0.2
_USAGE: Final = "usage: python -m nsqdaemon.stop SIGNAL [PID]"


def stop(pid: int, number: signal.Signals) -> None:
    """Send the signal, and return once the process has ended. Raises PermissionError."""
    try:
        os.kill(pid, number)
        while True:
            time.sleep(INTERVAL_S)
            os.kill(pid, 0)
    except ProcessLookupError:
        return


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 once the process has ended, 1 if it is another user's, 2 for wrong arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        name, pid = (arguments + ["1"])[:2] if 0 < len(arguments) < 3 else ("", "")
        number, process = signal.Signals[f"SIG{name.removeprefix('SIG')}"], int(pid)
    except (KeyError, ValueError):
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        stop(process, number)
    except PermissionError as error:
        print(f"nsqdaemon.stop: process {process}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
