"""The errors of reading a JSON text that somebody else wrote, and the fields in it."""

from __future__ import annotations

from typing import Final

UNREADABLE_JSON: Final = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What ``json.loads`` raises, and then access to its values as other types than they have. Deep nesting is a
RecursionError, and ``int`` of ``1e999``, which is infinity, an OverflowError."""
