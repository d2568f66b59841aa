"""The pages of the reports on forecasts and anomalies."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.widths import WIDTHS, pixels_beyond

RESULTS = """
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from django.conf import settings
from django.utils.timezone import now
from nsqanalytics import channel_hours, tables
from nsqplatform.reports.models import ReportRun

def hours(channel, count, end=500_000):
    at = np.arange(end - count, end)
    noise = np.random.default_rng(7).normal(size=count)
    rates = np.where(at % 168 >= 120, 0.6, 1.0) * (50 + 25 * np.sin(2 * np.pi * at / 24)) + 2 * noise
    figures = {name: np.zeros(count) for name in channel_hours.COLUMNS}
    figures |= {"in_rate": rates, "out_rate": rates, "depth": 20 * rates, "consumers": np.full(count, 2.0)}
    figures |= {"served": rates / 2, "message_bytes": np.full(count, 200.0), "hour": at}
    return pa.table({"topic": ["orders"] * count, "channel": [channel] * count} | figures)

def stored(job, parts):
    rows = pa.concat_tables(parts)
    units = {figure.name: figure.unit for figure in getattr(tables, job.upper())}
    fields = [field.with_metadata({"unit": units[field.name]}) for field in rows.schema]
    run = ReportRun.objects.create(job=job, state="succeeded", rows=rows.num_rows, finished_at=now())
    folder = Path(settings.NSQ_REPORTS) / str(run.pk)
    folder.mkdir(parents=True)
    pq.write_table(rows.cast(pa.schema(fields)), folder / "part-0.parquet")
    print(f"{job}={run.pk}.")

usual = hours("billing", 28 * 24)
burst = usual.set_column(usual.schema.get_field_index("in_rate"), "in_rate",
    pa.array(np.where(np.arange(28 * 24) == 28 * 24 - 30, 300.0, usual["in_rate"].to_numpy())))
stored("forecast", [channel_hours.forecasts(hours(name, count), 500_000, 168)
    for name, count in (("billing", 28 * 24), ("new", 48))])
stored("anomalies", [channel_hours.anomalies(table, 500_000 - 72, 500_000, 3, 4.0)
    for table in (burst, hours("new", 48))])
"""


@pytest.fixture(scope="module")
def results(stack) -> dict[str, str]:
    """The runs of a forecast and of a report on anomalies, by job: one channel of four weeks and one of two days."""
    return dict(re.findall(r"(\w+)=(\d+)\.", stack.manage("shell", "-c", RESULTS)))


def fits(page: Page, axe) -> None:
    """On both widths, nothing is beyond the screen, and axe finds nothing."""
    for size in WIDTHS.values():
        page.set_viewport_size(size)
        assert pixels_beyond(page) <= 0
        assert axe(page) == []


def test_a_forecast_is_drawn_with_its_bands_and_shows_its_error(live, results, axe):
    """Another figure is chosen by name; a channel with a short history says why it has no forecast."""
    page = live(f"/reports/runs/{results['forecast']}", timezone_id="UTC")
    chart = page.get_by_role("img", name="orders / billing")
    for line in ("low 95 %", "high 80 %", "forecast", "actual"):
        expect(chart).to_contain_text(line)
    expect(page.get_by_text("Back-test on the last 168 hours: mean absolute error")).to_be_visible()
    page.get_by_label("Figure").select_option("bytes behind")
    expect(page.get_by_role("img", name="bytes behind, orders / billing, bytes")).to_be_visible()
    table = page.get_by_role("table", name="Result")
    expect(table.get_by_role("columnheader", name="Above peak percent")).to_have_attribute("aria-sort", "descending")
    fits(page, axe)
    page.get_by_label("Topic / channel", exact=True).select_option("orders / new")
    expect(page.get_by_text("No forecast: 48 hours of history; a forecast needs 120.")).to_be_visible()
    expect(page).to_have_url(re.compile("figure=bytes_behind"))


def test_the_worst_anomaly_is_drawn_and_comes_first(live, results, axe):
    """The burst is the unusual point of its figure; a channel that cannot be compared says why."""
    page = live(f"/reports/runs/{results['anomalies']}", timezone_id="UTC")
    chart = page.get_by_role("img", name="in rate, orders / billing, messages/s")
    for line in ("low", "high", "expected", "actual", "unusual"):
        expect(chart.get_by_text(line, exact=True)).to_be_visible()
    rows = page.get_by_role("table", name="Result").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("300 messages/s")
    expect(rows.nth(1)).to_contain_text("high")
    fits(page, axe)
    page.get_by_label("Topic / channel", exact=True).select_option("orders / new")
    expect(page.get_by_text("Not compared: past weeks with these hours: 0; a comparison needs 3.")).to_be_visible()
