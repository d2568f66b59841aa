"""Declarations of jobs' parameters, from which they are parsed and checked, and from which forms are made."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar, get_args, get_origin, get_type_hints

from nsqwire.counted import counted
from nsqwire.durations import format_duration, nanoseconds, parse_duration

Kind = Literal["choice", "duration", "time", "text", "integer", "number"]


class BadParameter(Exception):
    """An invalid parameter.

    ``reason`` says why it is invalid and what is valid; ``parameter`` is its name, or empty.
    """

    def __init__(self, reason: str, parameter: str = "") -> None:
        super().__init__(f"{parameter}: {reason}" if parameter else reason)
        self.reason, self.parameter = reason, parameter


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """Declaration of a field of a parameters dataclass: its kind, range and texts.

    ``default`` is as a user writes it. ``suggested``, if given, is the value that a new form begins with instead.
    """

    kind: Kind
    title: str
    description: str
    default: str | int | float = ""
    choices: tuple[str, ...] = ()
    suggested: str = ""
    minimum: float | None = None
    maximum: float | None = None


P = TypeVar("P")
FIRST_TIME, LAST_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""The bounds of a time. Results store times as 64-bit nanoseconds, which also hold a period of a hundred years before
the first one, and as long a comparison before that."""
CLOCKS_DIFFER = timedelta(minutes=1)
"""How much later than here a time may be: that of another machine that is ahead."""
Given = Mapping[str, str | int | float | None]
"""Values of parameters by name, as given on a command line or in JSON."""

FormType = Literal["string", "integer", "number", "datetime"]


class FormField(TypedDict):
    """A parameter as JSON, for a form. ``default`` is null if there is none."""

    type: FormType
    title: str
    description: str
    default: str | int | float | None
    choices: NotRequired[list[str]]
    suggested: NotRequired[str]
    minimum: NotRequired[float]
    maximum: NotRequired[float]


_FORM_TYPES: dict[Kind, FormType] = {
    "choice": "string",
    "duration": "string",
    "time": "datetime",
    "text": "string",
    "integer": "integer",
    "number": "number",
}


def declared(parameters: type) -> dict[str, Parameter]:
    """Return name -> declaration, in the dataclass's order."""
    found = {}
    for name, hint in get_type_hints(parameters, include_extras=True).items():
        if get_origin(hint) is Annotated:
            found[name] = next(extra for extra in get_args(hint)[1:] if isinstance(extra, Parameter))
    return found


def summary(parameter: Parameter) -> str:
    """Return the description with the permitted values: ``Length of a window. One of 5m, 1h, 1d.``"""
    if parameter.choices:
        return f"{parameter.description} One of {', '.join(parameter.choices)}."
    if parameter.minimum is None:
        return parameter.description
    if parameter.maximum is None:
        return f"{parameter.description} At least {parameter.minimum:g}."
    return f"{parameter.description} From {parameter.minimum:g} to {parameter.maximum:g}."


def described(parameters: type) -> dict[str, FormField]:
    """Return the declarations as JSON, for a form: ``{"window": {"type": "string", "title": …, "choices": […]}}``."""
    form: dict[str, FormField] = {}
    for name, parameter in declared(parameters).items():
        form[name] = {
            "type": _FORM_TYPES[parameter.kind],
            "title": parameter.title,
            "description": parameter.description,
            "default": parameter.default if parameter.default != "" else None,
        }
        if parameter.choices:
            form[name]["choices"] = list(parameter.choices)
        if parameter.suggested:
            form[name]["suggested"] = parameter.suggested
        if parameter.minimum is not None:
            form[name]["minimum"] = parameter.minimum
        if parameter.maximum is not None:
            form[name]["maximum"] = parameter.maximum
    return form


def parse(parameters: type[P], given: Given) -> P:
    """Create the dataclass from the given values. A missing, null or empty value is replaced by the default.

    Raises BadParameter for the first name that is unknown or value that is invalid.
    """
    known = declared(parameters)
    for name in given:
        if name not in known:
            raise BadParameter(f"there is no parameter {name!r}; there are {', '.join(known)}")
    values = {}
    for name, parameter in known.items():
        value = given.get(name)
        text = "" if value is None else str(value).strip()
        values[name] = _value(name, parameter, text if text else str(parameter.default))
    return parameters(**values)


def refuse_future(parameters: object, now: datetime) -> None:
    """Raise BadParameter for the first time among the parameters that is after ``now``."""
    for name, parameter in declared(type(parameters)).items():
        at = getattr(parameters, name) if parameter.kind == "time" else None
        if at is not None and at > now + CLOCKS_DIFFER:
            raise BadParameter(
                f"{at:%Y-%m-%dT%H:%MZ} is in the future; it is now {now.astimezone(UTC):%Y-%m-%dT%H:%MZ}", name
            )


def _value(name: str, parameter: Parameter, text: str) -> Any:
    try:
        if bad := next((character for character in text if unicodedata.category(character) in ("Cc", "Cs")), ""):
            raise ValueError(f"it contains the character U+{ord(bad):04X}, which is not text")
        match parameter.kind:
            case "choice":
                if text not in parameter.choices:
                    raise ValueError(f"{text!r} is not one of {', '.join(parameter.choices)}")
                return text
            case "duration":
                return duration(text)
            case "time":
                return _moment(text) if text else None
            case "integer":
                return _integer(text, parameter)
            case "number":
                return _number(text, parameter) if text else None
            case "text":
                return text
    except ValueError as error:
        raise BadParameter(str(error), name) from None


def duration(text: str) -> timedelta:
    """Parse a duration in Go's notation or in whole days (``7d``), which Go does not have. Raises ValueError."""
    days = text.removesuffix("d")
    if text.isdecimal():
        raise ValueError(f"the duration {text!r} needs a unit, for example {text}h or {text}d")
    length = timedelta(days=min(int(days), 100_000)) if text != days and days.isdecimal() else parse_duration(text)
    if length <= timedelta(0):
        raise ValueError(f"the duration {text!r} is not positive")
    if length > timedelta(days=36_525):
        raise ValueError(f"the duration {text!r} is too long")
    return length


def written(length: timedelta) -> str:
    """Format a duration as :func:`duration` parses it: ``7d``, ``90m``; no duration is ``0s``."""
    if length and length % timedelta(days=1) == timedelta(0):
        return f"{length.days}d"
    return re.sub(r"(?<=[hm])0[ms](0s)?$", "", format_duration(nanoseconds(length)))


def spelt_out(length: timedelta, done: float = 0.0) -> str:
    """Format a duration for people: ``30 days``, ``6 hours``, ``90 minutes``; the last unit is rounded. With the share
    ``done`` (0..1), if that is one unit or more: ``14 of 30 days``."""
    units = ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute"))
    unit, name = next((each for each in units if length % each[0] == timedelta(0) or length >= 2 * each[0]), units[-1])
    number = round(length / unit)
    part = int(done * number)
    return f"{part:,} of {counted(number, name)}" if part else counted(number, name)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-03-14T15:00Z") from None
    if moment.tzinfo is None:
        with_time = text if len(text) > len("2026-03-14") else f"{text}T00:00"
        raise ValueError(f"the time {text!r} has no zone; for UTC, write {with_time}Z")
    # Not astimezone, which fails for the first and the last hours that a datetime can hold.
    if not FIRST_TIME <= moment <= LAST_TIME:
        raise ValueError(f"the time {text!r} is not from {FIRST_TIME:%Y} to {LAST_TIME:%Y}")
    return moment.astimezone(UTC)


def _number(text: str, parameter: Parameter) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number")
    if parameter.minimum is not None and number < parameter.minimum:
        raise ValueError(f"{number:g} is less than {parameter.minimum:g}")
    if parameter.maximum is not None and number > parameter.maximum:
        raise ValueError(f"{number:g} is more than {parameter.maximum:g}")
    return number


def _integer(text: str, parameter: Parameter) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    if parameter.minimum is not None and number < parameter.minimum:
        raise ValueError(f"{number} is less than {parameter.minimum:g}")
    if parameter.maximum is not None and number > parameter.maximum:
        raise ValueError(f"{number} is more than {parameter.maximum:g}")
    if number >= 2**63:
        raise ValueError(f"{number} is too large")
    return number
