"""The address of a Spark master."""

from __future__ import annotations

import re

FORMS = "local[*], spark://host:port, yarn or k8s://https://host:port"
_MASTERS = re.compile(r"local(-cluster)?(\[[\w*, ]+\])?|spark://.+|yarn|k8s://.+")
"""The forms of a master that Spark's documentation lists."""


def is_master(text: str) -> bool:
    """Whether ``text`` is in a form of Spark. Whether a master answers there is not checked."""
    return _MASTERS.fullmatch(text) is not None
