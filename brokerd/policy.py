"""Policies: what the channels that match two patterns do with messages whose deliveries fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, Self

from brokerd.settings import MOST_ATTEMPTS, BrokerSettings, parse_retry_delay
from nsqwire.units import Seconds

NO_DELAY: Final = (0.0, 0.0)
MAX_RULES: Final = 1000
_PATTERN: Final = re.compile(r"[.a-zA-Z0-9_*?-]{1,64}(?:#ephemeral)?")
_WILDCARDS: Final = re.compile(r"[*?]")

Values = dict[str, Any]
"""The keys of a policy, as in its JSON."""


class InvalidPolicy(Exception):
    """A policy cannot be used; the text has the key and the reason."""


class Policy(NamedTuple):
    """``max_attempts`` 0 means no limit. ``retry_delay_s`` has the least and the greatest delay."""

    max_attempts: int = 0
    retry_delay_s: tuple[Seconds, Seconds] = NO_DELAY

    @classmethod
    def of(cls, settings: BrokerSettings) -> Self:
        """The policy of the settings."""
        return cls(settings.max_attempts, parse_retry_delay(settings.retry_delay))

    def changed_by(self, values: Values) -> Policy:
        """This policy with the keys that ``values`` has."""
        changes: dict[str, Any] = {}
        if "max_attempts" in values:
            changes["max_attempts"] = values["max_attempts"]
        if "retry_delay" in values:
            changes["retry_delay_s"] = parse_retry_delay(values["retry_delay"])
        return self._replace(**changes)

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


def _max_attempts(value: object) -> None:
    if type(value) is not int or not 0 <= value <= MOST_ATTEMPTS:
        raise ValueError(f"must be a whole number from 0 to {MOST_ATTEMPTS}")


def _retry_delay(value: object) -> None:
    if not isinstance(value, str):
        raise ValueError("must be a text such as 1s..5m, or empty")
    parse_retry_delay(value)


_CHECKS: Final[Mapping[str, Callable[[object], None]]] = {"max_attempts": _max_attempts, "retry_delay": _retry_delay}
"""Each key of a policy, with a function that raises ValueError for a value that it cannot have."""


def checked(values: object) -> Values:
    """Return ``values`` if they are a policy. Raises InvalidPolicy."""
    if not isinstance(values, dict) or not values:
        raise InvalidPolicy(f"a policy is a JSON object with some of the keys {', '.join(_CHECKS)}")
    for key, value in values.items():
        check = _CHECKS.get(key)
        if check is None:
            raise InvalidPolicy(f"{key}: unknown key; there are {', '.join(_CHECKS)}")
        try:
            check(value)
        except ValueError as error:
            raise InvalidPolicy(f"{key}: {error}") from None
    return values


def parsed(text: bytes) -> Values:
    """The policy in a JSON text. Raises InvalidPolicy."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    return checked(values)


def is_pattern(text: str) -> bool:
    """Return whether ``text`` is a glob of topic or channel names: their characters, ``*`` and ``?``."""
    return _PATTERN.fullmatch(text) is not None


class Rule(NamedTuple):
    """The policy of the channels whose topic and name match two patterns."""

    topic: str
    channel: str
    values: Values

    def matches(self, topic: str, channel: str) -> bool:
        """Return whether it is for this channel."""
        return fnmatchcase(topic, self.topic) and fnmatchcase(channel, self.channel)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Greater for a more specific one: of names before patterns, then by letters; the topic before the channel."""
        return (*_specificity(self.topic), *_specificity(self.channel), self.topic, self.channel)


def _specificity(pattern: str) -> tuple[bool, int]:
    wildcards = len(_WILDCARDS.findall(pattern))
    return not wildcards, len(pattern) - wildcards


class Policies:
    """The policies of a node. ``default`` is that of its settings, whose keys apply where a policy has none."""

    def __init__(self, default: Policy, values: Mapping[tuple[str, str], Values]) -> None:
        self.default = default
        self.replace(values)

    def replace(self, values: Mapping[tuple[str, str], Values]) -> None:
        """Replace all policies. ``values`` has their keys by the patterns of topic and channel."""
        self.values = dict(values)
        """The keys by the patterns of topic and channel."""
        rules = [Rule(topic, channel, each) for (topic, channel), each in values.items()]
        self.rules = sorted(rules, key=lambda rule: rule.rank, reverse=True)
        """All policies, the most specific first."""

    def rule_for(self, topic: str, channel: str) -> Rule | None:
        """The most specific one for a channel; None if none matches it."""
        return next((rule for rule in self.rules if rule.matches(topic, channel)), None)

    def policy_for(self, topic: str, channel: str) -> Policy:
        """What applies to a channel."""
        rule = self.rule_for(topic, channel)
        return self.default if rule is None else self.default.changed_by(rule.values)
