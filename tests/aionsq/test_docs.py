"""docs/client.md lists all options."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_option_tables_are_those_of_the_declarations():
    """If this fails, run ``python docs/client_options.py``."""
    generator = runpy.run_path(str(DOCS / "client_options.py"))
    text = (DOCS / "client.md").read_text()
    assert generator["page"](text) == text
    assert text.count("| `max_in_flight` |") == text.count("| `snappy` |") == text.count("| `nsqd_choice` |") == 1
