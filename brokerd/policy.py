"""A policy: what a channel does with messages whose deliveries fail, that wait too long, or that are too many."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple, Self

from brokerd.settings import MOST_ATTEMPTS, BrokerSettings, parse_retry_delay
from nsqwire.durations import nanoseconds, parse_duration
from nsqwire.names import is_ephemeral, is_valid_name
from nsqwire.units import Nanoseconds, Seconds

NO_DELAY: Final = (0.0, 0.0)
DROP: Final = "drop"
DEAD: Final = "dead"
REJECT: Final = "reject"
DROP_OLDEST: Final = "drop-oldest"
MOST: Final = 2**63 - 1

Values = dict[str, Any]
"""The keys and values of a policy, as in its JSON."""


class InvalidPolicy(Exception):
    """A policy cannot be used; the text has the key and the reason."""


class Policy(NamedTuple):
    """The values that apply to a channel. 0 means no limit, an empty ``dead_topic`` none."""

    max_attempts: int = 0
    retry_delay_s: tuple[Seconds, Seconds] = NO_DELAY
    """The least and the greatest delay."""
    msg_ttl_ns: Nanoseconds = 0
    expired: str = DROP
    """What happens to a message older than the TTL: DROP or DEAD."""
    max_depth: int = 0
    max_bytes: int = 0
    overflow: str = ""
    """What happens above ``max_depth`` or ``max_bytes``: REJECT, DROP_OLDEST or DEAD; empty without such a bound."""
    dead_topic: str = ""
    sample_lives: int = 0
    """One in this number of messages of the topic is sampled; 0: none."""

    @classmethod
    def of(cls, settings: BrokerSettings) -> Self:
        """The policy of the settings."""
        return cls(settings.max_attempts, parse_retry_delay(settings.retry_delay), nanoseconds(settings.msg_ttl))

    def changed_by(self, values: Values) -> Policy:
        """This policy with the keys that ``values`` has."""
        return self._replace(**{_KEYS[key].field: _KEYS[key].read(value) for key, value in values.items()})

    @property
    def counts_failures(self) -> bool:
        """True if failed deliveries have to be counted."""
        return self.max_attempts > 0 or self.retry_delay_s != NO_DELAY

    def is_last(self, failures: int) -> bool:
        """Return whether a message is dead after this number of failed deliveries."""
        return 0 < self.max_attempts <= failures

    def delay_s(self, failures: int) -> Seconds:
        """The delay after this number of failed deliveries; 0 for none."""
        least, most = self.retry_delay_s
        return min(least * failures, most)

    @property
    def limits_waiting(self) -> bool:
        """True if a channel removes messages that have waited too long, or that are too many."""
        return self.msg_ttl_ns > 0 or self.bounds_channel

    @property
    def bounds_channel(self) -> bool:
        """True if the channel removes messages when too many wait."""
        return self.overflow in (DROP_OLDEST, DEAD)

    @property
    def bounds_topic(self) -> bool:
        """True if the topic refuses publishes when too many messages wait."""
        return self.overflow == REJECT


def _whole_number(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"must be a whole number from {least} to {most}")
    return value


def _max_attempts(value: object) -> int:
    return _whole_number(value, 0, MOST_ATTEMPTS)


def _bound(value: object) -> int:
    return _whole_number(value, 0, MOST)


def _text(value: object, example: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a text such as {example}, or empty")
    return value


def _retry_delay(value: object) -> tuple[Seconds, Seconds]:
    return parse_retry_delay(_text(value, "1s..5m"))


def _msg_ttl(value: object) -> Nanoseconds:
    text = _text(value, "10m")
    ttl = parse_duration(text) if text else timedelta(0)
    if ttl < timedelta(0) or timedelta(0) < ttl < timedelta(milliseconds=1):
        raise ValueError(f"{text} is less than 1ms")
    return nanoseconds(ttl)


def _expired(value: object) -> str:
    return _one_of(value, DROP, DEAD)


def _overflow(value: object) -> str:
    return _one_of(value, REJECT, DROP_OLDEST, DEAD)


def _one_of(value: object, *words: str) -> str:
    if value not in words:
        raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}")
    return str(value)


def _dead_topic(value: object) -> str:
    name = _text(value, "orders.dead")
    if name and (not is_valid_name(name) or is_ephemeral(name)):
        raise ValueError("must be the name of a topic that is not ephemeral")
    return name


class _Key(NamedTuple):
    """The field of a policy that a key sets. ``read`` raises ValueError for a value that the key cannot have."""

    field: str
    read: Callable[[object], Any]


_KEYS: Final[Mapping[str, _Key]] = {
    "max_attempts": _Key("max_attempts", _max_attempts),
    "retry_delay": _Key("retry_delay_s", _retry_delay),
    "msg_ttl": _Key("msg_ttl_ns", _msg_ttl),
    "expired": _Key("expired", _expired),
    "max_depth": _Key("max_depth", _bound),
    "max_bytes": _Key("max_bytes", _bound),
    "overflow": _Key("overflow", _overflow),
    "dead_topic": _Key("dead_topic", _dead_topic),
    "sample_lives": _Key("sample_lives", _bound),
}


def checked(values: object, channel: str = "*") -> Values:
    """Return ``values`` if they are a policy of the channels that match ``channel``. Raises InvalidPolicy."""
    if not isinstance(values, dict) or not values:
        raise InvalidPolicy(f"a policy is a JSON object with some of the keys {', '.join(_KEYS)}")
    for key, value in values.items():
        known = _KEYS.get(key)
        if known is None:
            raise InvalidPolicy(f"{key}: unknown key; there are {', '.join(_KEYS)}")
        try:
            known.read(value)
        except ValueError as error:
            raise InvalidPolicy(f"{key}: {error}") from None
    _check_together(values, channel)
    return values


def _check_together(values: Values, channel: str) -> None:
    """Raise InvalidPolicy for keys that contradict each other."""
    bounds = [key for key in ("max_depth", "max_bytes") if values.get(key)]
    if bounds and "overflow" not in values:
        raise InvalidPolicy(f"{bounds[0]}: needs overflow: {REJECT}, {DROP_OLDEST} or {DEAD}")
    if "overflow" in values and not bounds:
        raise InvalidPolicy("overflow: needs max_depth or max_bytes")
    if values.get("overflow") == REJECT and channel != "*":
        raise InvalidPolicy(f"overflow: {REJECT} is for whole topics, so the policy's channel must be *")
    if "sample_lives" in values and channel != "*":
        raise InvalidPolicy("sample_lives: it is for whole topics, so the policy's channel must be *")


def parsed(text: bytes, channel: str = "*") -> Values:
    """The policy in a JSON text, as ``checked``. Raises InvalidPolicy."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    return checked(values, channel)
