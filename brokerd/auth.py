"""The grant of an auth server: parsing its answer, and deciding what it allows.

Patterns have Go's syntax. RE2 compiles them, so they match as in nsqd, in linear time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import re2

from nsqwire.gojson import decode_json

PERMISSIONS: Final = ("subscribe", "publish")


class BadGrant(Exception):
    """The answer of an auth server is invalid; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Authorization:
    """One entry: ``permissions`` on the topics and channels that match its patterns."""

    topic: re2.Pattern
    channels: tuple[re2.Pattern, ...]
    permissions: frozenset[str]

    def allows(self, topic: str, channel: str) -> bool:
        """Return whether it allows subscribing to ``channel``, or publishing if ``channel`` is empty."""
        if ("subscribe" if channel else "publish") not in self.permissions or not self.topic.search(topic):
            return False
        return any(pattern.search(channel) for pattern in self.channels)


@dataclass(frozen=True, kw_only=True)
class Grant:
    """An auth server's answer, valid for ``ttl_s`` seconds."""

    ttl_s: int
    identity: str
    identity_url: str
    authorizations: tuple[Authorization, ...]

    def allows(self, topic: str, channel: str) -> bool:
        """Return whether any entry allows it. For publishing, channel patterns are matched with the empty string."""
        return any(entry.allows(topic, channel) for entry in self.authorizations)


def read_grant(body: bytes) -> Grant:
    """Read ``{"ttl", "identity", "identity_url", "authorizations": [{"topic", "channels", "permissions"}]}``.

    Keys match in any case; unknown ones and nulls are ignored, as in Go. Raises BadGrant.
    """
    try:
        answer = _Fields(decode_json(body))
        grant = Grant(
            ttl_s=answer.get("ttl", int, 0),
            identity=answer.get("identity", str, ""),
            identity_url=answer.get("identity_url", str, ""),
            authorizations=tuple(_authorization(_Fields(entry)) for entry in answer.get("authorizations", list, [])),
        )
    except (ValueError, RecursionError) as error:
        raise BadGrant(f"not JSON: {error}") from None
    if not 0 < grant.ttl_s < 2**63:
        raise BadGrant(f"invalid TTL {grant.ttl_s}")
    return grant


class _Fields:
    """A JSON object's members."""

    def __init__(self, value: Any) -> None:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise BadGrant(f"{value!r:.40} is not an object")
        self._members = {name.lower(): member for name, member in value.items() if member is not None}

    def get(self, name: str, kind: type, default: Any) -> Any:
        value = self._members.get(name, default)
        if type(value) is not kind:
            raise BadGrant(f"{name} is not of type {kind.__name__}")
        return value

    def strings(self, name: str) -> list[str]:
        values = ["" if value is None else value for value in self.get(name, list, [])]
        if not all(isinstance(value, str) for value in values):
            raise BadGrant(f"{name} is not a list of strings")
        return values


def _authorization(entry: _Fields) -> Authorization:
    permissions = entry.strings("permissions")
    for permission in permissions:
        if permission not in PERMISSIONS:
            raise BadGrant(f"unknown permission {permission}")
    return Authorization(
        topic=_pattern("topic", entry.get("topic", str, "")),
        channels=tuple(_pattern("channel", channel) for channel in entry.strings("channels")),
        permissions=frozenset(permissions),
    )


def _pattern(what: str, text: str) -> re2.Pattern:
    try:
        return re2.compile(text, _QUIET)
    except (re2.error, UnicodeEncodeError) as error:
        raise BadGrant(f"unable to compile {what} {text!r} {error}") from None


_QUIET: Final = re2.Options()
_QUIET.log_errors = False  # otherwise RE2 writes to standard error
