"""Reports from the page: run, watch, read, download, schedule."""

from __future__ import annotations

import csv
import re
import shutil

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from tests.browser.clicks import Clicks
from tests.browser.test_dead_letters import DeadLetters
from tests.browser.widths import WIDTHS, pixels_beyond
from tests.harness.waiting import wait_until

SPARK_MS = 240_000


def run_now(page: Page) -> None:
    """Start the report, and wait for the page of its run: the page with the form lists the states of earlier ones."""
    page.get_by_role("button", name="Run now", exact=True).click()
    expect(page).to_have_url(re.compile(r"/reports/runs/\d+$"))


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_report_runs_while_one_watches_and_is_downloaded(live, stack, tmp_path, axe):
    """Two clicks start it. The progress is updated live, then the page shows a table of percentiles and offers it as
    CSV and Parquet. Axe finds nothing on desktop and phone."""
    stack.publish("measured")
    tail = ("nsq", "tail", "--topic", "measured", "--channel", "probe", "--n", "1")
    assert "message 0" in stack.manage(*tail, "--nsqd-tcp-address", stack.addresses["--nsqd-tcp-address"])

    def archived():
        for file in stack.archive.glob("samples/[!_]*/**/*.parquet"):  # not those that are being written
            rows = pq.read_table(file, columns=["topic", "channel", "finish_count"]).to_pylist()
            if {"topic": "measured", "channel": "probe", "finish_count": 1} in rows:
                return True
        return False

    wait_until(archived, "the collector has written what happened to the archive")
    page = live("/")
    clicks = Clicks(page)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Reports").click()
    page.get_by_label("Window").select_option("5m")
    page.get_by_label("Period").fill("1h")
    page.get_by_label("Topic", exact=True).fill("measured")  # the archive has those of other tests, too
    run_now(page)
    page.evaluate("window.notReloaded = true")
    expect(page.get_by_role("progressbar")).to_be_visible(timeout=SPARK_MS)
    expect(page.get_by_text("succeeded", exact=True)).to_be_visible(timeout=SPARK_MS)
    rows = page.get_by_role("table", name="Result").get_by_role("row")
    expect(rows.filter(has_text="measured").first).to_be_visible()
    assert clicks.count == 2
    assert page.evaluate("window.notReloaded") is True
    with page.expect_download() as download:
        page.get_by_role("link", name="Download CSV").click()
    download.value.save_as(tmp_path / "result.csv")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download Parquet").click()
    download.value.save_as(tmp_path / "result.parquet")
    with (tmp_path / "result.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert {"window_start", "topic", "channel", "count (messages)", "p50_ms", "p999_ms"} <= table[0].keys()
    assert len(table) == rows.count() - 1
    assert pq.read_table(tmp_path / "result.parquet").num_rows == len(table)
    expect(rows.filter(has_text="measured").first.get_by_text("withheld")).to_be_visible()
    expect(page.get_by_role("img", name="Latency percentiles")).to_be_visible()
    expect(page.get_by_role("group", name="p99 by hour and day")).to_be_visible()
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert pixels_beyond(page) <= 0
        assert axe(page) == []
    page.get_by_role("link", name="Run again…").click()
    expect(page.get_by_label("Window")).to_have_value("5m")
    expect(page.get_by_label("Period")).to_have_value("1h")
    assert next(line["channel"] for line in table if line["topic"] == "measured") == "probe"


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_report_on_dead_messages_names_their_channel(live, stack, axe):
    """Of three messages, all died: the row has their number, their share, and how many are dead at the end."""
    topic, channel = reported = "reported.dead", "undertaker"
    letters = DeadLetters(stack, reported)

    def archived() -> bool:
        files = list(stack.archive.glob("samples/[!_]*/**/*.parquet"))
        rows = [row for file in files for row in pq.read_table(file, columns=["channel", "dead_count"]).to_pylist()]
        return {"channel": channel, "dead_count": 3} in rows

    try:
        letters.bury(*reported, 3)
        wait_until(archived, "the collector has written the dead messages to the archive")
    finally:
        stack.command("/topic/delete", topic=topic)
    page = live("/reports?job=dead&p.period=1h")
    run_now(page)
    expect(page.get_by_text("succeeded", exact=True)).to_be_visible(timeout=SPARK_MS)
    table = page.get_by_role("table", name="Result")
    row = table.get_by_role("row").filter(has_text=channel)
    expect(row).to_be_visible()
    assert row.get_by_role("cell").all_inner_texts()[:8] == [*reported, "3", "100 %", "0", "0 %", "3", "3"]
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert pixels_beyond(page) <= 0
        assert axe(page) == []


@pytest.mark.spark
def test_a_running_report_is_cancelled_from_its_page(live, stack):
    """The page shows that it is cancelled, and what to do next. Java is held, so that the report cannot end before."""
    stack.publish("measured")
    wait_until(lambda: any(stack.archive.rglob("*.parquet")), "the collector has written to the archive")
    page = live("/reports?job=latency&p.window=5m&p.period=30m")
    expect(page.get_by_label("Period")).to_have_value("30m")
    with stack.held_java():
        run_now(page)
        expect(page.get_by_role("progressbar")).to_be_visible(timeout=SPARK_MS)
        expect(page.get_by_role("list", name="Stages")).to_contain_text(re.compile(r"\w"), timeout=SPARK_MS)
        page.get_by_role("button", name="Cancel run").click()
        expect(page.get_by_text("cancelled", exact=True)).to_be_visible(timeout=SPARK_MS)
    expect(page.get_by_text("The run was cancelled")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel run")).to_have_count(0)


def test_a_run_that_fails_says_why_on_its_page(live, stack):
    """The job's error message, with the log below it; no JVM is started."""
    moved = stack.archive.with_name("archive-away")
    stack.archive.joinpath("samples").mkdir(parents=True, exist_ok=True)
    page = live("/reports")
    moved.mkdir(exist_ok=True)
    stack.archive.joinpath("samples").rename(moved / "samples")
    try:
        run_now(page)
        alert = page.get_by_role("alert").filter(has_text="The run failed")
        expect(alert).to_contain_text("there is no archive at", timeout=SPARK_MS)
        expect(page.get_by_text("has the collector run?").last).to_be_visible()
    finally:
        # The collector may have created another folder meanwhile; it is merged with the rest.
        for file in stack.archive.glob("samples/date=*/hour=*/*.parquet"):
            target = moved / file.relative_to(stack.archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
        shutil.rmtree(stack.archive / "samples", ignore_errors=True)
        (moved / "samples").rename(stack.archive / "samples")


LARGE = """
from datetime import UTC, datetime, timedelta
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from django.conf import settings
from django.utils.timezone import now
from nsqplatform.reports.models import ReportRun
windows = [datetime(2026, 3, 14, tzinfo=UTC) + timedelta(minutes=5 * (n // 2)) for n in range(12_000)]
names = {"topic": ["orders"] * 12_000, "channel": ["billing", "shipping"] * 6_000}
figures = {name: [float(n) for n in range(12_000)] for name in ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms")}
start = {"window_start": pa.array(windows, pa.timestamp("us", tz="UTC"))}
run = ReportRun.objects.create(job="latency", state="succeeded", rows=12_000, finished_at=now())
folder = Path(settings.NSQ_REPORTS) / str(run.pk)
folder.mkdir(parents=True)
pq.write_table(pa.table(start | names | {"count": [5_000] * 12_000} | figures), folder / "part-0.parquet")
print(f"run={run.pk}.")
"""


def test_the_newest_rows_of_a_large_result_are_found_drawn_and_counted(live, stack):
    """All 12,000 rows can be reached: by page, order, channel and time; the chart ends with the last."""
    run = re.search(r"run=(\d+)\.", stack.manage("shell", "-c", LARGE))[1]
    page = live(f"/reports/runs/{run}", timezone_id="UTC")
    rows = page.get_by_role("table", name="Result").get_by_role("row")
    search = page.get_by_role("search", name="Filter rows")
    expect(search).to_contain_text("12,000")
    chart = page.get_by_role("img", name="Latency percentiles")
    expect(chart).to_contain_text("3 Apr")  # the legend shows the latest point
    expect(page.get_by_text("6,000 windows in")).to_be_visible()
    worst = page.get_by_role("columnheader", name="p99", exact=True)
    expect(worst).to_have_attribute("aria-sort", "descending")
    expect(rows.nth(1)).to_contain_text("3 Apr 2026, 19:55:00")  # with the largest latency
    pages = page.get_by_role("navigation", name="Pages of the result")
    expect(pages).to_contain_text("Rows 1–500 of 12,000")
    pages.get_by_role("button", name="Next").click()
    expect(pages).to_contain_text("Rows 501–1,000 of 12,000")
    page.get_by_role("button", name="Window start").click()
    page.get_by_role("button", name="Window start").click()
    expect(rows.nth(1)).to_contain_text("3 Apr 2026, 19:55:00")
    page.get_by_label("Topic and channel of the rows").select_option("orders / shipping")
    page.get_by_label("From").fill("2026-04-03T19:00")
    expect(search).to_contain_text("12 of 12,000")
    expect(rows.nth(1)).to_contain_text("shipping")
    page.reload()
    expect(search).to_contain_text("12 of 12,000")
    page.get_by_label("Filter rows").last.fill("nowhere")
    page.get_by_role("button", name="Show all rows").click()
    expect(search).to_contain_text("12,000")


SHORT = """
from datetime import UTC, datetime, timedelta
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from django.conf import settings
from django.utils.timezone import now
from nsqplatform.reports.models import ReportRun
windows = [datetime(2026, 3, 14, 12, n, tzinfo=UTC) for n in range(1, 10)]
quarter_hours = [900_000.0 + 10_000 * n for n in range(9)]
figures = {name: quarter_hours for name in ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms")}
start = {"window_start": pa.array(windows, pa.timestamp("us", tz="UTC"))}
run = ReportRun.objects.create(job="latency", state="succeeded", rows=9, finished_at=now())
folder = Path(settings.NSQ_REPORTS) / str(run.pk)
folder.mkdir(parents=True)
names = {"topic": ["orders"] * 9, "channel": ["billing"] * 9}
pq.write_table(pa.table(start | names | {"count": [5_000] * 9} | figures), folder / "part-0.parquet")
print(f"run={run.pk}.")
"""
DRAWN_TEXTS = """(() => {
    window.drawn = [];
    const fillText = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const place = this.getTransform().transformPoint({x, y});
        const width = this.measureText(text).width;
        const left = place.x - ({right: width, end: width, center: width / 2}[this.textAlign] ?? 0);
        window.drawn.push({text, left});
        return fillText.apply(this, arguments);
    };
})()"""
"""Records each text that is drawn on a canvas, with its left edge on it, in pixels."""


def test_the_labels_of_a_chart_are_whole_and_its_time_axis_has_several(visit, stack):
    """On a phone, "16 m 40 s" keeps its first digit, and eight minutes have more than one time."""
    run = re.search(r"run=(\d+)\.", stack.manage("shell", "-c", SHORT))[1]
    page = visit("/signin", timezone_id="UTC", viewport={"width": 390, "height": 844}).page
    page.add_init_script(DRAWN_TEXTS)
    page.goto(f"/reports/runs/{run}")
    expect(page.get_by_role("img", name="Latency percentiles")).to_contain_text("12:09:00")
    wait_until(lambda: any("16 m 40 s" in each["text"] for each in page.evaluate("window.drawn")), "the axis is drawn")
    drawn = page.evaluate("window.drawn")
    assert min(each["left"] for each in drawn) >= 0, drawn
    times = {each["text"] for each in drawn if re.fullmatch(r"12:0\d:00", each["text"])}
    assert len(times) >= 2, drawn


OBJECTIVES = """
from datetime import UTC, datetime
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from django.conf import settings
from django.utils.timezone import now
from nsqplatform.reports.models import ReportRun
times = pa.array([datetime(2026, 3, 14, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
words = {"topic": ["orders"], "channel": ["billing"], "objective": ["latency"], "target": [2000.0]}
counts = {"message_count": [1000], "held_count": [900], "missed_count": [100]}
shares = {"held_percent": [90.0], "budget_burnt_percent": [1000.0], "worst_value": [61_500.0], "unit": ["ms"]}
run = ReportRun.objects.create(job="objectives", state="succeeded", rows=1, finished_at=now())
folder = Path(settings.NSQ_REPORTS) / str(run.pk)
folder.mkdir(parents=True)
table = pa.table({"span": ["day"], "span_start": times} | words | counts | shares)
pq.write_table(table, folder / "part-0.parquet")
print(f"run={run.pk}.")
"""


def test_an_objective_is_shown_in_units_and_with_whole_times_on_a_phone(live, stack):
    """A target of 2,000 ms is 2.00 s, and no time is cut on a narrow screen, where it has no seconds."""
    run = re.search(r"run=(\d+)\.", stack.manage("shell", "-c", OBJECTIVES))[1]
    page = live(f"/reports/runs/{run}", timezone_id="UTC", viewport={"width": 390, "height": 844})
    table = page.get_by_role("table", name="Result")
    for text in ("2.00 s", "1 m 2 s"):
        expect(table.get_by_role("cell", name=text, exact=True)).to_have_count(1)
    expect(table.get_by_role("columnheader", name="Unit")).to_have_count(0)
    start = table.get_by_role("cell", name=re.compile(r"^14 Mar( 2026)?, 00:00$"))
    fits = "cell => cell.scrollWidth <= cell.clientWidth"
    wait_until(lambda: start.evaluate(fits), "the time is not cut, once the table's width is known")
    expect(
        page.get_by_role("heading", name="Latency: messages whose windows met the target, by UTC day")
    ).to_be_visible()


RAN = """
from django.utils.timezone import now
from nsqplatform.reports.models import Report
print("updated", Report.objects.update(last_run_at=now()))
"""


def test_every_action_of_a_schedule_is_on_a_screen_of_1280(live, stack):
    """Also with all time columns filled: the table does not scroll sideways."""
    assert "updated" in stack.manage("shell", "-c", RAN)
    page = live("/reports", user="ada", viewport={"width": 1280, "height": 800})
    delete = page.get_by_role("button", name="Delete Roll up the archive")
    expect(delete).to_be_visible()
    fits = "table => table.parentElement.scrollWidth <= table.parentElement.clientWidth"
    table = page.get_by_role("table", name="Schedules")
    wait_until(lambda: table.evaluate(fits), "no part of the schedules is beyond the screen")


def test_a_phone_shows_the_next_run_of_a_schedule_and_switches_it_off(visit, axe):
    """Every action is in its row, within the screen."""
    visitor = visit("/reports", user="ada", viewport=WIDTHS["phone"], timezone_id="UTC")
    made = {"name": "In the pocket", "job": "latency", "cron": "0 6 1 1 *", "time_zone": "UTC"}
    status, schedule = visitor.call("POST", "reports/schedules", made)
    assert status == 201, schedule
    try:
        page = visitor.page
        page.reload()
        box = page.get_by_role("group", name="Schedules")
        row = box.get_by_role("row").filter(has_text="In the pocket")
        expect(row).to_contain_text("Next: 1 Jan")
        expect(row.get_by_role("button")).to_have_text(["Run now", "Disable", "Edit", "Delete"])
        assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
        row.get_by_role("button", name="Disable").click()
        expect(row).to_contain_text("disabled")
        expect(row.get_by_role("button", name="Enable")).to_be_visible()
        assert axe(page) == []
    finally:
        visitor.call("DELETE", f"reports/schedules/{schedule['id']}")


def test_an_operator_runs_reports_and_schedules_none(live):
    page = live("/reports")
    expect(page.get_by_role("button", name="Run now", exact=True)).to_be_visible()
    kept_up = page.get_by_role("row").filter(has_text="Roll up the archive")
    expect(kept_up.get_by_role("button")).to_have_text(["Run now"])
    expect(page.get_by_role("button", name="New schedule")).to_have_count(0)


def test_the_form_completes_names_and_offers_periods(live, stack, axe):
    """Topics, the channels of the chosen topic, and presets such as yesterday, which a schedule does not have."""
    for topic, channel in (("formed", "billing"), ("formless", "shipping")):
        stack.command("/topic/create", topic=topic)
        stack.command("/channel/create", topic=topic, channel=channel)
    page = live("/reports", user="ada", timezone_id="Asia/Tokyo")

    def offered(label: str) -> list[str]:
        field = page.get_by_label(label, exact=True)
        field.blur()
        field.focus()
        names: list[str] = field.evaluate("input => [...input.list.options].map((option) => option.value)")
        return names

    wait_until(lambda: {"formed", "formless"} <= {*offered("Topic")}, "the topics")
    page.get_by_label("Topic", exact=True).fill("formed")
    wait_until(lambda: offered("Channel") == ["billing"], "the topic's channels")
    presets = page.get_by_role("group", name="Time presets")
    presets.get_by_role("button", name="Last 7 days").click()
    expect(page.get_by_label("Period")).to_have_value("7d")
    yesterday = presets.get_by_role("button", name="Yesterday")
    yesterday.click()
    expect(yesterday).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Period")).to_have_value("24h")
    expect(page.get_by_label("Until")).to_have_value(re.compile(r"T00:00$"))
    expect(page.get_by_label("Topic", exact=True)).to_have_value("formed")
    assert axe(page) == []
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Last 7 days")).to_be_visible()
    expect(dialog.get_by_role("button", name="Yesterday")).to_have_count(0)


def test_an_invalid_parameter_is_reported_and_nothing_runs(live):
    """The page reports its own checks beside the field, and the job's beside the button."""
    page = live("/reports")
    expect(page.get_by_text("No runs yet").or_(page.get_by_role("table", name="Runs"))).to_be_visible()
    page.get_by_label("Minimum for p99.9").fill("many")
    page.get_by_role("button", name="Run now", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("whole number")
    page.get_by_label("Minimum for p99.9").fill("1000")
    page.get_by_label("Period").fill("a fortnight")
    page.get_by_role("button", name="Run now", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("a fortnight")
    expect(page).to_have_url(re.compile("/reports$"))


def test_a_schedule_is_made_changed_switched_off_and_deleted(live):
    """A cron line is shown in words, with its next times; an invalid one is refused beside the field."""
    page = live("/reports", user="ada")
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name").fill("Morning latency")
    dialog.get_by_label("Cron line").fill("61 * * * *")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("Minutes part must be")).to_be_visible()
    dialog.get_by_label("Cron line").fill("30 6 * * 1-5")
    expect(dialog.get_by_text("At 06:30, Monday through Friday")).to_be_visible()
    dialog.get_by_label("Time zone").select_option("Europe/Berlin")
    expect(dialog.get_by_role("list", name="Next runs").get_by_role("listitem")).to_have_count(5)
    dialog.get_by_text("Overlap, retries").click()
    dialog.get_by_label("If the previous run has not finished").select_option("cancel the previous run")
    dialog.get_by_label("Retries after a failure").fill("11")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("A whole number from 0 to 10")).to_be_visible()
    dialog.get_by_label("Retries after a failure").fill("2")
    dialog.get_by_label("Notify").select_option("on failure")
    dialog.get_by_label("Webhook").fill("https://hooks.example.org/nsq")
    dialog.get_by_role("button", name="Save").click()
    schedule = page.get_by_role("row").filter(has_text="Morning latency")
    expect(schedule).to_contain_text("At 06:30, Monday through Friday")
    expect(schedule).to_contain_text("Europe/Berlin")
    schedule.get_by_role("button", name="Edit").click()
    dialog.get_by_label("When").select_option("every")
    dialog.get_by_label("How many").fill("2")
    dialog.get_by_label("Unit").select_option("hours")
    dialog.get_by_role("button", name="Save").click()
    expect(schedule).to_contain_text("Every 2 hours")
    schedule.get_by_role("button", name="Disable").click()
    expect(schedule).to_contain_text("disabled")
    expect(schedule.get_by_role("button", name="Run now: Morning latency")).to_be_visible()
    schedule.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete schedule").click()
    expect(schedule).to_have_count(0)


def test_a_viewer_reads_reports_and_starts_none(visit):
    """No button, with the reason; the API refuses."""
    visitor = visit("/reports", user="viktor")
    expect(visitor.page.get_by_text("View only: running reports")).to_be_visible()
    expect(visitor.page.get_by_role("button", name="Run now")).to_have_count(0)
    status, answer = visitor.call("POST", "reports/runs", {"job": "latency", "parameters": {}})
    assert status == 403, answer
