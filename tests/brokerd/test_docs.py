"""The pages in docs/ that are made from declarations."""

from __future__ import annotations

from pathlib import Path

from brokerd.settings import BrokerSettings
from nsqwire.settings import markdown


def test_the_docs_list_the_settings_there_are() -> None:
    """docs/settings-nsqd.md holds the table the declarations give; ``make docs`` writes it anew."""
    page = Path(__file__).parents[2] / "docs" / "settings-nsqd.md"
    assert page.read_text().endswith("\n\n" + markdown(BrokerSettings))
