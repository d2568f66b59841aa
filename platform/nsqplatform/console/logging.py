"""Logging: one line of ``key=value`` pairs per event on standard error, for people and log collectors."""

from __future__ import annotations

import structlog
from structlog.typing import EventDict, WrappedLogger


def without_empty(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Remove values that say nothing: empty texts, and the request that Django adds, whose path is in the event."""
    return {key: value for key, value in event.items() if value != "" and key != "request"}


SHARED = [
    structlog.stdlib.ExtraAdder(),
    without_empty,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def logging_to_stderr(*, debug: bool) -> dict[str, object]:
    """Return Django's LOGGING, the argument of ``dictConfig``. The values of ``extra={…}`` become pairs of the line."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "logfmt": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": SHARED,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    structlog.processors.LogfmtRenderer(
                        key_order=["timestamp", "level", "logger", "event"], bool_as_flag=False
                    ),
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "logfmt"}},
        "root": {"handlers": ["stderr"], "level": "DEBUG" if debug else "INFO"},
        "loggers": {
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            "django.server": {"handlers": [], "propagate": True},
            # No lines for our own requests to brokers, which are made every second.
            "httpx": {"level": "WARNING"},
            "httpcore": {"level": "WARNING"},
            "asyncio": {"level": "WARNING"},
            "daphne.http_protocol": {"level": "INFO"},
            # No lines for tasks that are queued, received and done: some run every ten seconds. Failures are errors.
            "celery.beat": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
        },
    }
