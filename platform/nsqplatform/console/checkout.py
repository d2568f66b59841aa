"""The checkout that the platform runs from, if it is not installed from a wheel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_ABOVE = Path(__file__).resolve().parents[3]
CHECKOUT = _ABOVE if (_ABOVE / "manage.py").is_file() and (_ABOVE / "platform").is_dir() else None
"""The root of the source tree; None for an installation."""
FRONTEND = (Path(__file__).resolve().parents[1] / "frontend").resolve()
"""The built front end: part of a wheel, and in a checkout a link to ``frontend/dist``."""


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of all data: ``$NSQ_HOME``, else ``var/`` in a checkout, else the user's data folder.

    The user's data folder is ``$XDG_DATA_HOME/nsq``, by default ``~/.local/share/nsq``.
    """
    if configured := environ.get("NSQ_HOME"):
        return Path(configured).absolute()
    if CHECKOUT is not None:
        return CHECKOUT / "var"
    data = environ.get("XDG_DATA_HOME", "")
    return (Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share") / "nsq"
