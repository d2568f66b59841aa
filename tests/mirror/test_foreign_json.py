"""JSON that no member wrote, in greetings, manifests, the pair's record and mirror.json, is an error with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from brokerd.mirror.frames import InvalidStream
from brokerd.mirror.hello import Hello, Welcome
from brokerd.mirror.manifest import decode_files
from brokerd.mirror.pair import InvalidRecord, PairRecord
from brokerd.mirror.stamps import Stamps
from brokerd.replica import STATE, MirrorState

READERS: dict[str, tuple[Callable[[bytes], object], type[Exception]]] = {
    "hello": (Hello.from_bytes, InvalidStream),
    "welcome": (Welcome.from_bytes, InvalidStream),
    "manifest": (decode_files, InvalidStream),
    "record": (PairRecord.from_bytes, InvalidRecord),
    "stamps": (Stamps.from_bytes, InvalidStream),
}
NAMES = (
    "member",
    "pair",
    "boot",
    "has_data",
    "node_id",
    "tcp_port",
    "http_port",
    "lease_s",
    "epoch",
    "leader",
    "in_sync",
    "stamp",
    "unserved",
    "last",
    "next",
    "stores_stamps",
    "has_stood_back",
)
DEEP = [b"[" * 200_000, b'{"a":' * 100_000]
INFINITE = json.dumps(dict.fromkeys(NAMES, 1)).replace(": 1", ": 1e999").encode()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
TEXTS = (
    st.dictionaries(st.sampled_from(NAMES), VALUES).map(lambda fields: json.dumps(fields).encode())
    | st.lists(st.tuples(VALUES, VALUES, VALUES) | VALUES, max_size=3).map(lambda files: json.dumps(files).encode())
    | st.binary(max_size=30)
)


def reason_against(read: Callable[[Any], object], what: Any, refusal: type[Exception]) -> str:
    """The text of the refusal; empty if there is none."""
    try:
        read(what)
    except refusal as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", READERS)
@given(text=TEXTS)
@example(text=DEEP[0])
@example(text=DEEP[1])
@example(text=INFINITE)
@example(text=b"[[1e999,1e999,1e999]]")
@settings(max_examples=100, deadline=None)
def test_a_text_of_a_stranger_is_read_or_refused(kind: str, text: bytes) -> None:
    """No other error, which would end a connection with a traceback in the log."""
    read, refusal = READERS[kind]
    reason = reason_against(read, text, refusal)
    assert not reason or "cannot be read" in reason or "is not the path" in reason


@given(text=TEXTS)
@example(text=DEEP[0])
@example(text=INFINITE)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mirror_json_that_cannot_be_read_is_named(text: bytes, tmp_path: Path) -> None:
    """The start then ends with the file in one line."""
    (tmp_path / STATE).write_bytes(text)
    reason = reason_against(MirrorState.read, tmp_path, ValueError)
    assert not reason or f"{tmp_path / STATE} cannot be read" in reason
