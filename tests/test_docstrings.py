"""Every public name of the packages that others import has a docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "nsqwire",
    "nsqdaemon",
    "nsqcommand",
    "nsqcluster",
    "brokerd",
    "lookup/nsqlookup",
    "aionsq",
    "analytics/nsqanalytics",
    "integrations/nsqkombu",
    "integrations/nsqtasks",
    "integrations/pytest_nsq",
)
CALLBACKS = {
    "asyncio": {
        "connection_made",
        "connection_lost",
        "data_received",
        "eof_received",
        "get_buffer",
        "buffer_updated",
        "pause_writing",
        "resume_writing",
    },
    "httptools": {"on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete"},
    "logging": {"format", "emit"},
    "argparse": {"error"},
}
"""Methods that a library calls, by the library whose documentation describes them."""


class Name(NamedTuple):
    """A public class, function or method."""

    where: str
    name: str
    is_documented: bool
    is_of_interface: bool
    """Whether it is a method of a Protocol or an abstract class."""


def names_in(path: Path) -> Iterator[Name]:
    """Yield the public names of a module and of its public classes."""

    def walk(scope: ast.Module | ast.ClassDef) -> Iterator[Name]:
        bases = {base.id for base in getattr(scope, "bases", ()) if isinstance(base, ast.Name)}
        for node in scope.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name[0] != "_":
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield Name(where, node.name, ast.get_docstring(node) is not None, bool(bases & {"Protocol", "ABC"}))
                if isinstance(node, ast.ClassDef):
                    yield from walk(node)

    yield from walk(ast.parse(path.read_text()))


def test_every_public_name_has_a_docstring():
    """A method without one is that of an interface, whose docstring applies, or one that a library calls."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = [name for path in paths if path.parent.name != "migrations" for name in names_in(path)]
    assert len(names) > 1000
    elsewhere = {name.name for name in names if name.is_of_interface and name.is_documented}.union(*CALLBACKS.values())
    assert [
        f"{each.where} {each.name}" for each in names if not each.is_documented and each.name not in elsewhere
    ] == []
