"""The criteria of a search for messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import re2
from django.core.exceptions import ValidationError

from nsqcluster.messages import PeekedMessage as BrokerMessage
from nsqcluster.messages import State
from nsqplatform.cluster.messages.hidden_paths import HiddenPaths
from nsqwire.headers import is_header_name

Match = Literal["text", "regex", "hex"]

LARGEST_PATTERN_BYTES = 8 << 20
"""Limit of the memory of a regular expression; RE2 refuses one that needs more."""


class HeaderTest(NamedTuple):
    """A message passes if it has the header, and ``text``, in lower case, occurs in its value."""

    name: str
    text: str

    def passes(self, message: BrokerMessage, hidden: HiddenPaths) -> bool:
        """Whether the message passes; no text is found in a value that is hidden."""
        value = message.headers.get(self.name)
        if value is None or not self.text:
            return value is not None
        return self.text in value.lower() and not hidden.hides_header(self.name)


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """A message matches if it meets all criteria; None and an empty text are no criterion. Ages are in milliseconds,
    sizes in bytes.

    ``text`` must occur in the body. ``match`` is its format: text, which is case-insensitive; bytes in hex; or a
    regular expression in RE2's syntax. ``header`` is the name of a header, or a name, a colon and a text that must
    occur in its value, in any case: ``tenant`` or ``tenant:acme``.
    """

    state: State | None = None
    id: str = ""
    text: str = ""
    match: Match = "text"
    header: str = ""
    min_attempts: int | None = None
    max_attempts: int | None = None
    min_age_ms: int | None = None
    max_age_ms: int | None = None
    min_size: int | None = None
    max_size: int | None = None

    def matches_message(self, message: BrokerMessage, now_ms: int) -> bool:
        """Whether the message meets the criteria, except that of its body."""
        return (
            self.state in (None, message.state)
            and self.id in ("", message.id)
            and _within(message.attempts, self.min_attempts, self.max_attempts)
            and _within(now_ms - message.timestamp // 1_000_000, self.min_age_ms, self.max_age_ms)
            and _within(message.size, self.min_size, self.max_size)
        )

    def header_test(self, hidden: HiddenPaths) -> HeaderTest | None:
        """The test of the headers, None if there is none. Raises ValidationError for the field ``header``, also if the
        value of that header is hidden."""
        if not self.header:
            return None
        name, _, text = self.header.partition(":")
        test = HeaderTest(name.strip().lower(), text.strip().lower())
        if not is_header_name(test.name):
            raise ValidationError({"header": f"{name!r} is not the name of a header; expected tenant or tenant:acme"})
        if test.text and hidden.hides_header(test.name):
            raise ValidationError({"header": f"a mask hides the values of header {test.name} from you"})
        return test

    def body_test(self) -> Callable[[bytes], bool] | None:
        """A function that tests a body; None if every body matches. Raises ValidationError for the field ``text``."""
        if not self.text:
            return None
        if self.match == "hex":
            return _containing(self.text)
        options = re2.Options()
        options.log_errors = False
        options.max_mem = LARGEST_PATTERN_BYTES
        options.case_sensitive = self.match == "regex"
        try:
            pattern = re2.compile(re2.escape(self.text) if self.match == "text" else self.text, options)
        except re2.error as error:
            reason = error.args[0] if error.args else "not a regular expression"
            raise ValidationError({"text": reason.decode() if isinstance(reason, bytes) else str(reason)}) from None
        return lambda body: pattern.search(body) is not None

    @property
    def described(self) -> str:
        """The names of the criteria that are set, without values, which may be confidential."""
        names = [
            name for name in self.__dataclass_fields__ if name != "match" and getattr(self, name) not in (None, "")
        ]
        return f"by {', '.join(names)}" if names else "all messages"


def _within(value: int, least: int | None, most: int | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def _containing(text: str) -> Callable[[bytes], bool]:
    try:
        wanted = bytes.fromhex(text)
    except ValueError:
        raise ValidationError({"text": "not pairs of hexadecimal digits, such as 7b 22"}) from None
    return lambda body: wanted in body
