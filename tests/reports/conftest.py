"""The reports app with a database, a Redis and an archive of its own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.harness.redis import running_redis

PASSWORD = "correct horse battery staple"
MIDNIGHT = datetime(2026, 3, 14, tzinfo=UTC)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """The bundled Redis on the socket where the settings expect it, unless other tests have started it already."""
    from django.conf import settings

    with running_redis(settings.REDIS_URL, tmp_path_factory.mktemp("redis")) as client:
        yield client


@pytest.fixture
def redis(redis_server: Redis) -> Redis:
    redis_server.flushall()
    return redis_server


@pytest.fixture
def no_schedules(transactional_db: None) -> None:
    """Remove the schedules of a fresh installation, which exist until the first test has emptied the database."""
    from django_celery_beat.models import PeriodicTask

    from nsqplatform.reports.models import Report

    PeriodicTask.objects.filter(report__isnull=False).delete()
    Report.objects.all().delete()


@pytest.fixture(autouse=True)
def places(settings: Any, tmp_path: Path) -> None:
    """Folders of the archive and the results, for this test only."""
    settings.NSQ_ARCHIVE = str(tmp_path / "archive")
    settings.NSQ_REPORTS = str(tmp_path / "reports")
    settings.SPARK_MASTER = ""


@pytest.fixture(scope="module", autouse=True)
def session_ends() -> Iterator[None]:
    """End the Spark session of the runs that a module's tests executed in this process."""
    yield
    from nsqplatform.reports.warm_session import WARM_SESSION

    WARM_SESSION.end()


@pytest.fixture
def archive(tmp_path: Path) -> list[int]:
    """An archive of one node that finished 1,500 messages in an hour; returns their latencies in ns."""
    from nsqanalytics.archive import ArchiveWriter
    from nsqanalytics.schema import Sample
    from nsqwire.histogram import Histogram

    rng, histogram, latencies = random.Random(5), Histogram(), []
    samples = []
    for step in range(1, 31):
        for _ in range(50):
            latencies.append(int(rng.lognormvariate(16, 1.5)))
            histogram.record(latencies[-1])
        dense = histogram.to_json()
        samples.append(
            Sample(
                taken_at=MIDNIGHT + timedelta(minutes=step),
                node="127.0.0.1:4151",
                boot_id="0a",
                started_at=MIDNIGHT,
                topic="orders",
                channel="billing",
                message_count=histogram.count,
                finish_count=histogram.count,
                hist_zero_count=dense["zero_count"],
                hist_offset=dense["offset"],
                hist_counts=dense["counts"],
            )
        )
    ArchiveWriter(str(tmp_path / "archive")).write(samples)
    return latencies


class Caller:
    """A user with a role, who calls the API with the session cookie and the CSRF header."""

    def __init__(self, role: str) -> None:
        from django.test import Client

        from nsqplatform.accounts.roles import Role
        from nsqplatform.accounts.services import create_account

        create_account(username=role, role=Role(role), password=PASSWORD)
        self.client = Client(enforce_csrf_checks=True)
        self.csrf = ""
        status, me = self("POST", "session", {"username": role, "password": PASSWORD})
        assert status == 200
        self.csrf = me["csrf_token"]

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = self.raw(method, path, body)
        return answer.status_code, json.loads(answer.content) if answer.content else None

    def raw(self, method: str, path: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"X-CSRFToken": self.csrf} if self.csrf else {}
        return self.client.generic(
            method, f"/api/v1/{path}", data=data, content_type="application/json", headers=headers
        )


@pytest.fixture
def caller(redis: Redis, no_schedules: None) -> Callable[[str], Caller]:
    """Makes a user with a role."""
    return Caller
