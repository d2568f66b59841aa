"""Tables with the longest names that the platform accepts."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.harness.waiting import wait_until

FITS = "table => table.parentElement.scrollWidth <= table.parentElement.clientWidth"
NAME = "Parcels are sorted and weighed " * 3
PATTERN = "parcels-that-are-sorted-and-weighed-in-the-harbour-of-hamburg.*"
FOREVER_MS = 4_000_000_000_000
MADE: dict[str, dict[str, Any]] = {
    "objectives": {
        "name": NAME,
        "kind": "success",
        "target_percent": 99.0,
        "topic_pattern": PATTERN,
        "channel_pattern": PATTERN,
    },
    "alerts/notifiers": {"name": NAME, "kind": "webhook", "url": f"https://hooks.example.com/{PATTERN}"},
    "alerts/rules": {
        "name": NAME,
        "scope": "channel",
        "metric": "depth",
        "comparison": "above",
        "threshold": 123_456_789.0,
        "hold_s": 86_399,
        "topic_pattern": PATTERN,
        "channel_pattern": PATTERN,
        "notifiers": [NAME.strip()],
    },
    "alerts/silences": {
        "reason": NAME * 4,
        "topic_pattern": PATTERN,
        "channel_pattern": PATTERN,
        "node_pattern": PATTERN,
        "ends_at": FOREVER_MS,
    },
    "reports/schedules": {"name": NAME, "job": "latency", "cron": "0 6 1,15 * 1-5", "time_zone": "America/New_York"},
    "masks": {"topic_pattern": PATTERN, "paths": [f"$.{PATTERN[:-2].replace('-', '_')}", "$.card.number"] * 4},
    "people": {"username": "p" * 150, "role": "operator", "topic_patterns": [PATTERN, f"x{PATTERN[1:]}"]},
}
"""What is created, by its path in the API."""
TABLES = {
    "Objectives": "/objectives",
    "Rules": "/alerts?tab=rules",
    "Silences": "/alerts?tab=silences",
    "Schedules": "/reports",
    "Masks": "/masks",
    "People": "/people",
}


@pytest.fixture
def named(visit: Any) -> Any:
    """An administrator; what is created is deleted after the test."""
    visitor = visit("/alerts", user="ada", viewport={"width": 1440, "height": 900})
    made = []
    for path, body in MADE.items():
        status, answer = visitor.call("POST", path, body)
        assert status == 201, (path, answer)
        made.append(f"{path}/{answer.get('id') or answer['username']}")
    yield visitor
    for path in reversed(made):
        visitor.call("DELETE", path)


def test_tables_of_long_names_fit_a_screen_of_1440(named: Any) -> None:
    """No part of a table, such as its buttons, is beyond the screen; names are shortened."""
    page = named.page
    for name, path in TABLES.items():
        page.goto(path)
        table = page.get_by_role("table", name=name, exact=True)
        expect(table.get_by_role("row").nth(1)).to_be_visible()
        wait_until(lambda table=table: table.evaluate(FITS), f"no part of {name} is beyond the screen")
