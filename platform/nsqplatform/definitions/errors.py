"""Errors of an import: invalid values, by their path in the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class FieldFault(NamedTuple):
    """``field`` is a path such as ``rules.2.threshold``, with indexes from 0; empty: the whole file."""

    field: str
    message: str


class NotAllKnown(Exception):
    """Servers did not answer, so the cluster's topics or policies are not all known; the text names them."""


class InvalidDefinitions(Exception):
    """The file has invalid values; nothing was changed."""

    def __init__(self, faults: Sequence[FieldFault]) -> None:
        super().__init__("; ".join(f"{field}: {message}" if field else message for field, message in faults))
        self.faults = list(faults)
