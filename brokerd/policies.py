"""The policies of a node: rules for patterns of topics and channels, of which the most specific applies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from brokerd.policy import InvalidPolicy, Policy, Values, checked

MAX_RULES: Final = 1000
_PATTERN: Final = re.compile(r"[.a-zA-Z0-9_*?-]{1,64}(?:#ephemeral)?")
_WILDCARDS: Final = re.compile(r"[*?]")

Patterns = tuple[str, str]
"""The patterns of topic and channel."""


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
        return self.matches_topic(topic) and fnmatchcase(channel, self.channel)

    def matches_topic(self, topic: str) -> bool:
        """Return whether it is for channels of this topic."""
        return fnmatchcase(topic, self.topic)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key, greater for a more specific one: names before patterns, more letters first, the topic decides."""
        return (*_specificity(self.topic), *_specificity(self.channel), self.topic, self.channel)


def _specificity(pattern: str) -> tuple[bool, int]:
    wildcards = len(_WILDCARDS.findall(pattern))
    return not wildcards, len(pattern) - wildcards


def policies_in_file(path: str) -> dict[Patterns, Values]:
    """The tables ``[[policies]]`` of the TOML file of settings. Raises InvalidPolicy with the table's number."""
    import tomllib  # imported here because most brokers start without a file

    with open(path, "rb") as file:
        tables = tomllib.load(file).get("policies", [])
    if not isinstance(tables, list):
        raise InvalidPolicy("policies are tables [[policies]]")
    found: dict[Patterns, Values] = {}
    for number, table in enumerate(tables, 1):
        try:
            patterns, values = _of_table(table)
            if patterns in found:
                raise InvalidPolicy(f"an earlier one has the pattern {patterns[0]} and the channel {patterns[1]}, too")
        except InvalidPolicy as error:
            raise InvalidPolicy(f"policy {number} of {path}: {error}") from None
        found[patterns] = values
    return found


def _of_table(table: object) -> tuple[Patterns, Values]:
    values = dict(table) if isinstance(table, dict) else {}
    topic, channel = values.pop("pattern", None), values.pop("channel", "*")
    for key, pattern in (("pattern", topic), ("channel", channel)):
        if not isinstance(pattern, str) or not is_pattern(pattern):
            raise InvalidPolicy(f"{key}: must be a glob of names, such as orders*")
    return (topic, channel), checked(values, channel)


class Policies:
    """The policies of a node. ``default`` is that of its settings, whose keys apply where a policy has none.

    ``fixed`` are those of the settings' file, which apply in place of others with the same patterns.
    """

    def __init__(
        self, default: Policy, values: Mapping[Patterns, Values], fixed: Mapping[Patterns, Values] | None = None
    ) -> None:
        self.default = default
        self.values = dict(values)
        """The values of the policies that were set while the node ran, by the patterns of topic and channel."""
        self.fixed = dict(fixed or {})
        rules = [Rule(topic, channel, each) for (topic, channel), each in (self.values | self.fixed).items()]
        self.rules = sorted(rules, key=lambda rule: rule.rank, reverse=True)
        """All policies, the most specific first."""

    def changed(self, values: Mapping[Patterns, Values]) -> Policies:
        """The policies of the same node with other ``values``. Raises InvalidPolicy if dead topics are in a circle."""
        changed = Policies(self.default, values, self.fixed)
        changed.check_dead_topics()
        return changed

    def rule_for(self, topic: str, channel: str) -> Rule | None:
        """The most specific one for a channel; None if none matches it."""
        return next((rule for rule in self.rules if rule.matches(topic, channel)), None)

    def policy_for_topic(self, topic: str) -> Policy:
        """The policy of a topic as a whole: the most specific one of channel ``*``."""
        return self.policy_of(next((r for r in self.rules if r.channel == "*" and r.matches_topic(topic)), None))

    def policy_of(self, rule: Rule | None) -> Policy:
        """What applies where ``rule`` is the most specific one; None: the settings."""
        return self.default if rule is None else self.default.changed_by(rule.values)

    # -- dead topics ----------------------------------------------------------------------------------------------

    def check_dead_topics(self) -> None:
        """Raise InvalidPolicy if a message that dies again and again would come back to a topic."""
        done = set[str]()
        for start in self._dead_topics(self.rules):
            path = {start: self._dead_topics_of(start)}  # the topics from the start on, with the next ones to follow
            while path:
                topic, following = next(reversed(path.items()))
                target = next(following, None)
                if target is None:
                    done.add(topic)
                    del path[topic]
                elif target in path:
                    topics = list(path)
                    circle = [*topics[topics.index(target) :], target]
                    raise InvalidPolicy(f"dead_topic: dead messages would go in a circle: {' -> '.join(circle)}")
                elif target not in done:
                    path[target] = self._dead_topics_of(target)

    def _dead_topics_of(self, topic: str) -> Iterator[str]:
        """The dead topics of all channels that ``topic`` may have."""
        return iter(self._dead_topics(self._rules_up_to_all_channels(topic)))

    @staticmethod
    def _dead_topics(rules: Iterable[Rule]) -> list[str]:
        return sorted({target for rule in rules if (target := rule.values.get("dead_topic"))})

    def _rules_up_to_all_channels(self, topic: str) -> Iterator[Rule]:
        for rule in self.rules:
            if rule.matches_topic(topic):
                yield rule
                if rule.channel == "*":
                    return
