"""Ranges of time in requests."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from django.core.exceptions import ValidationError

At = TypeVar("At", int, datetime)


def check_range(since: At | None, until: At | None, *, names: tuple[str, str] = ("since", "until")) -> None:
    """Raise ValidationError for both parameters, by their ``names``, if the range ends before it begins.

    None is a parameter that was not given. The response is a 422.
    """
    if since is not None and until is not None and since > until:
        first, last = names
        raise ValidationError({first: f"{since} is after {last}, {until}", last: f"{until} is before {first}, {since}"})
