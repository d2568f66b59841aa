"""The log of the platform's processes: one line of ``key=value`` pairs per event."""

from __future__ import annotations

import io
import logging
import logging.config
from typing import Any

import pytest
from django.conf import settings


@pytest.fixture
def lines() -> Any:
    """Returns the lines that a logger of the platform writes with these ``extra`` values."""
    formatter = logging.config.DictConfigurator(settings.LOGGING).configure_formatter(
        settings.LOGGING["formatters"]["logfmt"]
    )
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.Logger("nsqplatform.reports.runner")
    logger.addHandler(handler)

    def log(message: str, **extra: Any) -> list[str]:
        logger.warning(message, extra=extra)
        return stream.getvalue().splitlines()

    return log


def test_a_line_has_the_values_of_its_event(lines, rf):
    """Empty ones are left out, and the request, whose path Django writes into the event."""
    (line,) = lines("Not Found: /api", status_code=404, request=rf.get("/api"), error="", count=0)
    assert line.partition(" ")[2] == (
        'level=warning logger=nsqplatform.reports.runner event="Not Found: /api" status_code=404 count=0'
    )


def test_a_line_break_in_a_value_stays_in_the_line(lines):
    """The value may be a user's."""
    assert len(lines("refused", topic="a\nb")) == 1
