"""Django's settings, drawn from :mod:`console.environment`.

With nothing configured: SQLite in WAL mode and a Redis on a Unix socket below ``$NSQ_HOME``, which ``nsq up`` starts.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import dj_database_url

from console.environment import Environment
from console.logging import logging_to_stderr

NSQ = Environment.read()

DEBUG = NSQ.debug
SECRET_KEY = NSQ.secret_key
ALLOWED_HOSTS = list(NSQ.allowed_hosts)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "channels",
    "ninja",
    "django_celery_beat",
    "console",
    "accounts",
    "cluster",
    "reports",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
APPEND_SLASH = False
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]

# ---- data

DATABASES = {"default": dj_database_url.parse(NSQ.database_url)}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Web, worker, beat and collector write to one file. IMMEDIATE takes the write lock at BEGIN, where SQLite waits for
    # `timeout` seconds; a transaction that began by reading would be refused at once instead.
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = NSQ.redis_url
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}
CHANNEL_LAYERS = {
    # A browser that does not keep up loses messages from the middle: it sees the gap and is sent the whole picture.
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "capacity": 50, "expiry": 10, "prefix": "nsq:layer"},
    }
}

# ---- people

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "/signin"
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if NSQ.https:
    # TLS ends at a proxy in front of Daphne, which must set the header itself.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True

# ---- the web app, built by Vite

FRONTEND_DIST: Path = NSQ.frontend_dist
STATIC_URL = "/static/"
STATICFILES_DIRS = [FRONTEND_DIST] if FRONTEND_DIST.is_dir() else []
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG


def WHITENOISE_IMMUTABLE_FILE_TEST(path: str, url: str) -> bool:
    """Vite puts a hash of the content into the names below ``assets/``."""
    return url.startswith(f"{STATIC_URL}assets/")


# ---- the cluster and its reports

NSQD_HTTP_ADDRESSES = NSQ.nsqd_http_addresses
NSQLOOKUPD_HTTP_ADDRESSES = NSQ.lookupd_http_addresses
NSQ_ARCHIVE = NSQ.archive
NSQ_REPORTS = NSQ.reports
SPARK_MASTER = NSQ.spark_master

# Celery spells a Redis on a Unix socket its own way.
CELERY_BROKER_URL = f"redis+socket://{urlsplit(REDIS_URL).path}" if REDIS_URL.startswith("unix:") else REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

# ---- the rest

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LOGGING = logging_to_stderr(debug=DEBUG)
