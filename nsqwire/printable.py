"""Text of other machines, for people's terminals and logs."""

from __future__ import annotations

import re
from typing import Final

_ACTED_ON: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, changes of the writing direction, and surrogates, which cannot be encoded."""


def printable(text: str) -> str:
    r"""Return the text with an escape, such as ``\n`` or ``\x1b``, for each character that a terminal would act on."""
    if text.isprintable():
        return text
    return _ACTED_ON.sub(lambda found: ascii(found[0])[1:-1], text)
