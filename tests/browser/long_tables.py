"""Rows of a long table, which draws only those in view."""

from __future__ import annotations

from playwright.sync_api import Locator

SCROLL_TO = """(table, top) => new Promise(done => {
    const box = table.closest('.scroll');
    box.scrollTop = top === null ? box.scrollTop + box.clientHeight / 2 : top;
    const atEnd = () => box.scrollTop + box.clientHeight >= box.scrollHeight;
    requestAnimationFrame(() => requestAnimationFrame(() => done(atEnd())));
})"""
"""Scrolls to ``top``, or by half a page if it is null. Resolves once the rows in view are drawn: true at the end."""


def scrolled_to(table: Locator, wanted: Locator) -> Locator:
    """Scroll ``table`` from its top until ``wanted`` is drawn, at most to its end. Returns ``wanted``.

    Rows of the position before are drawn until the next frame, so one is looked up only after it.
    """
    at_end = table.evaluate(SCROLL_TO, 0)
    while wanted.count() == 0 and not at_end:
        at_end = table.evaluate(SCROLL_TO, None)
    return wanted
