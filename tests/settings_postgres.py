"""Settings of a test run on Postgres: ``pytest --ds tests.settings_postgres``, or ``make postgres``."""

from __future__ import annotations

import atexit

import dj_database_url

from nsqplatform.console.settings_test import *  # noqa: F403
from tests.postgres import start_postgres

_server, _end = start_postgres()
atexit.register(_end)
DATABASES = {"default": dj_database_url.parse(_server.get_uri())}
