"""Every block of commands and code in README.md and docs/*.md runs as written, on one `nsq up`.

docs/contributing.md has the rules for writing them.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import free_port
from nsqdaemon.default_ports import default_ports, ports_from
from tests.harness import web
from tests.harness.process import ROOT, Process
from tests.harness.snippets import SNIPPET_S, InvalidSnippet, PageRun, is_notebook, matches, pages, snippets_of
from tests.harness.spark_classes import spark_classes
from tests.harness.waiting import wait_until

PAGES = pages()
OTHER_PORTS = (8000, 8080, 9000)
"""Ports of other servers in the documentation; each page gets free ones in their place."""
STARTS = 20
"""Most attempts to start the platform on ports that are free."""
MOST_NOT_RUN = 45


class Platform:
    """``nsq up`` on ports of its own, and the environment of the blocks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = Path(sys.executable).parent
        self.env = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "NSQ_HOME": str(folder / "var"),
            "PYTHONUNBUFFERED": "1",
            **spark_classes(),
        }
        # An HTTP error fails the command that got it.
        (folder / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
        if not shutil.which("curl"):
            shim = folder / "bin" / "curl"
            shim.parent.mkdir()
            shim.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.harness.curl "$@"\n')
            shim.chmod(0o755)
            self.env["PATH"] += f":{shim.parent}"

    def start(self) -> None:
        for _ in range(STARTS):
            # Below the range of ephemeral ports, so that no outgoing connection takes one. A server may: then up ends.
            base = random.SystemRandom().randint(15000, 32000)
            self.env["NSQ_PORT_BASE"] = str(base)
            self.up = Process([shutil.which("nsq", path=self.env["PATH"]) or "nsq", "up"], env=self.env, merged=True)
            self.up.start()
            try:
                self.up.wait_for_log(r"^Ctrl-C stops everything", within_s=SNIPPET_S)
            except AssertionError:
                if self.up.is_running or " is in use by " not in self.up.output:
                    raise
                self.up.close()
                continue
            self.ports = dict(zip(ports_from(4150), ports_from(base), strict=True))
            self.env["TOKEN"] = self._token()
            return
        raise AssertionError(f"no free ports in {STARTS} attempts")

    def wait_for_archive(self) -> None:
        """Wait for the first readings of a channel, which the collector archives every ten seconds."""
        api = f"http://127.0.0.1:{self.ports[4151]}"
        for path in ("topic/create?topic=documentation", "channel/create?topic=documentation&channel=archive"):
            web.post(f"{api}/{path}").raise_for_status()
        samples = self.folder / "var" / "archive" / "samples"
        wait_until(lambda: any(samples.glob("date=*/hour=*/*.parquet")), "readings are archived")

    def _token(self) -> str:
        done = subprocess.run(
            ["nsq", "manage", "create_token", "admin", "documentation"],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SNIPPET_S,
            check=True,
        )
        return done.stdout.split()[-1]


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    """One platform for all pages. Its folder has a short path, for Redis's socket."""
    with tempfile.TemporaryDirectory(prefix="nsq-docs-") as folder:
        started = Platform(Path(folder))
        try:
            started.start()
            yield started
        finally:
            started.up.stop()


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if not is_notebook(text)])
def test_the_blocks_of_a_page_run_in_order(page, platform, tmp_path):
    """Each as written, in one folder, with the ports of this platform."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "var").symlink_to(platform.env["NSQ_HOME"])
    if "var/archive" in PAGES[page]:
        platform.wait_for_archive()
    run = PageRun(tmp_path, platform.env, platform.ports | {port: free_port() for port in OTHER_PORTS})
    try:
        for snippet in snippets_of(page, PAGES[page]):
            if snippet.runs:
                run.run(snippet)
        run.check_background()
    finally:
        run.close()
    assert platform.up.is_running, platform.up.output


def test_few_blocks_are_not_run():
    """A new one needs a reason that this machine cannot meet; the number may fall."""
    marked = [each for page, text in PAGES.items() for each in snippets_of(page, text) if "not run" in each.marks]
    assert len(marked) <= MOST_NOT_RUN, [each.where for each in marked]


def test_the_pages_that_other_tests_run_are_the_notebook():
    """Its cells share one namespace: tests/analytics/test_notebook.py runs it."""
    assert [page for page, text in PAGES.items() if is_notebook(text)] == ["docs/notebook.md"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```\nx\n```", "p.md:1: the language '' is not one of"),
        ("```bash\nx\n```", "p.md:1: the language 'bash' is not one of"),
        ("```text\n$ nsq up\n```", "begins a command: the language is sh or console"),
        ("<!-- not run -->\n```sh\nx\n```", "the mark has no reason"),
        ("<!-- not run: needs a second machine -->\ntext", "p.md:2: a mark must be directly before a block"),
        ("<!-- exit status: many -->\n```sh\nx\n```", "<!-- exit status: NUMBER -->"),
    ],
)
def test_a_block_that_breaks_a_rule_is_named(text, says):
    with pytest.raises(InvalidSnippet) as raised:
        snippets_of("p.md", text)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("```sh\necho shown; exit 3\n```", "p.md:1: exit status 3"),
        ("```sh\nfalse\ntrue\n```", "p.md:1: exit status 1"),
        ("```sh\nfalse | true\n```", "p.md:1: exit status 1"),
        ("```python\nraise ValueError('wrong')\n```", "ValueError: wrong"),
        ("```console\n$ echo one\ntwo\n```", "printed\none\n"),
        ("```json\n{'a': 1}\n```", "p.md:1: is not json"),
        ("```toml\na = \n```", "p.md:1: is not toml"),
        ("```yaml\na: [\n```", "p.md:1: is not yaml"),
    ],
)
def test_a_block_that_fails_is_reported(tmp_path, block, says):
    """With the page, the line and the end of its output."""
    run = PageRun(tmp_path, {"PATH": os.environ["PATH"]}, {})
    (snippet,) = snippets_of("p.md", block)
    with pytest.raises(AssertionError) as raised:
        run.run(snippet)
    assert says in str(raised.value)
    run.close()


def test_a_block_in_the_background_that_fails_is_reported(tmp_path):
    run = PageRun(tmp_path, {"PATH": os.environ["PATH"]}, {})
    (snippet,) = snippets_of("p.md", "<!-- background -->\n```sh\necho no such server; exit 4\n```")

    def failure() -> str:
        try:
            run.check_background()
        except AssertionError as error:
            return str(error)
        return ""

    try:
        run.run(snippet)
        wait_until(failure, "the block has failed")
        assert "p.md:2: ended with status 4" in failure()
        assert "no such server" in failure()
    finally:
        run.close()


def test_the_marks_of_blocks(tmp_path):
    """A file for the next block, another exit status, a server in the background that ends with the page."""
    text = (
        "<!-- saved as: greet.py -->\n```python\nprint('hello at 127.0.0.1:4150')\n```\n\n"
        "```console\n$ python greet.py\nhello at …:5150\n```\n\n"
        "<!-- exit status: 3 -->\n```sh\nexit 3\n```\n\n"
        "<!-- background -->\n```sh\necho $$ > pid; sleep 1000\n```\n\n"
        "```sh\nuntil test -s pid; do sleep 0.1; done\n```\n\n"
        "<!-- not run: it needs a second machine -->\n```sh\nfalse\n```\n"
    )
    run = PageRun(tmp_path, {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}, {4150: 5150})
    try:
        for snippet in snippets_of("p.md", text):
            if snippet.runs:
                run.run(snippet)
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, 0)
    finally:
        run.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_expected_output_may_leave_out_what_differs():
    assert matches('{"ids":["0040000000000007"]}', '{"ids":["00400000000000ab"]}\n')
    assert matches("one … three", "one two\nand three")
    assert not matches("one", "one two")
    assert matches("", "anything")


def test_the_ports_of_the_documentation_are_the_defaults():
    assert default_ports({}) == (4150, 4151, 4160, 4161, 4171)
