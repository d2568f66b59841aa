"""One declared setting, and the parsing of its values from text and from a TOML file."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from nsqdaemon.logs import LogLevel
from nsqwire.durations import format_duration, nanoseconds, parse_duration

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


@dataclass(kw_only=True, slots=True)
class Declaration:
    """The declaration of one field of a settings class; ``kind`` is the type of one value.

    The other attributes are the arguments of :func:`nsqdaemon.settings.setting`.
    """

    default: Any
    help: str
    flag: str | None  # if None, the field's name with dashes is filled in when the class is created
    key: str | None
    file: bool
    env: bool
    min: Any
    max: Any
    choices: tuple[str, ...]
    bare: str | None
    shown: str | None
    hidden: bool
    kind: type = str
    repeatable: bool = False

    @property
    def flag_name(self) -> str:
        """The flag, for a setting that has one."""
        assert self.flag is not None
        return self.flag

    @property
    def takes_no_value(self) -> bool:
        """Whether ``--flag`` is valid without a value; such a flag never takes the next word as its value."""
        return self.kind is bool or self.bare is not None


def value_of_code(declaration: Declaration, value: Any) -> Any:
    """Convert a default or bound to the declaration's type; a str is parsed like the value of a flag."""
    return value_from_text(declaration, value) if isinstance(value, str) else value


def value_from_text(declaration: Declaration, text: str) -> Any:
    """Parse one value of a flag or environment variable. Raises ValueError with a message for the user."""
    kind: Any = declaration.kind
    value: Any = text
    if declaration.choices:
        value = text.lower()
        if value not in declaration.choices:
            raise ValueError(f"{text!r} is not one of {', '.join(c for c in declaration.choices if c)}")
    elif kind is bool:
        if text not in _TRUE | _FALSE:
            raise ValueError(f"{text!r} is neither true nor false")
        return text in _TRUE
    elif kind is int or kind is float:
        try:
            value = kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {'a whole number' if kind is int else 'a number'}") from None
    elif kind is timedelta:
        value = parse_duration(text)
    elif kind is LogLevel:
        value = LogLevel.parse(text)
    return _within(declaration, value)


def _within(declaration: Declaration, value: Any) -> Any:
    number = nanoseconds(value) if isinstance(value, timedelta) else value
    if isinstance(number, int) and not -(2**63) <= number < 2**63:  # as in nsqd, whose numbers have 64 bits
        raise ValueError(f"{shown_value(value)} is out of range")
    if declaration.min is not None and value < declaration.min:
        raise ValueError(f"{shown_value(value)} is less than {shown_value(declaration.min)}")
    if declaration.max is not None and value > declaration.max:
        raise ValueError(f"{shown_value(value)} is more than {shown_value(declaration.max)}")
    return value


def value_from_file(declaration: Declaration, value: Any) -> Any:
    """Parse a TOML value. A string is parsed like a flag's value, and split at commas if the setting is a list.

    An integer is milliseconds if the setting is a duration. Raises ValueError with a message for the user.
    """
    if declaration.repeatable:
        parts = split_list(value) if isinstance(value, str) else value
        if not isinstance(parts, list):
            raise ValueError(f"{value!r} is not a list")
        return tuple(_one_from_file(declaration, part) for part in parts)
    return _one_from_file(declaration, value)


def _one_from_file(declaration: Declaration, value: Any) -> Any:
    kind = declaration.kind
    if isinstance(value, str):
        return value_from_text(declaration, value)
    if isinstance(value, bool):
        if kind is bool:
            return value
        if declaration.bare is not None:
            return value_from_text(declaration, str(value).lower())
    elif isinstance(value, int):
        if kind is timedelta:
            try:
                return _within(declaration, timedelta(milliseconds=value))
            except OverflowError:
                raise ValueError(f"{value} is out of range") from None
        if kind is int or kind is float:
            return _within(declaration, kind(value))
    elif isinstance(value, float) and kind is float:
        return _within(declaration, value)
    raise ValueError(f"{value!r} is not {_KIND_WORDS[kind]}")


def split_list(text: str) -> list[str]:
    """Split a list at its commas, without white space and empty parts."""
    return [part.strip() for part in text.split(",") if part.strip()]


_KIND_WORDS: Final[dict[type, str]] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    timedelta: "a duration (a string such as 1m30s, or whole milliseconds)",
    LogLevel: "a log level",
}


def shown_value(value: Any) -> str:
    """Return a value as a user would write it in a flag."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return format_duration(nanoseconds(value))
    if isinstance(value, LogLevel):
        return value.word
    return str(value)
