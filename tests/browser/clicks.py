"""Counts the clicks that a task takes, on all sites that it leads to."""

from __future__ import annotations

from playwright.sync_api import Page


class Clicks:
    """The clicks on a page from now on. Keys are not counted.

    Playwright aims again when the element moved under the pointer. It stops the press that missed
    at the window, so a listener on the document does not see it.
    """

    def __init__(self, page: Page) -> None:
        self.count = 0
        script = "document.addEventListener('pointerdown', () => window.countClick(), true)"
        page.expose_function("countClick", self._add)
        page.add_init_script(script)
        page.evaluate(script)

    def _add(self) -> None:
        self.count += 1
