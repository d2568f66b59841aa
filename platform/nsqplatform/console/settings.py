"""Django's settings, from :mod:`console.environment`.

By default: SQLite in WAL mode, and a Redis on a Unix socket in ``$NSQ_HOME``, which ``nsq up`` starts.
"""

from __future__ import annotations

from pathlib import Path

import dj_database_url

from nsqplatform.console.environment import Environment
from nsqplatform.console.logging import logging_to_stderr
from nsqplatform.nsqadmin.settings import from_environment

NSQ = Environment.read()
NSQADMIN = from_environment()

DEBUG = NSQ.debug
SECRET_KEY = NSQ.secret_key
ALLOWED_HOSTS = list(NSQ.allowed_hosts)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.staticfiles",
    "channels",
    "ninja",
    "django_celery_beat",
    "nsqplatform.console",
    "nsqplatform.accounts",
    "nsqplatform.cluster",
    "nsqplatform.reports",
    "nsqplatform.jobs",
    "nsqplatform.objectives",
    "nsqplatform.alerts",
    "nsqplatform.marks",
    "nsqplatform.saved_views",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "nsqplatform.console.policy.ContentSecurityPolicy",
    "nsqplatform.console.refusals.OtherMethods",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "nsqplatform.accounts.audit.RefusalRecorder",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "nsqplatform.accounts.credentials.SignedIn",
    "nsqplatform.console.refusals.RedisFailures",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "nsqplatform.console.urls"
ASGI_APPLICATION = "nsqplatform.console.asgi.application"
APPEND_SLASH = False
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 << 20  # the largest MPUB, 5 MiB, in base64
FORCE_SCRIPT_NAME = NSQADMIN.base or None
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]

# ---- data

DATABASES = {"default": dj_database_url.parse(NSQ.database_url)}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Several processes write to one file. IMMEDIATE takes the write lock at BEGIN, for which SQLite waits up to
    # `timeout` seconds; a transaction that reads first would fail at once instead.
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = NSQ.redis_url
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}

# ---- people

AUTH_USER_MODEL = "accounts.User"
SESSION_ENGINE = "nsqplatform.accounts.sessions"
NINJA_NUM_PROXIES = 0  # 0: an attacker could avoid limits with X-Forwarded-For
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
NSQ_OIDC = NSQ.oidc
NSQ_LOCAL_SIGN_IN = NSQ.local_sign_in
LOGIN_URL = f"{NSQADMIN.base}/signin"
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = NSQADMIN.base or "/"
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "nsqplatform.console.refusals.no_csrf_token"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if NSQ.https:
    # TLS ends at a proxy in front of Daphne, which must set the header itself.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = int(NSQADMIN.hsts_max_age.total_seconds())

# ---- the web app, built by Vite

FRONTEND_DIST: Path = NSQ.frontend_dist
STATIC_URL = f"{NSQADMIN.base}/static/"
STATICFILES_DIRS = [FRONTEND_DIST] if FRONTEND_DIST.is_dir() else []
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG


def WHITENOISE_IMMUTABLE_FILE_TEST(path: str, url: str) -> bool:
    """True below ``assets/``, where Vite adds a hash of the content to file names."""
    return url.startswith(f"{STATIC_URL}assets/")


# ---- the clusters and their reports

NSQD_HTTP_ADDRESSES = NSQ.nsqd_http_addresses
NSQLOOKUPD_HTTP_ADDRESSES = NSQ.lookupd_http_addresses
CLUSTERS = NSQ.clusters
COLLECTOR_LISTENERS = [
    "nsqplatform.objectives.counting.Counting",
    "nsqplatform.alerts.evaluation.Alerting",
    "nsqplatform.cluster.collector.node_events.NodeEvents",
]
NSQ_ARCHIVE = NSQ.archive
NSQ_ICEBERG_CATALOG = NSQ.iceberg_catalog
NSQ_REPORTS = NSQ.reports
NSQ_HISTORY = NSQ.history
NSQ_HISTORY_DAYS = NSQ.history_days
NSQ_SITE = NSQ.site
NSQ_OTLP_ENDPOINT = NSQ.otlp_endpoint
NSQ_OTLP_INTERVAL_S = NSQ.otlp_interval_s
SPARK_MASTER = NSQ.spark_master
NSQ_SPARK_IDLE_S = NSQ.spark_idle_s

CELERY_BROKER_URL = NSQ.celery_broker_url
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A report occupies a thread of its worker until it ends, so other tasks have their own queue.
CELERY_TASK_DEFAULT_QUEUE = "dispatch"
CELERY_TASK_ROUTES = {"reports.run_report": {"queue": "reports"}}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BEAT_SCHEDULE = {
    # Bands are found for two hours ahead: a run may be two hours late.
    "alerts: find the bands of past weeks": {"task": "alerts.find_bands", "schedule": 1800.0},
    # The rings in Redis hold an hour: a run may be 50 minutes late.
    "cluster: keep the history": {"task": "cluster.keep_history", "schedule": 600.0},
    "jobs: resume those whose worker died": {
        "task": "jobs.resume_abandoned",
        "schedule": 10.0,
        "options": {"expire_seconds": 10},
    },
    "jobs: remove old ones": {"task": "jobs.remove_old_jobs", "schedule": 3600.0},
    "reports: drop expired results": {"task": "reports.drop_expired_results", "schedule": 3600.0},
}
CELERY_BEAT_SCHEDULER = "nsqplatform.reports.beat:Scheduler"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

# ---- notifications

EMAIL_HOST, EMAIL_PORT = NSQ.mail.host, NSQ.mail.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = NSQ.mail.user, NSQ.mail.password
EMAIL_USE_TLS, EMAIL_USE_SSL = NSQ.mail.start_tls, NSQ.mail.tls
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = NSQ.mail_from

# ---- the rest

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LOGGING = logging_to_stderr(debug=DEBUG)
