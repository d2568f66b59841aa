"""The state of the registration, ``iceberg/state.json`` in the archive, which the page of the archive shows."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from nsqanalytics.files import Folder


@dataclass(frozen=True)
class TableState:
    """A table after the last registration."""

    name: str
    files: int
    rows: int
    snapshot_id: int | None
    changed_at: datetime | None


@dataclass(frozen=True)
class State:
    """The last registration: the catalog, when it was tried, and why it failed; empty if it did not.

    If it failed, the tables are those of the last one that did not.
    """

    catalog: str
    tried_at: datetime
    error: str
    tables: tuple[TableState, ...]


def read_state(root: str) -> State | None:
    """Return the state, or None if there is none that can be read."""
    place = Folder(f"{root.rstrip('/')}/iceberg")
    try:
        with place.system.open_input_stream(f"{place.root}/state.json") as stream:
            return _parsed(json.loads(stream.read()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_state(root: str, state: State) -> None:
    """Replace the state. Raises OSError."""
    place = Folder(f"{root.rstrip('/')}/iceberg")
    place.system.create_dir(place.root, recursive=True)
    path = f"{place.root}/state.json"
    aside = path if place.system.type_name == "s3" else f"{path}.{secrets.token_hex(4)}"
    with place.system.open_output_stream(aside) as stream:
        stream.write(json.dumps(asdict(state), default=datetime.isoformat).encode())
    if aside != path:
        place.move(aside, path)


def _parsed(given: dict[str, Any]) -> State:
    tables = tuple(
        TableState(**{**table, "changed_at": _time(table["changed_at"]) if table["changed_at"] else None})
        for table in given["tables"]
    )
    return State(given["catalog"], _time(given["tried_at"]), given["error"], tables)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
