"""The window of charts: presets, a picker, and a selection by dragging, over what the platform has kept."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.clicks import Clicks
from tests.browser.widths import pixels_beyond
from tests.harness.waiting import wait_until

NEW_YORK = "America/New_York"
DAY_S = 86_400


def depth_at(at: int) -> int:
    """The depth of the kept days: another every two minutes of a day in UTC."""
    return 100 + at % DAY_S // 120


@pytest.fixture
def kept(stack, live):
    """Opens the page of a channel whose last four whole days are kept by minute."""
    from nsqplatform.cluster.history.files import Rows, path_of, write
    from nsqplatform.cluster.history.grains import MINUTES

    stack.publish("kept")
    stack.command("/channel/create", topic="kept", channel="days")
    today = int(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp())
    for day in range(today - 4 * DAY_S, today, DAY_S):
        depths = np.array([[depth_at(at) for at in range(day, day + DAY_S, 60)]], np.float32)
        rows = Rows(["channel:kept/days"], {"depth": depths})
        write(path_of(stack.history, MINUTES, day), DAY_S // 60, [rows], at=day + DAY_S + 100)

    def open_(query: str = "", **options: Any) -> Page:
        page = live(f"/topics/kept/days{query}", **options)
        dismiss_jobs(page)
        return page

    return open_


def dismiss_jobs(page: Page) -> None:
    """Jobs of other tests would lie over the charts, those with failures until they are dismissed."""
    panel, dismiss = page.get_by_role("region", name="Jobs"), page.get_by_role("button", name=re.compile("^Dismiss: "))

    def is_gone() -> bool:
        if dismiss.count():
            dismiss.first.click()
        return panel.count() == 0

    wait_until(is_gone, "no job is shown")


def chart(page: Page, title: str = "Depth, messages"):
    return page.get_by_role("region", name="Charts").get_by_role("img", name=title, exact=True)


def place(page: Page, fraction: float) -> tuple[float, float]:
    """A point of the chart of the depth; 0 is the beginning of its window, 1 the end."""
    chart(page).scroll_into_view_if_needed()
    box = chart(page).locator(".u-over").bounding_box()
    return box["x"] + fraction * box["width"], box["y"] + box["height"] / 2


def legend(page: Page, label: str):
    return chart(page).locator(".u-series").filter(has_text=label).locator(".u-value")


def test_the_depth_of_yesterday_at_three_is_two_clicks_away(kept):
    """Yesterday is the viewer's, from midnight to midnight; a click in the chart shows the figures of that time."""
    page = kept(timezone_id=NEW_YORK)
    clicks = Clicks(page)
    page.get_by_role("button", name="Yesterday").click()
    expect(page.get_by_role("button", name="Yesterday")).to_have_attribute("aria-pressed", "true")
    day = datetime.now(ZoneInfo(NEW_YORK)).date() - timedelta(days=1)
    hours = (midnight(day + timedelta(days=1)) - midnight(day)).total_seconds() / 3600
    three = midnight(day) + timedelta(hours=3)
    expect(legend(page, "Depth")).to_have_text(re.compile(r"^\d{3}$"))
    page.mouse.click(*place(page, 3 / hours))
    shown = legend(page, "Time")
    expect(shown).to_have_text(re.compile(rf"^{three.astimezone(ZoneInfo(NEW_YORK)):%-d %b} 0[23]:"))
    at = datetime.strptime(f"{day.year} {shown.inner_text()}", "%Y %d %b %H:%M:%S").replace(tzinfo=ZoneInfo(NEW_YORK))
    assert abs((at - three).total_seconds()) <= 600
    expect(legend(page, "Depth")).to_have_text(str(depth_at(int(at.timestamp()))))
    assert clicks.count == 2


def midnight(day) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(NEW_YORK)).astimezone(UTC)


def window(page: Page) -> tuple[datetime, datetime]:
    """The window in the address."""
    query = parse_qs(urlsplit(page.url).query)
    return datetime.fromisoformat(query["from"][0]), datetime.fromisoformat(query["to"][0])


PRESETS = {"5 m": 300, "1 h": 3600, "6 h": 21_600, "7 d": 7 * DAY_S, "30 d": 30 * DAY_S, "90 d": 90 * DAY_S}
PRESETS |= {"15 mo": 457 * DAY_S}


def test_charts_show_five_minutes_to_fifteen_months(kept):
    """Each preset is one click. The platform is asked for its time, in a step that a chart can draw."""
    page = kept("?span=24h")
    asked: list[float] = []
    """How long before its request each window began, in seconds."""

    def remember(request: Any) -> None:
        if "/api/v1/history?" in request.url:
            begin = datetime.fromisoformat(parse_qs(urlsplit(request.url).query)["from"][0])
            asked.append((datetime.now(UTC) - begin).total_seconds())

    page.on("request", remember)
    for short, seconds in PRESETS.items():
        button = page.get_by_role("button", name=short, exact=True)
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(page).to_have_url(re.compile(rf"[?&]span={short.replace(' ', '')}$"))

        def is_requested(seconds: int = seconds) -> bool:
            return any(abs(each - seconds) < 200 for each in asked)

        wait_until(is_requested, f"the figures of {short} are requested")
    expect(legend(page, "Depth")).to_be_visible()


def test_dragging_zooms_and_back_undoes_it(kept):
    """The address has the selected time, so that a link shows the same; a double click shows twice as much."""
    page = kept("?span=24h")
    page.mouse.move(*place(page, 0.25))
    page.mouse.down()
    page.mouse.move(*place(page, 0.5), steps=4)
    page.mouse.up()
    page.wait_for_url("**from=*")
    since, until = window(page)
    assert abs((until - since).total_seconds() - DAY_S / 4) < 1200
    assert abs((datetime.now(UTC) - until).total_seconds() - DAY_S / 2) < 1200
    expect(page.get_by_role("button", name="24 h", exact=True)).to_have_attribute("aria-pressed", "false")
    page.reload()
    assert window(page) == (since, until)
    expect(legend(page, "Depth")).to_be_visible()
    page.mouse.dblclick(*place(page, 0.5))
    page.wait_for_function("start => !location.href.includes(start)", arg=since.strftime("%Y-%m-%dT%H:%M:%SZ"))
    wider = window(page)
    assert wider[1] - wider[0] == 2 * (until - since)
    page.go_back()
    page.go_back()
    expect(page.get_by_role("button", name="24 h", exact=True)).to_have_attribute("aria-pressed", "true")


def test_an_address_that_is_not_understood_is_named_beside_the_charts(kept, axe):
    """With what is shown instead; the sentence disappears once a window is chosen."""
    page = kept("?span=zzz")
    fault = page.get_by_text("The address has span=zzz, which is not a time that charts can show.")
    expect(fault).to_contain_text("Shown instead: last 15 minutes.")
    assert axe(page) == []
    page.get_by_role("button", name="6 h", exact=True).click()
    expect(fault).to_have_count(0)


def test_zoom_and_hover_stay_while_figures_arrive(kept, stack):
    """What is under the pointer, and what is being selected, does not move with the next poll."""
    page = kept("?span=5m")
    stat = page.locator(".stat").filter(has_text="Depth").locator(".value")
    page.mouse.move(*place(page, 0.1))
    page.mouse.down()
    page.mouse.move(*place(page, 0.3), steps=3)
    before = stat.inner_text()
    stack.publish("kept")
    expect(stat).not_to_have_text(before)
    page.mouse.move(*place(page, 0.6), steps=3)
    page.mouse.up()
    page.wait_for_url("**from=*")
    zoomed = window(page)
    assert 120 <= (zoomed[1] - zoomed[0]).total_seconds() <= 180
    page.goto(page.url.partition("?")[0] + "?span=24h")
    expect(legend(page, "Depth")).to_be_visible()
    hovered = legend(page, "Time")
    expect(hovered).to_have_text(re.compile(r"\d\d:\d\d:\d\d$"))  # the latest, until the pointer is at another time
    hour = int(hovered.inner_text()[-8:-6])
    page.mouse.move(*place(page, 0.2))
    expect(hovered).not_to_have_text(re.compile(rf"\b({hour:02}|{(hour + 1) % 24:02}):\d\d:\d\d$"))
    time, before = hovered.inner_text(), stat.inner_text()
    stack.publish("kept")
    expect(stat).not_to_have_text(before)
    expect(hovered).to_have_text(time)


def test_the_picker_shows_any_time_and_refuses_none_silently(kept, axe):
    """Dates and times are the viewer's; a window without length is refused at its field; phones have it too."""
    page = kept(viewport={"width": 390, "height": 844}, timezone_id=NEW_YORK)
    page.get_by_title("Choose dates and times").click()
    dialog = page.get_by_role("dialog", name="Time shown")
    expect(dialog).to_contain_text(NEW_YORK)
    # Older than what the collector keeps by ten seconds, at any time of the day.
    day = datetime.now(ZoneInfo(NEW_YORK)).date() - timedelta(days=3)
    dialog.get_by_label("From").fill(f"{day}T03:00")
    dialog.get_by_label("To").fill(f"{day}T03:00")
    dialog.get_by_role("button", name="Show").click()
    expect(dialog).to_contain_text("The end must be after the beginning.")
    assert axe(page) == []
    dialog.get_by_label("To").fill(f"{day}T05:00")
    dialog.get_by_role("button", name="Show").click()
    expect(dialog).to_be_hidden()
    page.wait_for_url("**from=*")
    since, until = window(page)
    assert since.astimezone(ZoneInfo(NEW_YORK)).replace(tzinfo=None) == datetime(day.year, day.month, day.day, 3)
    assert until - since == timedelta(hours=2)
    expect(legend(page, "Depth")).to_have_text(re.compile(r"^\d{3}$"))
    page.get_by_role("button", name="Earlier").click()
    page.wait_for_function("start => !location.href.includes(start)", arg=since.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert window(page) == (since - timedelta(hours=2), since)
    assert pixels_beyond(page) <= 0
    assert axe(page) == []
