"""What the platform's history has of a channel."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.harness.waiting import wait_until


def highest(page: Page, topic: str, channel: str, metric: str) -> float:
    """The highest recorded value of a channel's metric; 0 without one."""
    question = f"history?scope=channel&topic={topic}&channel={channel}"
    kept = page.evaluate(f"fetch('/api/v1/{question}').then((answer) => answer.json())")
    return max((value or 0 for value in kept["metrics"][metric]), default=0)


def reload_once_recorded(page: Page, topic: str, channel: str, metric: str) -> None:
    """Reload the page once the platform has recorded that a metric was above 0, perhaps for one second only.

    A page that cannot keep up skips snapshots, perhaps that of this second; the platform's history has it.
    """
    wait_until(lambda: highest(page, topic, channel, metric) > 0, f"the platform has recorded {metric}")
    page.reload()
