"""The fenced blocks of the documentation, and a run of them as written. docs/contributing.md describes the marks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S

RUN = ("sh", "console", "python", "sql")
"""Languages of blocks that are run."""
PARSED = ("toml", "json", "yaml")
"""Languages of blocks that are only parsed, unless they are saved as a file."""
SHOWN = ("text",)
"""Languages of blocks that show something: output, layouts, drawings."""
SNIPPET_S = 5 * DEADLINE_S
"""Longest time that one block may take."""
LAST_LINES = 40

_FENCE = re.compile(r"^ *```(.*)$")
_MARK = re.compile(r"^ *<!-- (?P<kind>not run|saved as|exit status|background)(?:(?::)? (?P<text>.+?))? -->$")
_COMMAND = re.compile(r"^(\$ |(nsq|nsq_\w+|to_nsq|python|curl|make|docker|pip|git) )", re.MULTILINE)
_MESSAGE_ID = re.compile(r"[0-9a-f]{16}")


class InvalidSnippet(Exception):
    """A block breaks a rule of docs/contributing.md; the text has the page and the line."""


@dataclass(frozen=True)
class Snippet:
    """One fenced block: where it is, its language, its text without indentation, and its marks."""

    page: str
    line: int
    """Of the opening fence, from 1."""
    language: str
    text: str
    marks: Mapping[str, str] = field(default_factory=dict)
    """The texts of the marks by kind: ``not run``, ``saved as``, ``exit status``, ``background``."""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether the block is run, saved as a file or parsed."""
        return "not run" not in self.marks and self.language not in SHOWN


def snippets_of(page: str, text: str) -> list[Snippet]:
    """The blocks of a page, in order. Raises InvalidSnippet."""
    found = []
    marks: dict[str, str] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if mark := _MARK.match(line):
            marks[mark["kind"]] = mark["text"] or ""
        elif fence := _FENCE.match(line):
            body = []
            for _, inner in lines:
                if _FENCE.match(inner):
                    break
                body.append(inner.removeprefix(" " * (len(line) - len(line.lstrip()))))
            found.append(_checked(Snippet(page, number, fence[1].strip(), "\n".join(body) + "\n", marks)))
            marks = {}
        elif line.strip() and marks:
            raise InvalidSnippet(f"{page}:{number}: a mark must be directly before a block")
    return found


def _checked(snippet: Snippet) -> Snippet:
    language, marks = snippet.language, snippet.marks
    if language not in (*RUN, *PARSED, *SHOWN):
        allowed = ", ".join((*RUN, *PARSED, *SHOWN))
        raise InvalidSnippet(f"{snippet.where}: the language {language!r} is not one of {allowed}")
    if language in SHOWN and (command := _COMMAND.search(snippet.text)):
        raise InvalidSnippet(f"{snippet.where}: {command[0].strip()!r} begins a command: the language is sh or console")
    if "not run" in marks and len(marks["not run"]) < 10:
        raise InvalidSnippet(f"{snippet.where}: the mark has no reason: <!-- not run: REASON -->")
    if "exit status" in marks and not marks["exit status"].isdigit():
        raise InvalidSnippet(f"{snippet.where}: <!-- exit status: NUMBER -->")
    return snippet


class PageRun:
    """Runs the blocks of one page in order, in a folder of their own. ``close`` ends what still runs.

    ``ports`` are the ports of the documentation, and those in their place.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], ports: Mapping[int, int]) -> None:
        self.folder = folder
        self._env = env
        self._ports = ports
        self._groups: list[subprocess.Popen[bytes]] = []
        self._background: list[tuple[Snippet, subprocess.Popen[bytes], Path]] = []

    def run(self, snippet: Snippet) -> None:
        """Run, save or parse a block. Raises AssertionError with its output if it fails."""
        text = self._with_ports(snippet.text)
        if "saved as" in snippet.marks:
            path = self.folder / snippet.marks["saved as"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif snippet.language in PARSED:
            _parse(snippet)
        elif snippet.language == "console":
            for command, expected in console_steps(text):
                shown = self._execute(snippet, ["bash", "-euo", "pipefail", "-c", command])
                assert matches(expected, shown), f"{snippet.where}: {command}\nprinted\n{shown}\nand not\n{expected}"
        else:
            self._execute(snippet, self._command(snippet.language, text))

    def _command(self, language: str, text: str) -> list[str]:
        if language == "python":
            return [sys.executable, "-c", text]
        if language == "sql":
            return [sys.executable, "-m", "nsqanalytics", "sql", "--archive", f"{self._env['NSQ_HOME']}/archive", text]
        return ["bash", "-euo", "pipefail", "-c", text]

    def _execute(self, snippet: Snippet, command: list[str]) -> str:
        """Run a command in a session of its own, and return its output of both streams."""
        log = self.folder / f".output-{len(self._groups)}"
        # A file, because a process in the background would keep a pipe open.
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=dict(self._env),
                start_new_session=True,
            )
        self._groups.append(process)
        if "background" in snippet.marks:
            self._background.append((snippet, process, log))
            return ""
        try:
            status = process.wait(SNIPPET_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{snippet.where}: did not end within {SNIPPET_S:g} s\n{_last(log)}") from None
        wanted = int(snippet.marks.get("exit status", "0"))
        assert status == wanted, f"{snippet.where}: exit status {status}\n{snippet.text}\n{_last(log)}"
        shown = log.read_text(errors="replace")
        assert "Traceback (most recent call last)" not in shown, f"{snippet.where}: a traceback\n{_last(log)}"
        return shown

    def _with_ports(self, text: str) -> str:
        def other(match: re.Match[str]) -> str:
            return str(self._ports.get(int(match[0]), match[0]))

        return re.sub(r"(?<=:)\d{4}\b", other, text)

    def check_background(self) -> None:
        """Raise AssertionError for a block in the background that has failed."""
        for snippet, process, log in self._background:
            status = process.poll()
            assert not status, f"{snippet.where}: ended with status {status}\n{snippet.text}\n{_last(log)}"

    def close(self) -> None:
        """End what the blocks started in the background, children included."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._groups:
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    continue
                if number == signal.SIGTERM:
                    try:
                        process.wait(10)
                    except subprocess.TimeoutExpired:
                        continue
            for process in self._groups:
                if number == signal.SIGKILL:
                    process.wait(DEADLINE_S)


def console_steps(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a ``console`` block, after ``$ ``, each with the output that is shown for it."""
    for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = step.splitlines()
        length = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield "\n".join(lines[:length]), "\n".join(lines[length:])


def matches(expected: str, shown: str) -> bool:
    """Whether a command's output is the expected one, in which ``…`` stands for anything, and a message's id for any.

    An expectation without text allows any output.
    """
    if not expected.strip():
        return True
    pattern = re.escape(expected.strip()).replace("…", ".*")
    return re.fullmatch(_MESSAGE_ID.sub("[0-9a-f]{16}", pattern), shown.strip(), re.DOTALL) is not None


def _last(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])


def _parse(snippet: Snippet) -> None:
    parsers: dict[str, Callable[[str], object]] = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}
    try:
        parsers[snippet.language](snippet.text)
    except (ValueError, yaml.YAMLError) as error:
        raise AssertionError(f"{snippet.where}: is not {snippet.language}: {error}") from None


def is_notebook(text: str) -> bool:
    """Whether a page is a notebook in Jupytext's Markdown: it begins with the metadata of Jupyter."""
    return text.startswith("---\njupyter:\n")


def pages() -> dict[str, str]:
    """The text of README.md and of each page of docs/, by its path in the repository."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}
