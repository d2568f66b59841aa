"""Checks of the types of arguments. A type checker finds the same mistakes before the program runs."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args, get_origin

from aionsq.errors import WrongType


def check_type(what: str, value: object, kind: Any) -> None:
    """Raise WrongType, which begins with ``what``, unless the value is of the type ``kind``, which may be a union.

    As for a type checker, an int is a float. Unlike for a type checker, a bool is not a number. The text does not
    contain the value, which may be a secret.
    """
    members = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    kinds = tuple(get_origin(member) or member for member in members)
    accepted = (*kinds, int) if float in kinds else kinds
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in kinds):
        takes = " or ".join(_with_article(each) for each in kinds)
        example = ", such as timedelta(seconds=30)" if timedelta in kinds else ""
        raise WrongType(f"{what} is {takes}{example}, not {_shown(value)}")


def check_callable(what: str, value: object) -> None:
    """Raise WrongType unless the value can be called."""
    if not callable(value):
        raise WrongType(f"{what} is a function, not {_shown(value)}")


def check_name(name: object, what: str) -> None:
    """Raise WrongType unless the name of a ``what``, a topic or a channel, is a str."""
    if not isinstance(name, str):
        raise WrongType(f"the name of a {what} is a str, not {_shown(name)}")


def check_options(options: object, expected: type) -> None:
    """Raise WrongType unless ``options`` is None or of the class ``expected``."""
    if options is not None and not isinstance(options, expected):
        raise WrongType(f"options is a {expected.__name__}, not {_shown(options)}")


def check_delay(delay: object) -> None:
    """Raise WrongType unless the delay is a timedelta."""
    if not isinstance(delay, timedelta):
        raise WrongType(f"a delay is a timedelta, not {_shown(delay)}")


def check_timeout(timeout: object) -> None:
    """Raise WrongType unless the timeout is a timedelta."""
    if not isinstance(timeout, timedelta):
        raise WrongType(f"a timeout is a timedelta, not {_shown(timeout)}")


def check_bodies(bodies: object) -> None:
    """Raise WrongType if what mpub publishes is one body, or no collection of bodies."""
    if isinstance(bodies, bytes | bytearray | memoryview | str) or not isinstance(bodies, Iterable):
        raise WrongType(f"mpub publishes a list of bodies, not {_shown(bodies)}")


def check_headers(headers: object) -> None:
    """Raise WrongType unless the headers of a message are None or a mapping."""
    if headers is not None and not isinstance(headers, Mapping):
        raise WrongType(f"the headers of a message are a mapping, not {_shown(headers)}")


def check_headers_of_each(headers: object) -> None:
    """Raise WrongType unless ``headers`` is a sequence with the headers of each message."""
    if isinstance(headers, str) or not isinstance(headers, Sequence):
        check_headers(headers)
    else:
        for each in headers:
            check_headers(each)


def body_bytes(body: object) -> bytes:
    """Return the bytes of a message's body. Raises WrongType for what has none, such as a str."""
    if isinstance(body, str):
        raise WrongType("the body of a message is bytes, not str: encode it, as in text.encode()")
    try:
        return memoryview(body).tobytes()  # type: ignore[arg-type]
    except TypeError:
        raise WrongType(f"the body of a message is bytes, not {_shown(body)}") from None


def _with_article(kind: type) -> str:
    if kind is types.NoneType:
        return "None"
    return f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"


def _shown(value: object) -> str:
    return type(value).__name__
