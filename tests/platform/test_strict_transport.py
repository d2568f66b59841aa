"""The header Strict-Transport-Security, of web processes with each setting. They read nothing from the database."""

from __future__ import annotations

import httpx
import pytest

from tests.harness.waiting import DEADLINE_S


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NSQ_HTTPS": "1"}, "max-age=86400"),
        ({"NSQ_HTTPS": "1", "NSQADMIN_HSTS_MAX_AGE": "8760h"}, "max-age=31536000"),
        ({"NSQ_HTTPS": "1", "NSQADMIN_HSTS_MAX_AGE": "0s"}, None),
        ({}, None),
    ],
)
def test_browsers_are_told_to_use_https_where_it_is_on(start_web, environment, expected):
    """For a day unless the setting says otherwise; never over plain HTTP."""
    web = start_web(**environment)
    with httpx.Client(base_url=web.base, trust_env=False, timeout=DEADLINE_S) as client:
        over_https = client.get("/signin", headers={"X-Forwarded-Proto": "https"})
        assert over_https.headers.get("Strict-Transport-Security") == expected
        assert "Strict-Transport-Security" not in client.get("/signin").headers
