"""The whole platform as ``nsq up`` runs it, and a real Chromium."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, expect, sync_playwright

from bench.ports import free_port
from tests.harness import web
from tests.harness.daemon import Broker
from tests.harness.process import ROOT, Process
from tests.harness.processes import descendants
from tests.harness.spark_classes import spark_classes
from tests.harness.waiting import DEADLINE_S, wait_until

PASSWORD = "correct horse battery staple"
ROLES = {"ada": "admin", "mara": "operator", "viktor": "viewer"}
CREATE_ACCOUNTS = f"""
from nsqplatform.accounts.services import create_account
for name, role in {ROLES}.items():
    create_account(username=name, role=role, password={PASSWORD!r})
"""
"""A script for ``manage.py shell``, which creates all accounts in one process."""
FLAGS = (
    "--nsqd-tcp-address",
    "--nsqd-http-address",
    "--lookupd-tcp-address",
    "--lookupd-http-address",
    "--http-address",
)

expect.set_options(timeout=DEADLINE_S * 1000)

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Chromium's names. The first is its build without a user interface, which takes half of the processor time."""
WITHOUT = (
    # Each new window loads two pages for suggestions below the address bar, which cost more than a page of ours.
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),
    # Those that Playwright switches off: Chromium takes the last list only.
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *(
        "HttpsFirstBalancedModeAutoEnable",
        "LensOverlay",
        "MediaRouter",
        "PaintHolding",
        "ThirdPartyStoragePartitioning",
    ),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled"),
    "PreconnectToSearch",
)
"""Features of Chromium that are switched off."""
SWITCHES = (
    # As root, as in containers, Chromium does not start with its sandbox.
    "--no-sandbox",
    f"--disable-features={','.join(WITHOUT)}",
    # Without a graphics card, Chromium emulates one to put the layers of a page together, which takes more time.
    "--disable-gpu",
    # Otherwise a window's empty page has a process, and the platform's page, which is of another site, a second one.
    "--disable-site-isolation-trials",
)


HERE = Path(__file__).parent
_shared = contextlib.ExitStack()
"""Ends the platform and the browser that the folder's tests share."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """Close what the tests of this folder share after the last of them. Other tests may run in the same process, and
    asyncio cannot start a loop in the thread while Playwright's runs."""
    try:
        yield
    finally:
        if nextitem is None or HERE not in nextitem.path.parents:
            _shared.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


class SecondNode(Broker):
    """A broker that registers with the stack's registry; ``with`` starts and stops it. ``id`` is its row's key."""

    def __init__(self, lookupd: str, data: Path, env: dict[str, str]) -> None:
        super().__init__(data, f"--lookupd-tcp-address={lookupd}", "--broadcast-address=127.0.0.1", env=env, cwd=ROOT)

    def start(self) -> SecondNode:
        super().start()
        self.wait_until_ready()
        return self

    @property
    def id(self) -> str:
        return self.http_address

    def publish(self, topic: str) -> None:
        self.post("/pub", b"x", topic=topic)

    def freeze(self) -> None:
        """Stop answering with the connections open, like a machine that hangs."""
        self.signal(signal.SIGSTOP)


@contextlib.contextmanager
def consumer(address: str, topic: str, channel: str, name: str) -> Iterator[str]:
    """A minimal client: identifies itself as ``name``, subscribes, sends no RDY. Yields the name."""
    host, _, port = address.partition(":")
    body = json.dumps({"client_id": name, "hostname": f"{name}.harbour", "heartbeat_interval": 60000}).encode()
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
        connection.sendall(b"  V2IDENTIFY\n" + len(body).to_bytes(4, "big") + body)
        connection.sendall(f"SUB {topic} {channel}\n".encode())
        yield name


def _answers(url: str) -> bool:
    try:
        return web.get(url).status_code == 200
    except httpx.TransportError:
        return False


class Stack:
    """A running platform: the web app, and HTTP requests to its broker."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.addresses = {flag: f"127.0.0.1:{free_port()}" for flag in FLAGS}
        self.site = f"http://{self.addresses['--http-address']}"
        self._nsqd = web.client(base_url=f"http://{self.addresses['--nsqd-http-address']}")
        self._env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "NSQ_HOME": str(home / "var")}
        self._env["NSQADMIN_WEBHOOK_ALLOW"] = "127.0.0.1"
        self._env |= spark_classes() | environment
        self.archive = home / "var" / "archive"
        self.history = home / "var" / "history"
        words = [word for flag, address in self.addresses.items() for word in (flag, address)]
        self._home = home
        self._process = Process(
            [sys.executable, ROOT / "manage.py", "nsq", "up", *words], env=self._env, cwd=home, merged=True
        ).start()

    def wait_ready(self) -> None:
        self._process.wait_for_log("^Ready: ", within_s=150)

    def second_node(self) -> SecondNode:
        """Another broker of the same cluster."""
        return SecondNode(
            self.addresses["--lookupd-tcp-address"],
            Path(tempfile.mkdtemp(prefix="second-", dir=self._home)),
            self._env,
        )

    def registered(self) -> list[str]:
        """The HTTP addresses of the brokers that the registry knows."""
        answer = web.get(f"http://{self.addresses['--lookupd-http-address']}/nodes").json()
        return [f"{node['broadcast_address']}:{node['http_port']}" for node in answer["producers"]]

    def manage(self, *words: str) -> str:
        """Run ``manage.py WORDS`` to its end and return its output."""
        command = [sys.executable, ROOT / "manage.py", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=self._env).stdout

    def stop(self) -> None:
        self._nsqd.close()
        self._process.stop()

    @contextlib.contextmanager
    def web(self, **environment: str) -> Iterator[str]:
        """Another web process of the platform, with other settings, until the block ends. Yields its address."""
        address = f"127.0.0.1:{free_port()}"
        words = [sys.executable, ROOT / "manage.py", "nsq", "web", "--http-address", address]
        process = Process(words, env=self._env | environment, cwd=self._home, merged=True).start()
        try:
            wait_until(lambda: process.is_running and _answers(f"http://{address}/ping"), "the web process answers")
            yield f"http://{address}"
        finally:
            process.stop()

    def restart_collector(self) -> None:
        """End the collector, which ``nsq up`` starts again."""
        pid = self._process.process.pid
        (collector,) = wait_until(lambda: descendants(pid, word="collector"), "the collector runs")
        collector.terminate()

    @contextlib.contextmanager
    def held_java(self) -> Iterator[None]:
        """Stop the Java processes of the platform's reports, if there are any, until the block ends."""
        held = descendants(self._process.process.pid, name="java")
        for java in held:
            with contextlib.suppress(psutil.NoSuchProcess):
                java.suspend()
        try:
            yield
        finally:
            for java in held:
                with contextlib.suppress(psutil.NoSuchProcess):
                    java.resume()

    def publish(self, topic: str, count: int = 1) -> None:
        body = b"\n".join(b"message %d" % n for n in range(count))
        self._nsqd.post("/mpub", params={"topic": topic}, content=body).raise_for_status()

    def consumer(self, topic: str, channel: str, name: str) -> contextlib.AbstractContextManager[str]:
        """A client of the channel until the block ends."""
        return consumer(self.addresses["--nsqd-tcp-address"], topic, channel, name)

    def command(self, path: str, content: bytes = b"", **names: str) -> None:
        """POST one of nsqd's verbs, such as ``/channel/create``."""
        self._nsqd.post(path, params=names, content=content).raise_for_status()

    def topic(self, name: str) -> dict[str, Any] | None:
        """The topic in the broker's /stats, or None."""
        topics = self._nsqd.get("/stats", params={"format": "json", "topic": name}).json()["topics"] or []
        return next((topic for topic in topics if topic["topic_name"] == name), None)

    def topics(self) -> list[str]:
        """The names of the broker's topics."""
        stats = self._nsqd.get("/stats", params={"format": "json", "include_clients": "false"}).json()
        return [topic["topic_name"] for topic in stats["topics"]]

    def channel(self, topic: str, name: str) -> dict[str, Any] | None:
        found = self.topic(topic)
        channels = found["channels"] if found else []
        return next((channel for channel in channels if channel["channel_name"] == name), None)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    if not (ROOT / "frontend" / "dist" / "index.html").exists():
        pytest.skip("the web app is not built: make setup")
    running = Stack(tmp_path_factory.mktemp("platform"))
    _shared.callback(running.stop)
    running.wait_ready()
    running.manage("shell", "--no-imports", "-c", CREATE_ACCOUNTS)
    return running


class SlowPages:
    """Gives the pages of a context a slower processor and late answers, so that a test that reads too early fails."""

    def __init__(self, context: BrowserContext, times: float) -> None:
        self._times = times
        self._sessions: list[CDPSession] = []
        context.on("page", self._slow_down)
        # Chromium takes the last of its network conditions, so those of Playwright would end the delay, or be ended.
        context.set_offline = self._set_offline  # type: ignore[method-assign]

    def _slow_down(self, page: Page) -> None:
        session = page.context.new_cdp_session(page)
        session.send("Emulation.setCPUThrottlingRate", {"rate": self._times})
        session.send("Network.enable")
        self._sessions.append(session)
        page.on("close", lambda _: self._sessions.remove(session))
        self._set_network(session, offline=False)

    def _set_offline(self, offline: bool) -> None:
        for session in self._sessions:
            self._set_network(session, offline=offline)

    def _set_network(self, session: CDPSession, *, offline: bool) -> None:
        latency_ms = 50 * self._times
        conditions = {"offline": offline, "latency": latency_ms, "downloadThroughput": -1, "uploadThroughput": -1}
        session.send("Network.emulateNetworkConditions", conditions)


@pytest.fixture(scope="session")
def chromium(pytestconfig: pytest.Config) -> Browser:
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip("no chromium on PATH: make chromium")
    playwright = _shared.enter_context(sync_playwright())
    browser = playwright.chromium.launch(executable_path=executable, args=[*SWITCHES])
    _shared.callback(browser.close)
    times = pytestconfig.getoption("--slow-browser")
    if times > 1:
        new_context = browser.new_context

        def new_slow_context(**options: Any) -> BrowserContext:
            context = new_context(**options)
            SlowPages(context, times)
            return context

        browser.new_context = new_slow_context  # type: ignore[method-assign]
    return browser


class Visitor:
    """One user's browser. ``faults`` are the exceptions and console errors of its pages."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.page = context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)

    def sign_in(self, username: str, password: str = PASSWORD) -> None:
        self.page.get_by_label("User name").fill(username)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Call the API with the page's session. Returns status and JSON."""
        script = """async ([method, path, body]) => {
            const me = await (await fetch('/api/v1/me')).json();
            const answer = await fetch('/api/v1/' + path, {method, body: body && JSON.stringify(body),
                headers: {'Content-Type': 'application/json', 'X-CSRFToken': me.csrf_token}});
            return [answer.status, await answer.text()];
        }"""
        status, text = self.page.evaluate(script, [method, path, body])
        return status, json.loads(text) if text else None


Visit = Callable[..., Visitor]


@pytest.fixture(scope="session")
def cookies() -> dict[str, Any]:
    """User name -> the cookies of the session in which the user signed in."""
    return {}


def signed_in(context: BrowserContext, user: str, cookies: dict[str, Any]) -> None:
    """Sign in, or continue the user's session if it is still valid: to check a password takes half a second of
    processor time."""
    if user in cookies:
        context.add_cookies(cookies[user])
        if context.request.get("/api/v1/me").status == 200:
            return
    answer = context.request.post("/api/v1/session", data={"username": user, "password": PASSWORD})
    assert answer.status == 200, answer.text()
    cookies[user] = context.cookies()


@pytest.fixture
def visit(chromium: Browser, stack: Stack, cookies: dict[str, Any]) -> Iterator[Visit]:
    """Open a new browser at a path; ``visit("/topics", user="mara")`` is signed in, with ``user=None`` not signed in.

    More keywords are Playwright's for a new context: ``viewport``, ``color_scheme``, ``timezone_id``.
    """
    contexts: list[BrowserContext] = []

    def open_at(path: str = "/", user: str | None = "mara", **options: Any) -> Visitor:
        options.setdefault("viewport", {"width": 1440, "height": 900})
        context = chromium.new_context(base_url=stack.site, **options)
        context.set_default_timeout(DEADLINE_S * 1000)
        contexts.append(context)
        visitor = Visitor(context)
        if user is not None:
            signed_in(context, user, cookies)
        visitor.page.goto(path)
        return visitor

    yield open_at
    for context in contexts:
        context.close()


@pytest.fixture
def live(visit: Visit) -> Callable[..., Page]:
    """The same, after waiting until the page is live; returns the page."""

    def open_live(path: str = "/", user: str = "mara", **options: Any) -> Page:
        page = visit(path, user, **options).page
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        return page

    return open_live


AXE = """async (rules) => {
    const only = rules.length ? {runOnly: rules} : {};
    return (await axe.run({...only, resultTypes: ['violations'], selectors: false})).violations;
}"""
"""Without the elements that pass, whose selectors and HTML would cost more than the rules."""


@pytest.fixture
def axe() -> Callable[..., list[str]]:
    """``axe(page, *rules)``: the violations that axe finds on the page, of all its rules if none are given."""
    source = (ROOT / "frontend" / "node_modules" / "axe-core" / "axe.min.js").read_text()

    def run(page: Page, *rules: str) -> list[str]:
        page.evaluate(source)
        violations = page.evaluate(AXE, [*rules])
        return [
            f"{fault['id']} ({fault['impact']}): {node['html'][:160]}"
            for fault in violations
            for node in fault["nodes"]
        ]

    return run
