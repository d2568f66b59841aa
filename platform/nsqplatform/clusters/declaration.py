"""The clusters that a TOML file declares in addition to the default one. Read before Django's settings, so nothing here
uses them.

    [default]
    title = "Vienna"

    [clusters.berlin]
    title = "Berlin"
    lookupd_http_addresses = ["10.0.0.1:4161"]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from nsqcluster.addresses import base_url
from nsqwire.addresses import parse_host_port

DEFAULT = "default"
"""The name of the cluster of the ordinary settings. Its pages are not below ``/c/``."""
TITLE_CHARACTERS = 40
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")


class BadDeclaration(ValueError):
    """The text says which part of the file is not accepted, and why."""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One cluster of the file. Empty values are those of the settings: see the functions of clusters.current."""

    name: str
    title: str = ""
    lookupd_http_addresses: tuple[str, ...] = ()
    nsqd_http_addresses: tuple[str, ...] = ()
    tls_root_ca_file: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_insecure_skip_verify: bool = False
    archive: str = ""
    """A folder, or a URL of a file system that Arrow and Spark read."""
    history: str = ""
    """A folder."""


DEFAULT_ONLY = (Declaration(name=DEFAULT),)
"""The declarations if there is no file."""


def clusters_of(path: Path) -> tuple[Declaration, ...]:
    """The declarations in a file, the default cluster first. Raises BadDeclaration and OSError."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadDeclaration(f"{path} is not TOML: {error}") from None
    if unknown := [key for key in found if key not in (DEFAULT, "clusters")]:
        raise BadDeclaration(f"{path}: there is no key {unknown[0]!r}; there are default and clusters")
    default = _table(found, DEFAULT)
    if unknown := [key for key in default if key != "title"]:
        raise BadDeclaration(f"{path}: default.{unknown[0]}: the default cluster has only a title here")
    try:
        first = _declaration(DEFAULT, default)
        return first, *(_checked(name, _table(found["clusters"], name)) for name in _table(found, "clusters"))
    except BadDeclaration as error:
        raise BadDeclaration(f"{path}: {error}") from None


def _table(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = found.get(key, {})
    if not isinstance(table, dict):
        raise BadDeclaration(f"{key} is not a table")
    return table


def _checked(name: str, table: Mapping[str, Any]) -> Declaration:
    if name == DEFAULT or _NAME.fullmatch(name) is None:
        raise BadDeclaration(
            f"{name!r} is not a cluster's name: 1 to 32 lower-case letters, digits and hyphens, and not {DEFAULT!r}"
        )
    found = _declaration(name, table)
    if not (found.lookupd_http_addresses or found.nsqd_http_addresses):
        raise BadDeclaration(f"clusters.{name}: lookupd_http_addresses or nsqd_http_addresses is required")
    if bool(found.tls_cert) != bool(found.tls_key):
        raise BadDeclaration(f"clusters.{name}: tls_cert and tls_key are required together")
    return found


def _declaration(name: str, table: Mapping[str, Any]) -> Declaration:
    found = Declaration(name=name)
    known = {field.name for field in fields(Declaration)} - {"name"}
    for key, value in table.items():
        if key not in known:
            raise BadDeclaration(f"clusters.{name}: there is no key {key!r}; there are {', '.join(sorted(known))}")
        default = getattr(found, key)
        if isinstance(default, tuple):
            value = _addresses(f"clusters.{name}.{key}", value)
        elif type(value) is not type(default):
            kind = "true or false" if isinstance(default, bool) else "a text"
            raise BadDeclaration(f"clusters.{name}.{key} is not {kind}")
        found = replace(found, **{key: value})
    if len(found.title) > TITLE_CHARACTERS or not found.title.isprintable():
        raise BadDeclaration(f"clusters.{name}.title: at most {TITLE_CHARACTERS} printable characters")
    return found


def _addresses(where: str, value: object) -> tuple[str, ...]:
    """``host:port`` of HTTP listeners."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadDeclaration(f"{where} is not a list of host:port")
    for address in value:
        try:
            base_url(f"http://{address}")
            host, port = parse_host_port(address)
        except ValueError:
            host, port = "", 0
        if not host or not 0 < port < 65536:
            raise BadDeclaration(f"{where}: {address!r} is not host:port")
    return tuple(value)


def redis_prefix(name: str) -> str:
    """The prefix of a cluster's keys in Redis."""
    return "nsq:" if name == DEFAULT else f"nsq:c:{name}:"
