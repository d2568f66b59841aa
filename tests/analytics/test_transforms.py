"""Transforms are lazy: they describe frames, and the jobs run queries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nsqanalytics.transforms

EAGER = re.compile(r"\.(collect|isEmpty|toPandas|toLocalIterator|take|head|show|persist|cache|\w*_jdf|_jvm)\b")


@pytest.mark.parametrize("path", sorted(Path(nsqanalytics.transforms.__path__[0]).glob("*.py")), ids=lambda p: p.stem)
def test_a_transform_runs_no_query_and_uses_nothing_private_of_spark(path: Path):
    lines = enumerate(path.read_text().splitlines(), 1)
    assert [f"{path.name}:{n}: {line.strip()}" for n, line in lines if EAGER.search(line)] == []
