"""What a fuzzer sends to the platform's API: requests of its OpenAPI document, well-formed, nearly so and hostile.

Schemathesis draws the parameters and bodies of an operation, valid and invalid. Some of them are then replaced by
values of rows that exist, and one by a value or an encoding of the lists below.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import schemathesis
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode

DEEP: Any = "x"
for _ in range(200):
    DEEP = [DEEP]
LONG = "é" * 500_000
"""A million bytes of UTF-8."""
VALUES = [
    *("", " ", "\0", "a\0b", "\ud800", "a\udfffb", "\u202e", "\ufeff", "\U0010ffff", "e\u0301", "\r\nX: y", "x" * 3000),
    *(
        "%",
        "%00",
        "%zz",
        "..",
        "../../x",
        "'",
        '"',
        "\\",
        "<b>",
        "{{1}}",
        "${x}",
        "*",
        "[",
        "(?:a+)+$",
        "(",
        "#ephemeral",
    ),
    *("-1", "0", "1e999", "NaN", "0x10", "１", "٣", "+1", "1_000", "null", "true", "2026-02-30T25:61:61Z"),
    *(-1, 0, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400, 1.5, 1e308, -0.0),
    *(math.nan, math.inf, -math.inf, None, True, False, [], {}, [None], {"": None}, {"\0": "\ud800"}, DEEP),
]
LARGE = [LONG, [0] * 100_000, {str(n): n for n in range(20_000)}, {"a" * 100_000: 1}]
"""Values of bodies only: an address has a limit."""
BODIES = [
    *(
        b"",
        b" ",
        b"\0",
        b"\xff\xfe",
        b"{",
        b'{"a":',
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b"NaN",
        b"[" * 100_000,
        b'{"a":' * 50_000,
    ),
    *(
        b"9" * 10_000,
        b"1e999999999",
        b'"\\ud800"',
        b'{"topic": "t", "topic": {"a": 1}}',
        b"\xef\xbb\xbf{}",
        b"%PDF-1.4",
    ),
    *('{"topic": "é"}'.encode("utf-16"), '{"topic": "é"}'.encode("latin-1"), b"topic=t&channel=c", b'{"topic": "t"} x'),
]
HEADERS = [
    *({"Content-Type": kind} for kind in ("", "x", "text/plain", "application/xml", "multipart/form-data")),
    *({"Content-Type": f"application/json; charset={name}"} for name in ("utf-16", "latin-1", "none", "\xff")),
    {"Content-Type": "multipart/form-data; boundary=b"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    *(
        {"Authorization": value}
        for value in ("", "Bearer", "Bearer \xff", "Bearer " + "x" * 5000, "Basic eDp5", "Bearer a b")
    ),
    {"Cookie": "sessionid=\xff; csrftoken=;;=", "X-CSRFToken": "\xff"},
    {"Accept": "application/xml", "Accept-Language": "\xff", "Accept-Encoding": "x"},
    {"X-Forwarded-For": "\xff", "X-Forwarded-Proto": "gopher", "X-Forwarded-Host": "a b"},
    {"X-HTTP-Method-Override": "DELETE"},
    {"Origin": "null", "Referer": "\xff"},
    {"If-None-Match": "\xff", "If-Modified-Since": "x", "Range": "bytes=9-1"},
]
COMPRESSED = [
    b"\x1f\x8b",
    gzip.compress(b'{"topic": "t"}')[:-9],
    b"\x1f\x8b\x08" + b"\0" * 50,
    gzip.compress(b" " * 5_000_000),
]
QUERIES = [
    "&",
    "=",
    "&&limit=",
    "limit=1&limit=2&limit=x",
    "topic=t&topic=u",
    "topic[]=t",
    "%",
    "%zz=%ff",
    "a%00=%00",
    "\t",
]
"""Ends of an address."""


@schemathesis.serializer("application/toml")
def toml(context: Any, value: Any) -> bytes:
    return str(value).encode(errors="surrogatepass")


@dataclass(frozen=True, repr=False)
class Rows:
    """What exists: ids and names, by the names of parameters and fields, and the bodies that made them, by path.

    It has no text of its own, because hypothesis keeps the texts of arguments, and these are large.
    """

    known: Mapping[str, list[Any]]
    bodies: Mapping[str, list[Any]]


@dataclass
class Drawn:
    """A request; ``case`` is the one of the document that it was made from."""

    case: Case
    path: dict[str, str]
    query: dict[str, Any]
    body: Any
    has_body: bool
    headers: dict[str, str] = field(default_factory=dict)
    query_end: str = ""
    raw: bytes | None = None
    """The bytes of the body, in place of ``body``."""

    @property
    def target(self) -> str:
        """Path and query, as they are sent."""
        path = re.sub(r"\{(?:\w+:)?(\w+)\}", lambda name: self.path.get(name[1], "x"), self.case.operation.path)
        query = urlencode(self.query, doseq=True, errors="surrogatepass")
        return path + ("?" if query or self.query_end else "") + query + self.query_end

    @property
    def content(self) -> bytes | None:
        """The body as it is sent."""
        if self.raw is not None:
            return self.raw
        if not self.has_body:
            return None
        if self.case.media_type == "application/json":
            return json.dumps(self.body, default=str).encode()
        return str(self.body).encode(errors="surrogatepass")

    def described(self) -> str:
        """One line for a report."""
        content = self.content
        shown = "" if content is None else f" {content[:300]!r} ({len(content)} bytes)"
        return f"{self.case.operation.method.upper()} {self.target[:600]} {self.headers or ''}{shown}"


@st.composite
def requests_of(draw: st.DrawFn, operation: APIOperation, rows: Rows) -> Drawn:
    """A request of ``operation``, in part with values of ``rows``."""
    known, bodies = rows.known, rows.bodies
    mode = draw(st.sampled_from([GenerationMode.POSITIVE, GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
    case = draw(operation.as_strategy(generation_mode=mode))
    has_body = case.media_type is not None
    path = {name: str(value) for name, value in (case.path_parameters or {}).items()}
    drawn = Drawn(case, path, dict(case.query or {}), copy.deepcopy(case.body) if has_body else None, has_body)
    for name in path:
        if name in known and draw(st.integers(0, 3)):
            path[name] = quote(str(draw(st.sampled_from(known[name]))), safe="")
    accepted = bodies.get(operation.path) or bodies.get(operation.path.rpartition("/{")[0])
    if has_body and accepted and draw(st.booleans()):
        drawn.body = copy.deepcopy(_one(draw, accepted))
        if isinstance(drawn.body, dict) and "name" in drawn.body:  # names are unique
            drawn.body["name"] = f"another-{draw(st.integers(0, 10**9))}"
    if operation.query and draw(st.booleans()):  # only what is needed, which is accepted more often
        drawn.query = {each.name: drawn.query.get(each.name, "x") for each in operation.query if each.is_required}
    drawn.query |= {each.name: known[each.name][0] for each in operation.query if each.name in ("topic", "channel")}
    for fields in (drawn.query, drawn.body):
        if isinstance(fields, dict):
            for name in [each for each in fields if each in known]:
                if draw(st.integers(0, 3)):
                    fields[name] = draw(st.sampled_from(known[name]))
    if draw(st.booleans()):
        _make_hostile(draw, drawn)
    return drawn


def _make_hostile(draw: st.DrawFn, drawn: Drawn) -> None:
    """Change one thing."""
    kinds = ["headers", "query_end", *(["path"] * 2 if drawn.path else [])]
    kinds += ["query"] * 4 if drawn.case.operation.query else []
    kinds += ["field", "field", "field", "field", "body", "compressed"] if drawn.has_body else []
    kind = draw(st.sampled_from(kinds))
    if kind == "headers":
        drawn.headers = dict(_one(draw, HEADERS))
    elif kind == "query_end":
        drawn.query_end = ("&" if drawn.query else "") + _one(draw, QUERIES)
    elif kind == "path":
        value = str(_one(draw, VALUES))
        drawn.path[draw(st.sampled_from(sorted(drawn.path)))] = quote(value[:3000], safe="", errors="surrogatepass")
    elif kind == "query":
        name = draw(st.sampled_from([each.name for each in drawn.case.operation.query]))
        value = _one(draw, VALUES)
        drawn.query[name] = _one(draw, [value, [value, value], [1, value]])
    elif kind == "field":
        _replace(draw, drawn)
    elif kind == "body":
        drawn.raw = _one(draw, BODIES)
    else:
        drawn.raw = _one(draw, COMPRESSED)
        drawn.headers = {"Content-Encoding": draw(st.sampled_from(["gzip", "deflate", "br", "x"]))}


def _one(draw: st.DrawFn, values: Sequence[Any]) -> Any:
    """One of ``values``. Unlike ``sampled_from``, it makes no text of all of them, which are large."""
    return values[draw(st.integers(0, len(values) - 1))]


def _replace(draw: st.DrawFn, drawn: Drawn) -> None:
    """Replace a value anywhere in the body."""
    value = _one(draw, LARGE if draw(st.integers(0, 5)) == 0 else VALUES)
    at, parent, key = drawn.body, None, None
    while isinstance(at, (dict, list)) and at and (parent is None or draw(st.booleans())):
        parent, key = at, draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        at = parent[key]
    if parent is None:
        drawn.body = value
    else:
        parent[key] = value
