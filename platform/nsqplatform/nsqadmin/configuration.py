"""``/config/:opt``: reads settings, and changes two of them until the next start."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

from nsqdaemon import logs
from nsqdaemon.http import HTTPError, Response, json_response, text_response
from nsqdaemon.logs import LogLevel
from nsqdaemon.settings import file_keys
from nsqplatform.nsqadmin import sources
from nsqplatform.nsqadmin.settings import AdminSettings
from nsqwire.durations import nanoseconds

LOOKUPD = "nsqlookupd_http_addresses"
LEVEL = "log_level"
MAX_VALUE_BYTES = 1 << 20
"""nsqadmin's limit."""

logger = logging.getLogger(__name__)


async def value(settings: AdminSettings, option: str) -> Response:
    """A setting as text: strings without quotes, durations in nanoseconds, ``log_level`` as 1 (debug) to 5 (fatal),
    others as JSON."""
    field = file_keys(type(settings)).get(option)
    if field is None:
        raise HTTPError(400, "INVALID_OPTION")
    found: Any = getattr(settings, field)
    if option == LOOKUPD:
        found = await sources.lookupd()  # unchanged: Go's null stays null
    elif option == LEVEL:
        found = int(logs.level())
    elif isinstance(found, timedelta):
        found = nanoseconds(found)
    elif isinstance(found, tuple):
        found = list(found)
    return text_response(found) if isinstance(found, str) else json_response(found)


async def change(settings: AdminSettings, option: str, body: bytes) -> Response:
    """Change a setting. Raises HTTPError: 413 for a body that is empty or too long, 400 for another setting or an
    invalid value."""
    if not body or len(body) > MAX_VALUE_BYTES:
        raise HTTPError(413, "INVALID_VALUE")
    if option == LOOKUPD:
        await sources.change_lookupd(addresses(body))
    elif option == LEVEL:
        try:
            logs.set_level(LogLevel.parse(body.decode("latin-1")))
        except ValueError:
            raise HTTPError(400, "INVALID_VALUE") from None
    else:
        raise HTTPError(400, "INVALID_OPTION")
    logger.warning("setting changed", extra={"option": option, "value": body.decode("latin-1")[:500]})
    return await value(settings, option)


def addresses(body: bytes) -> list[str] | None:
    """The JSON list in ``body``; None for ``null``, which Go reads as an empty list. Raises HTTPError."""
    try:
        given = json.loads(body)
    except ValueError:
        raise HTTPError(400, "INVALID_VALUE") from None
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise HTTPError(400, "INVALID_VALUE")
    return given
