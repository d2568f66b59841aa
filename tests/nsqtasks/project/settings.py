"""A Django project with the backend, for the tests: NSQD is the broker's address, DATABASE_URL the database."""

from __future__ import annotations

import json
import os
from datetime import timedelta

import dj_database_url

SECRET_KEY = "of the tests"
USE_TZ = True
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls"
STATIC_URL = "/static/"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_tasks",
    "nsqtasks",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {"default": dj_database_url.parse(os.environ["DATABASE_URL"])}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
OPTIONS = {
    "nsqd_tcp_addresses": [os.environ["NSQD"]],
    "publish_timeout": timedelta(seconds=float(os.environ.get("PUBLISH_TIMEOUT_S", "30"))),
    "lease": timedelta(seconds=float(os.environ.get("LEASE_S", "600"))),
    "sweep_interval": timedelta(seconds=0.5),
    "max_req_timeout": timedelta(seconds=float(os.environ.get("MAX_REQ_TIMEOUT_S", "3600"))),
    "client": {"max_reconnect_delay": timedelta(seconds=1)},
    **json.loads(os.environ.get("MORE_OPTIONS", "{}")),
}
TASKS = {
    "default": {
        "BACKEND": "nsqtasks.backend.NSQBackend",
        "QUEUES": ["default", "emails"],
        "OPTIONS": OPTIONS,
    },
    "immediate": {"BACKEND": "django_tasks.backends.immediate.ImmediateBackend", "QUEUES": ["default", "emails"]},
}
