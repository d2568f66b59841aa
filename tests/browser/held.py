"""Requests of a page that wait until the test lets them continue."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Self

from playwright.sync_api import Page, Request, Route

from tests.harness.waiting import wait_until


class Held:
    """From now on, requests of ``method`` whose address matches ``pattern`` wait for ``release`` or ``refuse``."""

    def __init__(self, page: Page, pattern: str, method: str = "GET") -> None:
        self._page = page
        self._method = method
        self._is_open = False
        self._waiting: list[Route] = []
        self._answered: list[Request] = []
        page.route(re.compile(pattern), self._take)
        page.on("requestfinished", lambda request: self._answered.append(request))
        # A request that the page gives up, because it has sent a newer one, has no answer to take.
        page.on("requestfailed", lambda request: self._answered.append(request))

    def until(self, count: int = 1) -> Self:
        """Wait until ``count`` requests wait."""
        self._poll(lambda: len(self._waiting) >= count, f"{count} requests wait")
        return self

    def release(self) -> None:
        """Let all continue, also those to come, and wait until the page has taken the answers of those that waited."""
        self._end(lambda route: route.continue_())

    def refuse(self, status: int, message: str) -> None:
        """Answer those that wait with an error of the API; those to come continue."""
        self._end(lambda route: route.fulfill(status=status, json={"message": message}))

    def _take(self, route: Route) -> None:
        if self._is_open or route.request.method != self._method:
            route.fallback()
        else:
            self._waiting.append(route)

    def _end(self, end: Callable[[Route], None]) -> None:
        self._is_open = True
        waiting, self._waiting = self._waiting, []
        for route in waiting:
            end(route)
        self._poll(lambda: all(route.request in self._answered for route in waiting), "the answers")
        settle(self._page)

    def _poll(self, condition: Callable[[], bool], what: str) -> None:
        def is_met() -> bool:
            self._page.evaluate("0")  # Playwright calls handlers during its own calls only
            return condition()

        wait_until(is_met, what)


def settle(page: Page) -> None:
    """Wait until the page has drawn what it knows now."""
    script = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
    page.evaluate(script)
