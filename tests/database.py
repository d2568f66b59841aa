"""The database of the test run, for processes that the tests start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode


def url_of(settings: Mapping[str, Any]) -> str:
    """The ``DATABASE_URL`` for ``settings``, an entry of Django's DATABASES."""
    if settings["ENGINE"].endswith("sqlite3"):
        return f"sqlite:///{settings['NAME']}"
    folder = settings["OPTIONS"]["host"]  # of the server's Unix socket
    return f"postgresql://{settings['USER']}@/{settings['NAME']}?{urlencode({'host': folder})}"
