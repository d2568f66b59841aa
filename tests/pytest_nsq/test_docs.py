"""The example of docs/testing.md runs as it is written."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_the_example_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "DJANGO_"))]:
        monkeypatch.delenv(name, raising=False)
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [name for name, _ in blocks] == ["service.py", "test_service.py", "test_consumer.py"]
    for name, code in blocks:
        (pytester.path / name).write_text(code)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=5)


def test_the_page_has_every_fault_and_member() -> None:
    from pytest_nsq.nsq import FAULTS, NSQ

    page = PAGE.read_text()
    members = [name for name in vars(NSQ) if not name.startswith("_") and name != "reset"]
    assert [name for name in (*FAULTS, *members) if f"`{name}" not in page] == []
