"""The version of NSQ that the daemons report, and the release of this project."""

import sys
from functools import cache
from typing import Final

#: Reported in the response to IDENTIFY, /info, --version and user agents. Clients derive the supported features.
NSQ_VERSION: Final = "1.3.0"


@cache
def product_version() -> str:
    """Return this project's release, from the installed distribution; ``0+unknown`` if none is installed."""
    from importlib import metadata  # imported here because it is slow and rarely needed

    try:
        return metadata.version("nsq-common")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def version_text(program: str) -> str:
    """The line that ``--version`` prints and that begins the log: ``nsqd v1.3.0 (built w/python3.11.7)``."""
    return f"{program} v{NSQ_VERSION} (built w/python{sys.version.partition(' ')[0]})"
