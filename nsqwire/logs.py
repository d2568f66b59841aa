"""nsqd's log lines on the standard logging module: ``<prefix>YYYY/MM/DD HH:MM:SS.micros LEVEL: text`` on stderr."""

import enum
import logging
import sys
import time
from typing import Final


class LogLevel(enum.IntEnum):
    """The level words of ``--log-level``; the numbers are those that ``/config/log_level`` shows."""

    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4
    FATAL = 5

    @classmethod
    def parse(cls, word: str) -> "LogLevel":
        """Read ``debug info warn error fatal`` in any case. Raises ValueError with a sentence for the user."""
        try:
            return cls[word.upper()]
        except KeyError:
            raise ValueError(f"{word!r} is not a log level (debug, info, warn, error, fatal)") from None

    @property
    def word(self) -> str:
        return self.name.lower()


_STANDARD: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.FATAL: logging.CRITICAL,
}


class LineFormatter(logging.Formatter):
    """One record, one line. Line breaks inside the text (a client may have sent them) are escaped; a traceback of
    ours follows on lines of its own."""

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
        text = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        line = f"{self._prefix}{self._stamp}.{micros:06d} {level}: {text}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class StderrHandler(logging.Handler):
    """Writes to whatever ``sys.stderr`` is now. A closed or full stderr loses the line, never the process."""

    def emit(self, record: logging.LogRecord) -> None:
        stream = sys.stderr
        if stream is None:  # the process was started with descriptor 2 closed
            return
        try:
            stream.write(self.format(record) + "\n")
            stream.flush()
        except (OSError, ValueError):  # harnesses close or break our stderr; there is nowhere left to complain to
            return
        except Exception:  # a log call with wrong arguments: say so, where the standard library says it
            self.handleError(record)


def configure(level: LogLevel, prefix: str) -> None:
    """Make the root logger write nsqd's lines with this prefix, from this level on. Calling again replaces both."""
    handler = StderrHandler()
    handler.setFormatter(LineFormatter(prefix))
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    # The reference has no line for what the event loop finds worth a DEBUG.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    set_level(level)


def set_level(level: LogLevel) -> None:
    """Change the level while running (``PUT /config/log_level``)."""
    logging.getLogger().setLevel(_STANDARD[level])


def level() -> LogLevel:
    """The level in force."""
    effective = logging.getLogger().getEffectiveLevel()
    return max((ours for ours, standard in _STANDARD.items() if standard <= effective), default=LogLevel.DEBUG)
