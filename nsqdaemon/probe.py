"""``python -m nsqdaemon.probe URL``: checks that a server answers 200, for health checks of images without a shell.

The exit status is 0 if it does, and 1 otherwise, with one line on standard error.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Final

TIMEOUT_S: Final = 2.5
"""Less than the timeout of the images' health checks."""
_BODY_BYTES: Final = 200


def probe(url: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """Send one GET. Return None for a 200, else the reason. No proxy is used."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return None if answer.status == 200 else f"{url} answers {answer.status}"
    except urllib.error.HTTPError as error:
        body = error.read(_BODY_BYTES).decode(errors="replace").strip()
        return f"{url} answers {error.code}: {body}"
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return f"{url} does not answer: {reason}"


def main(argv: Sequence[str] | None = None) -> int:
    """Probe the only argument and return the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1:
        print("usage: python -m nsqdaemon.probe URL", file=sys.stderr)
        return 2
    if failure := probe(arguments[0]):
        print(f"nsqdaemon.probe: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
