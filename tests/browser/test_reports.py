"""Reports from the page: run now, watch, read, download, schedule."""

from __future__ import annotations

import csv
import re
import time

import pytest
from playwright.sync_api import expect

SPARK_MS = 240_000


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_report_runs_while_one_watches_and_is_downloaded(live, stack, tmp_path, wait_until):
    """Run now, progress that moves by itself, then a table of percentiles and the same as CSV."""
    stack.publish("measured")
    tail = ("nsq", "tail", "--topic", "measured", "--channel", "probe", "--n", "1")
    assert "message 0" in stack.manage(*tail, "--nsqd-tcp-address", stack.addresses["--nsqd-tcp-address"])
    finished_at = time.time()

    def archived():
        return any(file.stat().st_mtime > finished_at + 1 for file in stack.archive.rglob("*.parquet"))

    wait_until(archived, "the collector has written what happened to the archive")
    page = live("/reports")
    page.get_by_label("Window").select_option("5m")
    page.get_by_label("Period").fill("1h")
    page.get_by_role("button", name="Run now").click()
    expect(page).to_have_url(re.compile(r"/reports/runs/\d+$"))
    page.evaluate("window.notReloaded = true")
    expect(page.get_by_role("progressbar")).to_be_visible(timeout=SPARK_MS)
    expect(page.get_by_text("succeeded", exact=True)).to_be_visible(timeout=SPARK_MS)
    rows = page.get_by_role("table", name="Result").get_by_role("row")
    expect(rows.filter(has_text="measured").first).to_be_visible()
    assert page.evaluate("window.notReloaded") is True
    with page.expect_download() as download:
        page.get_by_role("link", name="Download CSV").click()
    download.value.save_as(tmp_path / "result.csv")
    with (tmp_path / "result.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert {"window_start", "topic", "channel", "count", "p50_ms", "p999_ms"} <= table[0].keys()
    assert len(table) == rows.count() - 1
    assert next(line["channel"] for line in table if line["topic"] == "measured") == "probe"


def test_a_parameter_that_does_not_fit_is_told_and_nothing_runs(live):
    """What the page can see it says beside the field; what the job sees, beside the button."""
    page = live("/reports")
    expect(page.get_by_text("No runs yet").or_(page.get_by_role("table", name="Runs"))).to_be_visible()
    page.get_by_label("Minimum for p99.9").fill("many")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("alert")).to_contain_text("whole number")
    page.get_by_label("Minimum for p99.9").fill("1000")
    page.get_by_label("Period").fill("a fortnight")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("alert")).to_contain_text("a fortnight")
    expect(page).to_have_url(re.compile("/reports$"))


def test_a_schedule_is_made_changed_switched_off_and_deleted(live):
    """A cron line is read back in words; a bad one is refused beside the field."""
    page = live("/reports")
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name").fill("Morning latency")
    dialog.get_by_label("Cron line").fill("61 * * * *")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("Minutes part must be")).to_be_visible()
    dialog.get_by_label("Cron line").fill("30 6 * * 1-5")
    expect(dialog.get_by_text("At 06:30, Monday through Friday")).to_be_visible()
    dialog.get_by_label("Time zone").select_option("Europe/Berlin")
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
    schedule.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete schedule").click()
    expect(page.get_by_text("Nothing is scheduled")).to_be_visible()


def test_a_viewer_reads_reports_and_starts_none(visit):
    """No button, with the reason; the API refuses."""
    visitor = visit("/reports", user="viktor")
    expect(visitor.page.get_by_text("View only: running reports")).to_be_visible()
    expect(visitor.page.get_by_role("button", name="Run now")).to_have_count(0)
    status, answer = visitor.call("POST", "reports/runs", {"job": "latency", "parameters": {}})
    assert status == 403, answer
