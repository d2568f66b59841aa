"""docs/tools.md lists all flags."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from nsqdaemon.settings import markdown, rewrite_page

PAGE = Path(__file__).parents[3] / "docs" / "tools.md"
MODULES = ("to_file", "tail", "stat", "pub", "to_http", "to_nsq", "pubsub")


@pytest.mark.parametrize("module", MODULES)
def test_the_page_lists_every_flag_of_a_tool(module, tmp_path) -> None:
    """Below the tool's heading; ``make docs`` updates it."""
    tool = import_module(f"aionsq.tools.{module}").main
    assert f"\n\n{markdown(tool.flags)}" in PAGE.read_text()
    copy = tmp_path / "tools.md"
    copy.write_text(PAGE.read_text())
    rewrite_page(copy, tool.flags, f"## {tool.name}")
    assert copy.read_text() == PAGE.read_text()
