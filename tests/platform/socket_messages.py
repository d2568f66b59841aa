"""The messages of the websockets as the OpenAPI document declares them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter


@cache
def declared(name: str) -> TypeAdapter[Any]:
    from nsqplatform.console.socket_messages import MESSAGES

    return TypeAdapter(MESSAGES[name])


def checked(name: str, text: str | bytes) -> dict[str, Any]:
    """The message in ``text``, which is one of ``name``."""
    declared(name).validate_json(text, strict=True)
    message: dict[str, Any] = json.loads(text)
    return message
