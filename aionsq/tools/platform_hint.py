"""A hint for errors at the default addresses of a subcommand of ``nsq``: nobody may listen there."""

from __future__ import annotations

import logging
import os
import re
from typing import Final

from aionsq.tools.flags import LOOKUPDS_VARIABLE, default_lookupd, default_nsqd
from nsqdaemon.default_ports import VARIABLE
from nsqdaemon.variable import InvalidVariable

HINT: Final = f"is nsq up running? With --port-base N, set {VARIABLE}=N"


def with_hint(text: str) -> str:
    """The line, with a hint at its end if a default address refused the connection."""
    try:
        defaults = [default_nsqd(), *([] if os.environ.get(LOOKUPDS_VARIABLE) else [default_lookupd()])]
    except InvalidVariable:
        return text
    if HINT in text:
        return text
    refused = rf"(?<![\w.])(?:{'|'.join(map(re.escape, defaults))})(?:/\w+)?: connection refused"
    return f"{text}; {HINT}" if re.search(refused, text) else text


class HintFilter(logging.Filter):
    """Adds the hint to lines of the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record's text; none is dropped."""
        try:
            record.msg, record.args = with_hint(record.getMessage()), ()
        except (TypeError, ValueError):  # a log call with wrong arguments, which the handler reports
            pass
        return True
