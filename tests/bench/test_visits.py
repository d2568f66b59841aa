"""What ``python -m bench pages`` measures of a page, with a page whose work is known."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from bench.visits import browser, visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium: make chromium"),
]

PAGE = b"""<!doctype html><body style="height: 20000px"><script>
function work(ms) { const until = performance.now() + ms; while (performance.now() < until); }
const show = () => document.body.append(Object.assign(document.createElement('p'), {id: 'rows'}));
requestAnimationFrame(() => setTimeout(() => { work(300); show(); }, 100));
</script></body>"""
"""Before its first frame, Chromium does not report each long task."""


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_a_page_that_works_before_its_rows_has_a_long_task_and_then_none(url):
    """The rows come after the work, which is one long task of the load; idling and scrolling need little."""
    with browser() as running:
        seen = visit(running, url, ("sessionid", "x"), "#rows", settle_seconds=0.5, idle_seconds=0.5)
    assert seen.first_rows_ms >= 300
    assert max(seen.loading.long_tasks_ms, default=0) >= 300
    assert 0 < seen.loading.longest_task_processor_ms <= seen.loading.processor_ms
    assert seen.idling is not None
    assert seen.idling.longest_task_processor_ms < seen.loading.longest_task_processor_ms
    assert seen.scrolling is not None
    assert seen.scrolling.processor_ms > 0
    assert len(seen.frames_ms) == 120
    assert seen.snapshot_bytes == 0
