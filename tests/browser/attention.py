"""What the overview lists as needing attention."""

from __future__ import annotations

from contextlib import suppress

from playwright.sync_api import Error, Locator, Page

from tests.harness.waiting import wait_until


def attention_item(page: Page, text: str) -> Locator:
    """Wait for the item of the overview's list that contains ``text``, and return it. The page lists the first few
    items, and all of them after a click."""
    region = page.get_by_role("region", name="Needs attention")
    item = region.get_by_role("listitem").filter(has_text=text)
    rest = region.get_by_role("button", name="Show all")

    def is_listed() -> bool:
        if item.count() == 0 and rest.count() > 0:
            # It disappears if the list becomes shorter.
            with suppress(Error):
                rest.click(timeout=1000)
        return item.count() > 0

    wait_until(is_listed, f"{text} needs attention")
    return item
