"""Settings of the tests: the platform's settings with a temporary data folder.

The tests' Redis listens on the platform's default, ``$NSQ_HOME/redis.sock``.
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
    "CELERY_BROKER_URL",
    "NSQ_ARCHIVE",
    "NSQ_ICEBERG_CATALOG",
    "NSQ_REPORTS",
    "NSQ_HISTORY",
    "NSQ_HTTPS",
    "NSQ_DEBUG",
    "NSQ_ALLOWED_HOSTS",
    "NSQ_SITE",
    "NSQ_CLUSTERS",
    "NSQ_EMAIL_URL",
    "NSQ_EMAIL_FROM",
    "NSQ_OIDC_ISSUER",
    "NSQ_LOCAL_SIGN_IN",
):
    os.environ.pop(_name, None)
os.environ["NSQADMIN_WEBHOOK_ALLOW"] = "127.0.0.0/8"  # the tests' receivers

from nsqplatform.console.settings import *  # noqa: E402, F403

# Slow hashes protect stored passwords, which tests do not have.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# A file, because tests use the database from several threads and processes.
DATABASES["default"]["TEST"] = {"NAME": f"{_home}/test.sqlite3"}  # noqa: F405
