"""Settings of a test run on Postgres: ``pytest --ds tests.settings_postgres``, or ``make postgres``.

The process that hands out the tests starts a server, and the processes that run them find it by ``NSQ_TEST_POSTGRES``;
pytest-django gives each its own database.
"""

from __future__ import annotations

import atexit
import os

import dj_database_url

from nsqplatform.console.settings_test import *  # noqa: F403
from tests.postgres import start_postgres

_URL = "NSQ_TEST_POSTGRES"  # an environment variable

if _URL not in os.environ:
    _server, _end = start_postgres()
    atexit.register(_end)
    os.environ[_URL] = _server.get_uri()
DATABASES = {"default": dj_database_url.parse(os.environ[_URL])}
