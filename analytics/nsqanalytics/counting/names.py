"""The topics that a report is about: names and patterns, separated by commas."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Names:
    """``orders``, or ``orders.*, invoices``; ``*`` is any characters.

    Names are compared as a whole and with their case. An empty text is any name; commas alone are none.
    """

    text: str

    @property
    def exact(self) -> list[str]:
        """The names without a pattern."""
        return [name for name in self._given() if "*" not in name]

    @property
    def expressions(self) -> list[str]:
        """The patterns as regular expressions of a whole name, of Python and of Java."""
        patterns = [name for name in self._given() if "*" in name]
        return ["^" + ".*".join(re.escape(part) for part in pattern.split("*")) + "$" for pattern in patterns]

    @property
    def is_any(self) -> bool:
        """Whether it is any name."""
        return not self.text.strip()

    def contain(self, name: str) -> bool:
        """Whether the name is one of these."""
        return self.is_any or name in self.exact or any(re.search(each, name) for each in self.expressions)

    def _given(self) -> list[str]:
        return [name.strip() for name in self.text.split(",") if name.strip()]


ANY_NAME = Names("")
