"""The widths of screens, and whether a page is as wide as its window."""

from __future__ import annotations

from playwright.sync_api import Page, ViewportSize

WIDTHS: dict[str, ViewportSize] = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
BEYOND = """
() => new Promise((done) => {
  const { documentElement: root } = document;
  requestAnimationFrame(() => requestAnimationFrame(() => done(root.scrollWidth - root.clientWidth)));
})
"""
"""The first of the two frames ends with what follows a new width: resize observers run after it was laid out."""


def pixels_beyond(page: Page) -> int:
    """Return by how many pixels ``page`` is wider than its window, as its next frame shows it."""
    beyond: int = page.evaluate(BEYOND)
    return beyond
