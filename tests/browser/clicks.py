"""Counts the clicks that a task takes, on all sites that it leads to."""

from __future__ import annotations

from playwright.sync_api import Page


class Clicks:
    """The clicks on a page from now on. Keys are not counted."""

    def __init__(self, page: Page) -> None:
        self.count = 0
        script = "addEventListener('pointerdown', () => window.countClick(), true)"
        page.expose_function("countClick", self._add)
        page.add_init_script(script)
        page.evaluate(script)

    def _add(self) -> None:
        self.count += 1
