"""Settings of the test run: the product's own, on a home that is thrown away.

The bundled Redis of the tests listens on ``$NSQ_HOME/redis.sock``, where the product expects it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_home = tempfile.mkdtemp(prefix="nsq-test-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ["NSQ_HOME"] = _home
for _name in (
    "DATABASE_URL",
    "REDIS_URL",
    "NSQ_ARCHIVE",
    "NSQ_REPORTS",
    "NSQ_HTTPS",
    "NSQ_DEBUG",
    "NSQ_ALLOWED_HOSTS",
    "NSQ_SITE",
    "NSQ_EMAIL_URL",
    "NSQ_EMAIL_FROM",
):
    os.environ.pop(_name, None)

from nsqplatform.console.settings import *  # noqa: E402, F403

# Slow hashing protects kept passwords; the tests keep none.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# A file, since tests reach the database from several threads and from processes they start.
DATABASES["default"]["TEST"] = {"NAME": f"{_home}/test.sqlite3"}  # noqa: F405
