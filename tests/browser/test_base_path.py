"""``nsqadmin --base-path=/nsq``, as behind a proxy that serves other applications too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from bench.ports import free_port
from tests.browser.conftest import PASSWORD, ROOT
from tests.harness import web
from tests.harness.waiting import wait_until


@pytest.fixture(scope="module")
def below(stack, tmp_path_factory) -> Iterator[str]:
    """The address of such a platform, with the stack's cluster and a database of its own."""
    home: Path = tmp_path_factory.mktemp("below")
    address = f"127.0.0.1:{free_port()}"
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "NSQ_HOME": str(home / "var"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
    }
    command = [sys.executable, "-m", "nsqplatform.console.nsqadmin", "--base-path=/nsq", f"--http-address={address}"]
    command += [
        f"--lookupd-http-address={stack.addresses['--lookupd-http-address']}",
        "--graphite-url=https://user:secret@graphite.example/there",
    ]
    log = home / "nsqadmin.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=output)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return web.get(f"http://{address}/nsq/ping", trust_env=False).text == "OK"
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, "nsqadmin answers", within_s=90)
        make = [sys.executable, ROOT / "manage.py", "create_account", "mara", "--role", "operator"]
        subprocess.run([*make, "--password", PASSWORD], check=True, env=env, cwd=ROOT, capture_output=True)
        yield f"http://{address}/nsq"
    finally:
        process.terminate()
        process.wait(40)


def test_everything_works_below_a_base_path(below, visit, stack):
    """A link opens its page after signing in, and the page is live; an action is done; a reload shows the same page; no
    request leaves the base path."""
    stack.publish("harbour", 3)
    visitor = visit("about:blank", user=None)
    page = visitor.page
    asked: list[str] = []
    refused: list[tuple[int, str]] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("response", lambda answer: refused.append((answer.status, answer.url)) if answer.status >= 400 else None)
    page.goto(f"{below}/topics/harbour")
    expect(page).to_have_url(re.compile(r"/nsq/signin\?next="))
    visitor.sign_in("mara")
    heading = page.get_by_role("heading", name="harbour", level=1)
    expect(heading).to_be_visible()
    expect(page).to_have_url(f"{below}/topics/harbour")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    depth = page.locator(".stat").filter(has_text="Depth").first
    expect(depth).to_contain_text("3")
    stack.publish("harbour", 4)
    expect(depth).to_contain_text("7")

    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause topic").click()
    expect(page.get_by_role("status", name="News")).to_contain_text("Topic harbour was paused.")
    assert stack.topic("harbour")["paused"] is True

    page.reload()
    expect(heading).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Unpause", exact=True)).to_be_visible()
    page.get_by_role("link", name="Nodes", exact=True).click()
    expect(page).to_have_url(f"{below}/nodes")
    page.get_by_role("link", name=stack.addresses["--nsqd-http-address"]).click()
    expect(page).to_have_url(re.compile(r"/nsq/nodes/127\.0\.0\.1"))
    assert [url for url in asked if not url.startswith(below)] == []
    assert {*refused} == {(401, f"{below}/api/v1/me")}  # before signing in


def test_pages_lead_to_graphites_graphs(below, visit, stack):
    """With graphite, pages link to the graphs of topic, channel and node, without its credentials."""
    stack.publish("charted")
    stack.command("/channel/create", topic="charted", channel="weekly")
    visitor = visit(f"{below}/signin", user=None)
    visitor.sign_in("mara")
    page = visitor.page
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    node = stack.addresses["--nsqd-http-address"]
    for path, title, target in (
        ("/topics/charted", "Messages", "topic.charted.message_count"),
        ("/topics/charted/weekly", "Timed out", "topic.charted.channel.weekly.timeout_count"),
        (f"/nodes/{node}", "Memory", f"nsq.{node.replace('.', '_').replace(':', '_')}.mem."),
    ):
        page.goto(below + path)
        link = page.get_by_role("navigation", name="In graphite").get_by_role("link", name=title, exact=True)
        expect(link).to_have_attribute("href", re.compile(r"^https://graphite\.example/there/render\?target="))
        assert target in (link.get_attribute("href") or "")


def test_without_graphite_no_page_mentions_it(live, stack):
    """There are no links."""
    stack.publish("plain")
    page = live("/topics/plain")
    expect(page.get_by_role("heading", name="plain", level=1)).to_be_visible()
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("navigation", name="In graphite")).to_have_count(0)
