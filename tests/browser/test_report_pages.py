"""The page of a report: the worst first, figures of the period before, and charts that zoom."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.browser.widths import WIDTHS, pixels_beyond
from tests.harness.waiting import wait_until

PRINTED_WITHIN_MS = 120_000
"""The platform gives its browser 90 s for a PDF."""
LISTED_WITHIN_MS = 60_000
"""A worker may have much to do."""
COMPARED = """
from datetime import timedelta
from django.conf import settings
from django.utils.timezone import now
from nsqanalytics.results import replace_table
from nsqanalytics.tables import LATENCY
from nsqplatform.reports.models import ReportRun
from nsqwire.histogram import Histogram
began = now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=47)
rows = []
for hour in range(48):
    slow_ms = 400 if hour == 30 else 50
    for channel, latency_ms, before_ms in (("billing", 20, 20), ("shipping", slow_ms, 25), ("new", 5, None)):
        histogram = Histogram()
        for n in range(200):
            histogram.record(int(latency_ms * 1e6 * (0.5 + n / 200)))
        dense = histogram.to_json()
        quantiles = [value / 1e6 for value in histogram.quantiles([0.5, 0.9, 0.95, 0.99, 0.999])]
        start = began + timedelta(hours=hour)
        found = {
            "window_start": start, "topic": "compared.orders", "channel": channel, "count": 200,
            "max_ms": latency_ms * 1.5, "p99_before_ms": before_ms, "error_percent": 1.09,
            "p99_change_percent": before_ms and 100 * (quantiles[3] / before_ms - 1),
            "histogram": {"zero": 0, "offset": dense["offset"], "counts": dense["counts"]},
            "covered_since": start, "covered_until": start + timedelta(hours=1),
        } | dict(zip(("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms"), quantiles))
        rows.append(tuple(found.get(each.name, 0 if each.type == "integer" else None) for each in LATENCY))
days = timedelta(days=2)
covered = {"covered_since": began, "covered_until": began + days, "before_since": began - days, "before_until": began}
parameters = {"window": "1h", "period": "2d", "compared_with": "period"}
run = ReportRun.objects.create(
    job="latency", state="succeeded", rows=len(rows), finished_at=now(), requested_by="mara", parameters=parameters)
replace_table(rows, LATENCY, f"{settings.NSQ_REPORTS}/{run.pk}", covered)
print(f"run={run.pk}.")
"""


IDLE = """
from datetime import datetime, timedelta, UTC
from django.conf import settings
from django.utils.timezone import now
from nsqanalytics.results import replace_table
from nsqanalytics.tables import LATENCY
from nsqplatform.reports.models import ReportRun
until = datetime(2026, 3, 14, 15, tzinfo=UTC)
hour = {"window_start": until - timedelta(hours=1), "topic": "compared.idle", "channel": "billing"}
hour |= {"covered_since": until - timedelta(hours=1), "covered_until": until}
parameters = {"window": "1h", "period": "1h", "until": "2026-03-14T16:00:00+01:00", "minimum_count": 12500}
run = ReportRun.objects.create(
    job="latency", state="succeeded", rows=1, finished_at=now(), requested_by="mara", parameters=parameters)
rows = [tuple(hour.get(each.name, 0 if each.type == "integer" else None) for each in LATENCY)]
covered = {"covered_since": until - timedelta(hours=1), "covered_until": until}
replace_table(rows, LATENCY, f"{settings.NSQ_REPORTS}/{run.pk}", covered)
print(f"run={run.pk}.")
"""


LONG = "parcels-that-are-sorted-and-weighed-in-the-harbour-of-hamburg"
LATE = f"""
from datetime import datetime, timedelta, UTC
from django.conf import settings
from django.utils.timezone import now
from nsqanalytics.results import replace_table
from nsqanalytics.tables import LATENCY
from nsqplatform.reports.models import ReportRun
until, days = datetime(2026, 3, 14, 15, tzinfo=UTC), timedelta(days=1)
rows = []
for minutes, latency_ms in ((10, 1234567), (5, 150)):
    start = until - timedelta(minutes=minutes)
    found = {{"window_start": start, "topic": "{LONG}", "channel": "{LONG}-2", "count": 1234567, "max_ms": latency_ms}}
    found |= dict.fromkeys(("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms"), latency_ms)
    found |= {{"error_percent": 1.09, "covered_since": start, "covered_until": start + timedelta(minutes=5)}}
    rows.append(tuple(found.get(each.name, 0 if each.type == "integer" else None) for each in LATENCY))
run = ReportRun.objects.create(
    job="latency", state="succeeded", rows=2, finished_at=now(), requested_by="mara",
    parameters={{"window": "5m", "period": "24h", "compared_with": "none"}})
replace_table(
    rows, LATENCY, f"{{settings.NSQ_REPORTS}}/{{run.pk}}", {{"covered_since": until - days, "covered_until": until}})
print(f"run={{run.pk}}.")
"""
"""A report over a day, of which the archive has the last ten minutes, with long names."""
IN_VIEW = """cell => {
    const [own, box] = [cell.getBoundingClientRect(), cell.closest('[role=group]').getBoundingClientRect()];
    return own.left >= box.left && own.right <= box.right;
}"""
"""Whether a cell is visible without scrolling its table sideways."""


@pytest.fixture(scope="module")
def late(stack) -> str:
    """The address of the report."""
    return f"/reports/runs/{re.search(r'run=([0-9]+)[.]', stack.manage('shell', '-c', LATE))[1]}"


@pytest.mark.parametrize("width", ["desk", "phone"])
def test_the_figure_by_which_rows_are_sorted_is_in_view(late, live, width):
    """Of rows with long names, on a phone too. There, the figure that is sorted by is next to the names."""
    page = live(late, timezone_id="UTC", viewport=WIDTHS[width])
    table = page.get_by_role("table", name="Result")
    first = table.get_by_role("row").nth(1)
    head = table.get_by_role("columnheader", name="p99", exact=True)
    expect(head).to_have_attribute("aria-sort", "descending")
    wait_until(lambda: head.evaluate(IN_VIEW), "p99 is in view")
    wait_until(lambda: first.get_by_text(LONG).first.evaluate(f"name => ({IN_VIEW})(name.closest('td'))"), "and names")
    if width == "phone":
        for place, title in enumerate(("Topic / channel", "p99▾", "Window start")):
            expect(table.get_by_role("columnheader").nth(place)).to_have_text(title)
        expect(first.get_by_role("cell").nth(1)).to_have_text("20 m 35 s")
        expect(first.get_by_role("cell").nth(2)).to_have_text(re.compile(r"^14 Mar( 2026)?, 14:50$"))
        most = table.get_by_role("columnheader", name="Max")
        most.get_by_role("button").click()
        expect(most).to_have_attribute("aria-sort", "descending")
        wait_until(lambda: most.evaluate(IN_VIEW), "the figure that is sorted by is in view")


def test_charts_begin_with_the_first_reading(late, live):
    """Of a day of which the archive has the last ten minutes, the charts show these, and a line says so."""
    page = live(late, timezone_id="UTC")
    expect(page.get_by_text("The period begins 13 Mar 2026, 15:00:00")).to_contain_text(
        "the first reading is of 14 Mar 2026, 14:50:00."
    )
    page.get_by_role("group", name="Zoom").get_by_role("button", name="Zoom in").click()
    expect(page).to_have_url(re.compile(r"[?&]zoom=\d+-\d+"))
    since, until = map(int, re.search(r"zoom=(\d+)-(\d+)", page.url).groups())
    assert until - since == 300, "half of what the charts show"


@pytest.fixture(scope="module")
def compared(stack) -> str:
    """The address of a latency report over two days that end with this hour, of three channels of one topic.

    One hour of `shipping` is eight times as slow as the others; the archive had nothing of `new` before.
    """
    return f"/reports/runs/{re.search(r'run=([0-9]+)[.]', stack.manage('shell', '-c', COMPARED))[1]}"


def test_the_worst_channel_is_drawn_first_and_compared_with_the_period_before(compared, live):
    """The row of the slow hour is the first; a channel that did not exist before says so. The map has its messages."""
    page = live(compared, timezone_id="UTC")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"^Run #\d+: End-to-end latency$"))
    expect(page.get_by_label("Topic / channel, worst first")).to_have_value("compared.orders / shipping")
    expect(page.get_by_label("Topic / channel, worst first").get_by_role("option")).to_have_text(
        [f"compared.orders / {channel}" for channel in ("shipping", "billing", "new")]
    )
    table = page.get_by_role("table", name="Result")
    expect(table.get_by_role("columnheader", name="P99 change")).to_be_visible()
    first = table.get_by_role("row").nth(1)
    expect(first).to_contain_text("shipping")
    expect(first).to_contain_text("+2,2")
    page.get_by_label("Topic and channel of the rows").select_option("compared.orders / new")
    expect(table.get_by_role("row").nth(1)).to_contain_text("no data before")
    chart = page.get_by_role("img", name="Latency percentiles, compared.orders / shipping")
    expect(chart).to_contain_text("p99 before")
    expect(page.get_by_role("img", name="Messages by latency, compared.orders / shipping")).to_be_visible()


def painted(page: Page, name: str) -> int:
    """The number of pixels of a chart's canvas that have a colour."""
    script = """figure => {
        const canvas = figure.querySelector('canvas');
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return pixels.filter((value, at) => at % 4 === 3 && value > 0).length;
    }"""
    count: int = page.get_by_role("img", name=name).evaluate(script)
    return count


def test_charts_zoom_by_mouse_and_by_buttons(compared, live):
    """Each zoom is in the address, so that it can be sent and undone; all charts of the report show the same part."""
    page = live(f"{compared}?of=compared.orders+/+billing", timezone_id="UTC")
    zoom = page.get_by_role("group", name="Zoom")
    expect(zoom.get_by_role("button", name="Reset zoom")).to_be_disabled()
    wait_until(lambda: painted(page, "Messages by latency") > 20_000, "the map is drawn")
    plot = page.get_by_role("img", name="Latency percentiles").locator(".u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"[?&]zoom=\d+-\d+"))
    since, until = map(int, re.search(r"zoom=(\d+)-(\d+)", page.url).groups())
    assert 11 < (until - since) / 3600 < 13
    expect(zoom.get_by_role("status")).to_contain_text(" to ")
    zoom.get_by_role("button", name="Zoom in").focus()
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(re.compile(f"zoom={since}-{until}"))
    page.reload()
    expect(zoom.get_by_role("button", name="Reset zoom")).to_be_enabled()
    wait_until(lambda: painted(page, "Messages by latency") > 20_000, "the zoomed map is drawn")
    zoom.get_by_role("button", name="Reset zoom").click()
    expect(page).not_to_have_url(re.compile("zoom="))
    expect(page.get_by_role("group", name="p99 by hour and day")).to_be_visible()


def test_what_happened_to_the_channel_is_marked_on_its_charts(compared, stack, visit):
    """A pause during the period is a marker of the charts, and a line below them."""
    stack.command("/topic/create", topic="compared.orders")
    stack.command("/channel/create", topic="compared.orders", channel="shipping")
    visitor = visit(compared, timezone_id="UTC")
    act = {"action": "pause", "topic": "compared.orders", "channel": "shipping"}
    try:
        wait_until(lambda: visitor.call("POST", "actions", act)[0] == 200, "the platform knows the channel")
        page = visitor.page
        page.reload()
        expect(page.get_by_role("list", name="Events")).to_contain_text("Paused compared.orders / shipping by mara")
        marks = page.locator(".marker[title*='Paused compared.orders / shipping by mara']")
        expect(marks).to_have_count(2)
    finally:
        stack.command("/topic/delete", topic="compared.orders")


def test_a_report_is_downloaded_as_one_page_and_as_pdf(compared, live, tmp_path):
    """The page is complete without the platform: its charts are in the file."""
    page = live(compared)
    for role, name, ending in (("link", "Download page", "html"), ("button", "Download PDF", "pdf")):
        with page.expect_download(timeout=PRINTED_WITHIN_MS) as download:
            page.get_by_role(role, name=name).click()
        download.value.save_as(tmp_path / f"report.{ending}")
        assert download.value.suggested_filename.endswith(f".{ending}")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")
    page.context.set_offline(True)
    page.goto((tmp_path / "report.html").as_uri())
    expect(page.get_by_role("heading", name="End-to-end latency")).to_be_visible()
    expect(page.get_by_role("img", name="Latency percentiles, compared.orders / shipping")).to_be_visible()
    expect(page.get_by_role("img", name="Messages by latency, compared.orders / new")).to_be_visible()
    expect(page.get_by_role("row")).to_have_count(1 + 3 * 48)
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert pixels_beyond(page) <= 0


def test_each_column_of_the_archive_and_of_a_report_is_explained(compared, live, axe):
    """The page is a link away from Reports; the headings of a result have the same texts."""
    page = live("/reports")
    page.get_by_role("link", name="What the columns are").click()
    expect(page.get_by_role("heading", name="What the columns are", level=1)).to_be_visible()
    expect(page.get_by_role("term").filter(has_text="oldest_unfinished_age_ns")).to_be_visible()
    page.get_by_label("Table").select_option("End-to-end latency")
    expect(page).to_have_url(re.compile(r"/reports/columns\?of=latency$"))
    expect(page.get_by_role("definition").filter(has_text="change of p99 since that window")).to_be_visible()
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert pixels_beyond(page) <= 0
        assert axe(page) == []
    page.goto(compared)
    expect(page.get_by_role("columnheader", name="P99 change")).to_have_attribute(
        "title", re.compile("since that window")
    )


def test_the_size_of_the_archive_and_what_it_will_be(live, axe):
    """The page is a link away from Reports. A worker lists the archive, which has no whole day yet."""
    page = live("/reports")
    page.get_by_role("link", name="The archive").click()
    expect(page).to_have_url(re.compile(r"/reports/archive$"))
    table = page.get_by_role("table", name="Parts of the archive")
    expect(table.get_by_role("row").filter(has_text="Samples")).to_be_visible(timeout=LISTED_WITHIN_MS)
    expect(page.get_by_text("It keeps samples for 30 days")).to_be_visible()
    expect(page.get_by_role("link", name="Remove expired data")).to_be_visible()
    expect(page.get_by_text("The files are plain Parquet")).to_be_visible()
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert pixels_beyond(page) <= 0
        assert axe(page) == []


def test_the_page_of_a_report_fits_a_phone_and_is_accessible(compared, live, axe):
    page = live(compared, timezone_id="UTC")
    expect(page.get_by_role("img", name="Messages by latency")).to_be_visible()
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert pixels_beyond(page) <= 0
        assert axe(page) == []
    page.emulate_media(color_scheme="dark")
    assert axe(page, "color-contrast") == []


def test_a_mark_is_on_the_charts_of_its_topics(compared, stack, visit):
    """Of a report, and live, with its text and who posted it."""
    visitor = visit(compared, timezone_id="UTC")
    mark = {"text": "deploy 1.2", "topic_pattern": "compared.*", "at": int(time.time() * 1000) - 3_600_000}
    status, made = visitor.call("POST", "marks", mark)
    assert status == 201, made
    page = visitor.page
    page.reload()
    expect(page.get_by_role("list", name="Events")).to_contain_text("Mark: deploy 1.2 (compared.*) by mara")
    expect(page.locator(".marker.note[title*='deploy 1.2']")).to_have_count(2)
    stack.command("/topic/create", topic="compared.orders")
    page.goto("/topics/compared.orders?span=6h")
    expect(page.get_by_role("list", name="Events")).to_contain_text("Mark: deploy 1.2 (compared.*) by mara")
    assert visitor.call("DELETE", f"marks/{made['id']}")[0] == 204


def test_facts_of_a_run_are_in_the_words_of_the_form(compared, stack, live):
    """Titles, times and numbers that people read; a channel of which no message was finished has no empty chart."""
    page = live(
        f"/reports/runs/{re.search(r'run=([0-9]+)[.]', stack.manage('shell', '-c', IDLE))[1]}", timezone_id="UTC"
    )
    facts = page.get_by_role("main").locator("dl")
    for label, text in (("Minimum for p99.9", "12,500"), ("Until", "14 Mar 2026, 15:00:00"), ("Window", "1h")):
        expect(facts.locator("div", has=page.get_by_text(label, exact=True)).get_by_role("definition")).to_have_text(
            text
        )
    expect(page.get_by_text("No latency was measured: no message was finished")).to_be_visible()
