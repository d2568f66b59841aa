"""Records which functions of this source tree receive or return a number, in a process with this folder on PYTHONPATH.

Python imports a module of this name at its start. The environment names the number, WALK_FIGURE, and the folder for the
result, WALK_FOLDER. A process appends to a file of its own there: a line ``FILE FUNCTION`` when a function first has
the number in an argument or in its result. The number may be in a collection, an array or an object, but not in text or
encoded bytes. Compiled functions are not seen.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FIGURE = int(os.environ["WALK_FIGURE"])
DEPTH = 7
"""How deep collections and objects are looked into."""

_names: dict[CodeType, str | None] = {}
_seen: set[str] = set()


def carries(value: Any, depth: int = DEPTH) -> bool:
    """Return whether ``value`` is the number, or contains it."""
    kind = type(value)
    if kind in (int, float) or (kind.__module__ == "numpy" and kind.__name__ in ("int64", "float64")):
        return bool(value == FIGURE)
    if kind.__module__ == "numpy":
        return kind.__name__ == "ndarray" and value.dtype.kind in "if" and bool((value == FIGURE).any())
    if not depth or isinstance(value, type):
        return False
    if kind in (list, tuple, set, frozenset):
        return any(carries(item, depth - 1) for item in tuple(value))
    if isinstance(value, dict):
        return any(carries(item, depth - 1) for item in tuple(value.values()))
    if kind.__module__.split(".")[0] in ("brokerd", "nsqcluster", "nsqdaemon", "nsqplatform"):
        return any(carries(item, depth - 1) for item in fields_of(value))
    return False


def fields_of(value: Any) -> list[Any]:
    names = {*getattr(type(value), "__struct_fields__", ()), *getattr(type(value), "_fields", ())}
    held: Mapping[str, Any] = getattr(value, "__dict__", {})
    slots = {name for each in type(value).__mro__ for name in getattr(each, "__slots__", ()) if isinstance(name, str)}
    return [*held.values(), *(getattr(value, name, None) for name in names | slots if name not in held)]


def name_of(code: CodeType) -> str | None:
    """``FILE FUNCTION`` for code of this source tree; None for other code."""
    if code not in _names:
        file = Path(code.co_filename)
        is_ours = (
            file.is_relative_to(ROOT) and "site-packages" not in file.parts and file.parts[-1] != "sitecustomize.py"
        )
        _names[code] = f"{file.relative_to(ROOT)} {code.co_qualname}" if is_ours else None
    return _names[code]


def profile(frame: FrameType, event: str, arg: Any) -> None:
    if event not in ("call", "return"):
        return
    name = name_of(frame.f_code)
    if name is None or name in _seen:
        return
    code = frame.f_code
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = [frame.f_locals.get(each) for each in arguments if each != "self"] if event == "call" else [arg]
    if any(carries(value) for value in values):
        _seen.add(name)
        with (Path(os.environ["WALK_FOLDER"]) / str(os.getpid())).open("a") as file:
            file.write(f"{name}\n")


threading.setprofile(profile)
sys.setprofile(profile)
