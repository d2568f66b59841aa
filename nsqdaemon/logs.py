"""Log lines on stderr, on the standard logging module.

The formats are nsqd's, ``<prefix>YYYY/MM/DD HH:MM:SS.micros LEVEL: text``, and one JSON object per line.
"""

import enum
import json
import logging
import os
import sys
import time
from typing import Final

from nsqwire.printable import printable


class LogLevel(enum.IntEnum):
    """The levels of ``--log-level``; the numbers are those in ``/config/log_level``."""

    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4
    FATAL = 5

    @classmethod
    def parse(cls, word: str) -> "LogLevel":
        """Parse ``debug info warn error fatal`` in any case. Raises ValueError with a message for the user."""
        try:
            return cls[word.upper()]
        except KeyError:
            raise ValueError(f"{word!r} is not a log level (debug, info, warn, error, fatal)") from None

    @property
    def word(self) -> str:
        """The level as ``--log-level`` takes it."""
        return self.name.lower()


LOG_FORMATS: Final = ("nsqd", "json")
"""The values of ``--log-format``."""

_STANDARD: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.FATAL: logging.CRITICAL,
}
_WORDS: Final = {standard: ours.word for ours, standard in _STANDARD.items()}


class LineFormatter(logging.Formatter):
    """Formats a record as one line. Line breaks and other characters of the text that a terminal would act on are
    escaped: it may be a client's. A traceback follows on separate lines."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix
        self._second = -1
        self._stamp = ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(second))
        micros = int((record.created - second) * 1_000_000)
        level = "FATAL" if record.levelno >= logging.CRITICAL else record.levelname
        text = printable(record.getMessage())
        line = f"{self._prefix}{self._stamp}.{micros:06d} {level}: {text}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JSONFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line of ASCII: ``time`` (RFC 3339, UTC, microseconds), ``level`` (the
    word of ``--log-level``), ``logger``, ``message``, and ``exception`` with the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        micros = int(record.created % 1 * 1_000_000)
        fields = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{micros:06d}Z",
            "level": _WORDS.get(record.levelno, record.levelname.lower()),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


class StderrHandler(logging.Handler):
    """Writes to the current ``sys.stderr``. If stderr is closed or full, the line is lost and the process continues."""

    def emit(self, record: logging.LogRecord) -> None:
        stream = sys.stderr
        if stream is None:  # the process was started with descriptor 2 closed
            return
        try:
            line = self.format(record) + "\n"
            if stream is sys.__stderr__:
                # Not through the stream's buffer: bytes that a full disk refused would fail again at exit.
                os.write(2, line.encode(errors="backslashreplace"))
            else:
                stream.write(line)
                stream.flush()
        except (OSError, ValueError):  # stderr was closed or broken by a supervisor; there is nowhere to report this
            return
        except Exception:  # a log call with wrong arguments, reported as the standard library does
            self.handleError(record)


def configure(level: LogLevel, prefix: str, form: str = "nsqd") -> None:
    """Configure the root logger: level, and one of LOG_FORMATS. A second call replaces the configuration.

    The prefix applies to nsqd's format.
    """
    handler = StderrHandler()
    handler.setFormatter(JSONFormatter() if form == "json" else LineFormatter(prefix))
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    # With --log-level=debug, asyncio would add lines that nsqd does not have.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    set_level(level)


def set_level(level: LogLevel) -> None:
    """Change the level at run time (``PUT /config/log_level``)."""
    logging.getLogger().setLevel(_STANDARD[level])


def level() -> LogLevel:
    """The current level."""
    effective = logging.getLogger().getEffectiveLevel()
    return max((ours for ours, standard in _STANDARD.items() if standard <= effective), default=LogLevel.DEBUG)
