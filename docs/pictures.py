"""Takes the pictures in docs/images: a platform of its own with the demo's traffic, and Chromium in front of it.

make pictures        (or: .venv/bin/python docs/pictures.py --warm-up 120)
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WAY = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/thumbnails",
    "channel": "/topics/thumbnails/resize",
    "nodes": "/nodes",
    "alerts": "/alerts",
    "reports": "/reports",
}
"""From link to link, so that the app keeps the history that its charts show."""
RULES = [
    {
        "name": "Nobody finishes",
        "severity": "critical",
        "scope": "channel",
        "metric": "oldest_age_s",
        "threshold": 30,
        "description": "Look at the channel's consumers, what each holds, and whether messages time out.",
    },
    {"name": "Backlog", "scope": "channel", "metric": "depth", "threshold": 500, "hold_s": 10},
    {"name": "Requeues", "scope": "channel", "metric": "requeue_rate", "threshold": 0.5, "hold_s": 5},
]
"""Some of which the demo's slow consumers are beyond."""
MAKE_RULES = """async (rules) => {
    const me = await (await fetch('/api/v1/me')).json();
    const headers = {'Content-Type': 'application/json', 'X-CSRFToken': me.csrf_token};
    for (const rule of rules) {
        const answer = await fetch('/api/v1/alerts/rules', {method: 'POST', headers, body: JSON.stringify(rule)});
        if (!answer.ok) throw new Error(await answer.text());
    }
}"""
HISTORY_MS = 60_000
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
FLAGS = (
    "--nsqd-tcp-address",
    "--nsqd-http-address",
    "--lookupd-tcp-address",
    "--lookupd-http-address",
    "--http-address",
)
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def free_addresses() -> dict[str, str]:
    """A free address for each of the platform's faces."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in FLAGS]
        return {flag: f"127.0.0.1:{each.getsockname()[1]}" for flag, each in zip(FLAGS, sockets, strict=True)}


@contextlib.contextmanager
def running(*words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``manage.py nsq WORDS`` for as long as the block lasts."""
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, ROOT / "manage.py", "nsq", *words], stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def signin_link(log: Path) -> str:
    """Wait until the platform is ready, and return the link that it printed. Raises TimeoutError."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := re.search(r"http://\S+/signin/\S+", log.read_text()):
            return found[0]
        time.sleep(0.2)
    raise TimeoutError(f"nsq up is not ready:\n{log.read_text()}")


def take(page: Page, site: str, suffix: str) -> None:
    """One picture of each page, once there is some history to draw."""
    page.goto(site)
    page.get_by_text("Live", exact=True).first.wait_for()
    page.wait_for_timeout(HISTORY_MS)
    for name, path in WAY.items():
        page.locator(f'a[href="{path}"]').first.dispatch_event("click")
        page.wait_for_timeout(2000)
        page.screenshot(path=IMAGES / f"{name}-{suffix}.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm-up", type=float, default=90, help="seconds of traffic before the first picture (90)")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="Chromium's executable (from PATH)")
    options = parser.parse_args()
    if options.browser is None:
        print("pictures: there is no chromium on PATH; name one with --browser", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    addresses = free_addresses()
    site = f"http://{addresses['--http-address']}"
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        log = Path(home, "up.log")
        words = [word for flag, address in addresses.items() for word in (flag, address)]
        stack.enter_context(running("up", "--home", home, *words, log=log))
        link = signin_link(log)
        demo = ("--nsqd-tcp-address", addresses["--nsqd-tcp-address"])
        stack.enter_context(running("demo", *demo, log=Path(home, "demo.log")))
        time.sleep(options.warm_up)
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=options.browser, args=CHROMIUM_FLAGS
        )
        page = browser.new_page()
        page.goto(link)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{site}/")
        page.evaluate(MAKE_RULES, RULES)
        signed_in = page.context.storage_state()
        for size, viewport in (("desktop", DESKTOP), ("phone", PHONE)):
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport=viewport, color_scheme=scheme, storage_state=signed_in)
                take(context.new_page(), site, f"{size}-{scheme}")
                context.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
