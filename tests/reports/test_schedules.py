"""Scheduling reports through the API, and what Celery beat then finds."""

from __future__ import annotations

import json
from typing import Any

import pytest

DAILY = {
    "name": "every morning",
    "job": "latency",
    "parameters": {"window": "1h", "period": "1d", "topic": None},
    "cron": "30 6 * * mon-fri",
    "every_seconds": None,
    "time_zone": "Europe/Vienna",
    "enabled": True,
}


def beat_entries() -> list[Any]:
    from django_celery_beat.models import PeriodicTask

    return list(PeriodicTask.objects.filter(task="reports.run_scheduled"))


def test_a_schedule_by_cron_is_what_beat_will_keep(caller):
    """In the time zone it was written in."""
    operator = caller("operator")

    status, schedule = operator("POST", "reports/schedules", DAILY)

    assert status == 201
    assert {name: schedule[name] for name in ("cron", "every_seconds", "time_zone", "enabled", "created_by")} == {
        "cron": "30 6 * * mon-fri",
        "every_seconds": None,
        "time_zone": "Europe/Vienna",
        "enabled": True,
        "created_by": "operator",
    }
    assert schedule["parameters"] == {"window": "1h", "period": "1d"}
    [entry] = beat_entries()
    crontab = entry.crontab
    assert (crontab.minute, crontab.hour, crontab.day_of_week, str(crontab.timezone)) == (
        *("30", "6", "mon-fri"),
        "Europe/Vienna",
    )
    assert json.loads(entry.kwargs) == {"report_id": schedule["id"]}
    assert operator("GET", "reports/schedules")[1] == {"schedules": [schedule]}


def test_a_schedule_changes_from_cron_to_interval_is_paused_and_deleted(caller):
    """Beat's entry follows each step; what is not named stays."""
    operator = caller("operator")
    path = f"reports/schedules/{operator('POST', 'reports/schedules', DAILY)[1]['id']}"

    status, changed = operator("PATCH", path, {"every_seconds": 900})
    assert (status, changed["cron"], changed["every_seconds"], changed["name"]) == (200, None, 900, "every morning")
    [entry] = beat_entries()
    assert (entry.crontab, entry.interval.every, entry.enabled) == (None, 900, True)

    assert operator("PATCH", path, {"enabled": False})[1]["enabled"] is False
    [entry] = beat_entries()
    assert entry.enabled is False

    assert operator("DELETE", path)[0] == 204
    assert beat_entries() == []
    assert operator("PATCH", path, {"enabled": True})[0] == 404


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"cron": "every day"}, "cron: 'every day': five fields are needed"),
        ({"cron": "61 * * * *"}, "cron: '61 * * * *'"),
        ({"cron": None}, "a schedule has either cron or every_seconds"),
        ({"every_seconds": 900}, "a schedule has either cron or every_seconds"),
        ({"cron": None, "every_seconds": 5}, "every_seconds"),
        ({"time_zone": "Mars/Olympus"}, "time_zone: 'Mars/Olympus' is not a time zone"),
        ({"time_zone": "../etc/passwd"}, "time_zone: '../etc/passwd' is not a time zone"),
        ({"job": "latencies"}, "there is no job 'latencies'"),
        ({"parameters": {"window": "7m"}}, "window: '7m' is not one of"),
        ({"name": "   "}, "name: a schedule needs one"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_by_name(caller, change: dict[str, Any], complaint: str):
    """422, and nothing is scheduled."""
    status, answer = caller("operator")("POST", "reports/schedules", DAILY | change)

    assert status == 422
    assert complaint in answer["message"]
    assert beat_entries() == []


def test_two_schedules_cannot_have_one_name(caller):
    operator = caller("operator")
    operator("POST", "reports/schedules", DAILY)

    status, answer = operator("POST", "reports/schedules", DAILY)

    assert (status, answer["message"]) == (422, "name: there is a schedule 'every morning' already")
    assert len(beat_entries()) == 1


def test_viewers_see_schedules_and_change_none(caller):
    """403 with the reason; a stranger gets 401."""
    from django.test import Client

    schedule = caller("admin")("POST", "reports/schedules", DAILY)[1]
    viewer = caller("viewer")
    path = f"reports/schedules/{schedule['id']}"

    assert viewer("GET", "reports/schedules")[0] == 200
    for method, target, body in (
        ("POST", "reports/schedules", DAILY | {"name": "mine"}),
        ("PATCH", path, {"enabled": False}),
        ("DELETE", path, None),
        ("POST", "reports/runs", {"job": "latency"}),
    ):
        status, answer = viewer(method, target, body)
        assert (status, answer["message"]) == (403, "your role, viewer, may not run or schedule reports")
    assert Client().get("/api/v1/reports/schedules").status_code == 401
    [entry] = beat_entries()
    assert entry.enabled is True


def test_the_jobs_are_told_with_the_form_of_their_parameters(caller):
    status, answer = caller("viewer")("GET", "reports/jobs")

    assert status == 200
    [latency] = answer["jobs"]
    assert (latency["name"], latency["title"]) == ("latency", "End-to-end latency")
    assert latency["parameters"]["window"] == {
        "type": "string",
        "title": "Window",
        "description": "Length of a window, UTC.",
        "default": "1h",
        "choices": ["5m", "1h", "1d"],
    }
