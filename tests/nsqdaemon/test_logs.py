"""Log lines as nsqd writes them."""

import json
import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from nsqdaemon import logs
from nsqdaemon.logs import LogLevel


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_has_nsqds_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Prefix, local date and time to the microsecond, level, text, as log shippers parse it."""
    logs.configure(LogLevel.DEBUG, "[nsqd] ")
    log = logging.getLogger("some.module")
    for write in (log.debug, log.info, log.warning, log.error, log.critical):
        write("hello %s", "world")
    lines = capsys.readouterr().err.splitlines()
    stamp = r"\[nsqd\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} "
    for line, level in zip(lines, ("DEBUG", "INFO", "WARNING", "ERROR", "FATAL"), strict=True):
        assert re.fullmatch(stamp + level + ": hello world", line)


def test_the_level_changes_while_running(capsys: pytest.CaptureFixture[str]) -> None:
    """An operator can turn DEBUG on and off again without a restart."""
    logs.configure(LogLevel.INFO, "")
    log = logging.getLogger("some.module")
    log.debug("one")
    logs.set_level(LogLevel.DEBUG)
    log.debug("two")
    logs.set_level(LogLevel.ERROR)
    log.warning("three")
    assert [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["two"]
    assert logs.level() is LogLevel.ERROR


def test_one_record_is_one_line_whatever_a_client_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """A line break in a client's text cannot forge a log line."""
    logs.configure(LogLevel.INFO, "")
    logging.getLogger("some.module").info("client said %s", "x\n2026/01/01 FATAL: forged\r")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("x\\n2026/01/01 FATAL: forged\\r")


def test_json_lines_are_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """With --log-format=json each record is one object: time in UTC, level, logger, message, traceback."""
    logs.configure(LogLevel.DEBUG, "[unused] ", "json")
    log = logging.getLogger("some.module")
    log.warning("client said %s", 'x\n\udcff"ü')
    try:
        raise ValueError("what went wrong")
    except ValueError:
        log.exception("it failed")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert list(first) == ["time", "level", "logger", "message"]
    assert (first["level"], first["logger"]) == ("warn", "some.module")
    assert first["message"] == 'client said x\n\udcff"ü'
    moment = datetime.fromisoformat(first["time"])
    assert abs(moment - datetime.now(UTC)) < timedelta(minutes=1)
    assert second["level"] == "error"
    assert second["exception"].endswith("ValueError: what went wrong")


class _Broken:
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise OSError(9, "Bad file descriptor")


@pytest.mark.parametrize("stderr", [None, _Broken()])
def test_a_closed_stderr_is_survived(monkeypatch: pytest.MonkeyPatch, stderr: object) -> None:
    """Some supervisors close stderr or make it read-only; logging then raises nothing, and resumes with stderr."""
    logs.configure(LogLevel.INFO, "")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        logging.getLogger("some.module").info("unheard")
    heard: list[str] = []
    monkeypatch.setattr(sys, "stderr", type("Ears", (), {"write": heard.append, "flush": lambda self: None})())
    logging.getLogger("some.module").info("heard")
    assert [line.endswith("heard\n") for line in heard] == [True]
    assert "unheard" not in heard[0]


@pytest.mark.parametrize("word", ["warn", "WARN", "Warn"])
def test_level_words_are_read_in_any_case(word: str) -> None:
    """--log-level accepts any case; /config/log_level shows it as 3."""
    assert LogLevel.parse(word) is LogLevel.WARN
    assert LogLevel.WARN == 3
