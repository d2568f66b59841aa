"""A report as one page for sending: HTML, and PDF where there is a browser."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import psutil
import pytest
from django.db import connections

from nsqanalytics.job_list import JOBS
from nsqanalytics.parameters import declared
from nsqanalytics.results import ResultColumn, replace_table
from nsqanalytics.tables import LATENCY
from nsqplatform.reports.document import pdf
from nsqplatform.reports.document.chart import GREEN, ORANGE, PAPER, Chart, Line
from nsqplatform.reports.document.mail import mail_of
from nsqplatform.reports.document.page import about
from nsqplatform.reports.document.texts import cell_text, duration, heading, parameter_text
from nsqplatform.reports.selectors import result
from tests.harness.waiting import wait_until
from tests.platform.receivers import MailServer
from tests.reports.seeded import BEGAN, HOSTILE, HOURS, latency_run

pytestmark = pytest.mark.database
LOADING = ("src", "href", "action", "data", "poster", "background", "xlink:href", "srcset")


class Elements(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_report_is_one_page_with_its_charts_and_worst_rows(caller, settings):
    """The worst channel is drawn first; names are text, nothing runs, and nothing is loaded from elsewhere."""
    run = latency_run(settings.NSQ_REPORTS)
    answer = caller("viewer").raw("GET", f"reports/runs/{run.pk}/result.html")
    assert (answer.status_code, answer["Content-Disposition"]) == (
        200,
        f'attachment; filename="latency-{run.pk}.html"',
    )
    page = Elements(answer.content.decode())
    labels = [given["aria-label"] for tag, given in page.found if tag == "svg"]
    assert labels == [
        f"{title}, {name}"
        for name in ("orders / shipping", "orders / billing", f"{HOSTILE} / c")
        for title in ("Latency percentiles", "Messages by latency")
    ]
    tags = [tag for tag, _ in page.found]
    assert not {"script", "img", "link", "iframe", "object"} & set(tags)
    assert not [name for _, given in page.found for name in given if name in LOADING or name.startswith("on")]
    assert "http" not in answer.content.decode().replace("http-equiv", "")
    assert tags.count("tr") == 1 + 3 * HOURS
    assert tags.index("svg") < tags.index("table")
    for text in ("14 Mar 2026, 00:00 to 15 Mar 2026, 00:00 UTC", HOSTILE, f"#{run.pk}, ana", "+5"):
        assert text in page.text, text
    first_row = page.text[page.text.index("P99 change") :].split("14 Mar 2026, ")[1]
    assert first_row.startswith("09:00")
    assert "shipping" in first_row


def test_a_report_without_rows_or_charts_is_a_page_too(caller, settings):
    """Of maintenance there is the table only; of a run without a result, the reason."""
    from nsqanalytics.tables import MAINTENANCE
    from nsqplatform.reports.models import ReportRun

    run = latency_run(settings.NSQ_REPORTS, job="compact", parameters={})
    replace_table([], MAINTENANCE, f"{settings.NSQ_REPORTS}/{run.pk}")
    viewer = caller("viewer")
    page = viewer.raw("GET", f"reports/runs/{run.pk}/result.html").content.decode()
    assert "The report has no rows." in page
    assert "<svg" not in page
    waiting = ReportRun.objects.create(job="latency")
    status, answer = viewer("GET", f"reports/runs/{waiting.pk}/result.html")
    assert (status, answer["message"]) == (404, f"run {waiting.pk} has no result: it is queued")


def test_a_report_in_which_nothing_was_measured_says_so_in_place_of_a_chart(caller, settings):
    """On the page and in the mail, which has no picture then."""
    run = latency_run(settings.NSQ_REPORTS)
    row = {"window_start": BEGAN, "topic": "orders", "channel": "idle", "covered_since": BEGAN, "covered_until": BEGAN}
    cells = tuple(row.get(each.name, 0 if each.type == "integer" else None) for each in LATENCY)
    covered = {"covered_since": BEGAN, "covered_until": BEGAN + timedelta(days=1)}
    replace_table([cells], LATENCY, f"{settings.NSQ_REPORTS}/{run.pk}", covered)
    page = caller("viewer").raw("GET", f"reports/runs/{run.pk}/result.html").content.decode()
    assert "There is nothing to draw: no latency was measured in the period." in page
    assert "<svg" not in page
    assert mail_of(run, result(run.pk), "https://nsq.example.org").pictures == {}


def test_charts_begin_with_the_first_reading_if_it_is_late_in_the_period(caller, settings):
    """The archive has the last ten minutes of the day: the axis is from 23:50, and the title says so."""
    run = latency_run(settings.NSQ_REPORTS)
    row = {"window_start": BEGAN + timedelta(hours=23, minutes=50), "topic": "orders", "channel": "new", "count": 9}
    row |= dict.fromkeys(("p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"), 5.0)
    row |= {"covered_since": row["window_start"], "covered_until": BEGAN + timedelta(days=1)}
    cells = tuple(row.get(each.name, 0 if each.type == "integer" else None) for each in LATENCY)
    covered = {"covered_since": BEGAN, "covered_until": BEGAN + timedelta(days=1)}
    replace_table([cells], LATENCY, f"{settings.NSQ_REPORTS}/{run.pk}", covered)
    page = Elements(caller("viewer").raw("GET", f"reports/runs/{run.pk}/result.html").content.decode())
    labels = [given["aria-label"] for tag, given in page.found if tag == "svg"]
    assert labels[0] == "Latency percentiles, orders / new, from its first reading on"
    assert "12:00" not in page.text.partition("Window start")[0]


def test_parameters_have_the_titles_of_the_form_and_values_that_people_read(caller, settings):
    """Times are in UTC; a number of an earlier version, which had no bounds, stays as it is."""
    given = {"until": "2026-03-15T01:00:00+01:00", "minimum_count": 12_500, "horizon": "7d", "free_gb": 0.5}
    texts = {"Free disk space, GB": "0.5", "Horizon": "7d"}
    for parameters, facts in ((given, texts), (given | {"free_gb": 1e300, "kept": "x"}, {"Kept": "x"})):
        run = latency_run(settings.NSQ_REPORTS, job="capacity", parameters=parameters)
        shown = dict(about(run, result(run.pk)))
        assert facts.items() <= shown.items()
    assert shown["Free disk space, GB"] == "1e+300"
    run = latency_run(settings.NSQ_REPORTS, job="rollup", parameters=given)
    assert dict(about(run, result(run.pk)))["Minimum count"] == "12500"
    assert parameter_text(declared(JOBS["latency"].parameters)["until"], given["until"]) == "15 Mar 2026, 00:00 UTC"
    assert parameter_text(declared(JOBS["latency"].parameters)["minimum_count"], 12_500) == "12,500"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH: make chromium")
def test_the_page_is_printed_as_pdf(caller, settings):
    run = latency_run(settings.NSQ_REPORTS)
    answer = caller("viewer").raw("GET", f"reports/runs/{run.pk}/result.pdf")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/pdf"), answer.content[:300]
    assert answer.content.startswith(b"%PDF-")
    assert answer.content.rstrip().endswith(b"%%EOF")


def test_without_a_browser_the_pdf_is_refused_with_the_reason(caller, settings, monkeypatch, tmp_path):
    run = latency_run(settings.NSQ_REPORTS)
    viewer = caller("viewer")
    monkeypatch.setenv("PATH", str(tmp_path))
    status, answer = viewer("GET", f"reports/runs/{run.pk}/result.pdf")
    assert status == 503
    assert answer["message"].startswith("the PDF cannot be made: no browser is on PATH: chromium")
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 3\n")
    broken.chmod(0o755)
    status, answer = viewer("GET", f"reports/runs/{run.pk}/result.pdf")
    assert (status, answer["message"]) == (503, f"the PDF cannot be made: {broken} ended with 3: no space left")


def test_a_browser_that_takes_too_long_is_killed_with_its_processes(caller, settings, monkeypatch, tmp_path):
    run = latency_run(settings.NSQ_REPORTS)
    slow = tmp_path / "chromium"
    slow.write_text('#!/bin/sh\n/bin/sleep 1000 &\necho $! > "$0.pid"\nwait\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(pdf, "TIMEOUT_S", 3.0)
    status, answer = caller("viewer")("GET", f"reports/runs/{run.pk}/result.pdf")
    assert (status, answer["message"]) == (503, f"the PDF cannot be made: {slow}: took longer than 3 s")
    other = int((tmp_path / "chromium.pid").read_text())
    wait_until(lambda: is_gone(other), "its other process has ended")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH: make chromium")
def test_one_report_is_printed_at_a_time_and_others_are_asked_to_come_back(caller, settings, monkeypatch, tmp_path):
    """None of them keeps a thread of the web process waiting. Chromium is held until they have been answered."""
    path = f"reports/runs/{latency_run(settings.NSQ_REPORTS).pk}/result.pdf"
    held = tmp_path / "chromium"
    wait = ': > "$0.started"\nwhile [ ! -e "$0.go" ]; do sleep 0.05; done'
    held.write_text(f'#!/bin/sh\n{wait}\nexec {shutil.which("chromium")} "$@"\n')
    held.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    viewer, operator = caller("viewer"), caller("operator")

    def printed() -> Any:
        try:
            return operator.raw("GET", path)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(printed)
        try:
            wait_until((tmp_path / "chromium.started").exists, "the first report is being printed")
            for _ in range(3):
                answer = viewer.raw("GET", path)
                assert (answer.status_code, answer["Retry-After"]) == (503, "10")
                assert answer.json() == {"message": "another report is being printed; try again in 10 seconds"}
            assert not first.done()
        finally:
            (tmp_path / "chromium.go").touch()
        assert first.result().content.startswith(b"%PDF-")
    assert viewer.raw("GET", path).content.startswith(b"%PDF-")


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_scheduled_report_is_mailed_with_its_picture_and_its_page(caller, settings):
    """Over SMTP: the HTML shows a PNG of the mail itself, of the worst channel, and the worst rows; names are text."""
    from nsqplatform.reports.notifications import send

    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    server = MailServer()
    try:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        settings.NSQ_SITE = "https://nsq.example.org"
        schedule = {"name": "daily", "job": "latency", "cron": "@daily", "notify_on": "completion"}
        status, made = caller("admin")("POST", "reports/schedules", schedule | {"notify_email": "ann@example.org"})
        assert status == 201, made
        run = latency_run(settings.NSQ_REPORTS, report_id=made["id"])
        send(run.report, run, "email")
    finally:
        server.stop()
    [(to, mail)] = server.mails
    assert (to, mail["Subject"]) == (["ann@example.org"], "Report daily succeeded")
    parts = {part.get_content_type(): part for part in mail.walk()}
    link = f"https://nsq.example.org/reports/runs/{run.pk}"
    assert link in parts["text/plain"].get_content()
    html, attached = [part for part in mail.walk() if part.get_content_type() == "text/html"]
    shown = Elements(html.get_content())
    [image] = [given for tag, given in shown.found if tag == "img"]
    assert (image["src"], image["alt"]) == ("cid:chart", "Latency percentiles, orders / shipping")
    assert [given["href"] for tag, given in shown.found if tag == "a"] == [link]
    assert [tag for tag, _ in shown.found].count("tr") == 11
    assert parts["image/png"]["Content-ID"] == "<chart>"
    assert attached.get_filename() == f"latency-{run.pk}.html"
    assert "<svg" in attached.get_content()
    colours = set(pixels(parts["image/png"].get_content()))
    assert {bytes(colour) for colour in (GREEN, ORANGE, PAPER)} <= colours


def test_a_mail_is_sent_without_a_report_that_cannot_be_drawn(caller, settings, monkeypatch, mailoutbox):
    """Its recipients still read that the run has ended."""
    from nsqplatform.reports import notifications

    def fails(*arguments: Any) -> None:
        raise ValueError("a result of another version")

    monkeypatch.setattr(notifications, "mail_of", fails)
    schedule = {"name": "daily", "job": "latency", "cron": "@daily", "notify_on": "completion"}
    made = caller("admin")("POST", "reports/schedules", schedule | {"notify_email": "ann@example.org"})[1]
    run = latency_run(settings.NSQ_REPORTS, report_id=made["id"])
    notifications.send(run.report, run, "email")
    [mail] = mailoutbox
    assert (mail.subject, mail.alternatives, mail.attachments) == ("Report daily succeeded", [], [])


def pixels(png: bytes) -> list[bytes]:
    """The pixels of a picture, each red, green and blue; every chunk's CRC must be right."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length) == (zlib.crc32(kind + data),)
        chunks[kind] = data
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert kind == [8, 2, 0, 0, 0]
    rows = zlib.decompress(chunks[b"IDAT"])
    assert len(rows) == height * (1 + 3 * width)
    return [rows[row + x : row + x + 3] for row in range(1, len(rows), 1 + 3 * width) for x in range(0, 3 * width, 3)]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (0.005, "5 µs"), (0.25, "0.25 ms"), (61, "61 ms"), (4100, "4.1 s"), (59_960, "1 m 0 s")]
    + [(125_000, "2 m 5 s"), (3_599_600, "1 h 0 m"), (12_000_000, "3 h 20 m"), (90_000_000, "1 d 1 h")]
    + [(-1500, "−1.5 s")],
)
def test_a_duration_is_written_in_the_unit_that_fits(ms: float, text: str):
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("column", "cell", "text", "head"),
    [
        (("p99_before_ms", "number", "ms"), 61.0, "61 ms", "P99 before"),
        (("p99_change_percent", "number", "%"), 12.5, "+12.5 %", "P99 change"),
        (("in_rate", "number", "messages/s"), 1234.5, "1,234", "In rate, messages/s"),
        (("count", "integer", "messages"), 12_345, "12,345", "Count, messages"),
        (("window_start", "timestamp", ""), 1_773_446_400_000, "14 Mar 2026, 00:00", "Window start"),
        (("now", "number", ""), 2.0, "2 messages/s", "Now"),
        (("low_95", "number", ""), 2.0, "2 messages/s", "Low 95"),
        (("topic", "string", ""), "<b>", "<b>", "Topic"),
        (("p99_ms", "number", "ms"), None, "–", "P99"),
    ],
)
def test_a_cell_has_the_unit_that_its_heading_has_not(column: Any, cell: Any, text: str, head: str):
    of = ResultColumn(*column)
    assert (cell_text(of, cell, "messages/s"), heading(of)) == (text, head)


def test_a_chart_has_round_labels_and_keeps_gaps():
    """Also of a single point, and of values that are all 0."""
    hour = 3_600_000
    chart = Chart("t", [0, hour, 2 * hour], 0, 3 * hour, [Line("l", GREEN, [3.0, None, 70.0])], str, log=True)
    assert chart.bounds == (1.0, 100.0)
    assert chart.levels == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    assert [at for at, _ in chart.moments] == [0, hour, 2 * hour, 3 * hour]
    zeros = Chart("t", [0], 0, hour, [Line("l", GREEN, [0.0])], str)
    assert (zeros.bounds, zeros.y(0.0), zeros.x(hour)) == ((0.0, 1.0), 0.0, 1.0)
    assert zeros.levels == [0.0, 0.5, 1.0]
