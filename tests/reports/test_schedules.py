"""Scheduling reports through the API, and the resulting entries of Celery beat."""

from __future__ import annotations

import itertools
import json
from typing import Any
from urllib.parse import urlencode

import pytest

pytestmark = pytest.mark.database

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


def test_a_cron_schedule_is_stored_in_beats_tables(caller):
    """In the time zone of the schedule."""
    admin = caller("admin")

    status, schedule = admin("POST", "reports/schedules", DAILY)

    assert status == 201
    assert {name: schedule[name] for name in ("cron", "every_seconds", "time_zone", "enabled", "created_by")} == {
        "cron": "30 6 * * mon-fri",
        "every_seconds": None,
        "time_zone": "Europe/Vienna",
        "enabled": True,
        "created_by": "admin",
    }
    assert schedule["parameters"] == {"window": "1h", "period": "1d"}
    [entry] = beat_entries()
    crontab = entry.crontab
    assert (crontab.minute, crontab.hour, crontab.day_of_week, str(crontab.timezone)) == (
        *("30", "6", "1,2,3,4,5"),
        "Europe/Vienna",
    )
    assert json.loads(entry.kwargs) == {"report_id": schedule["id"]}
    assert admin("GET", "reports/schedules")[1] == {"schedules": [schedule]}


def test_a_schedule_changes_from_cron_to_interval_is_paused_and_deleted(caller):
    """Beat's entry follows each step; fields that are not named keep their values."""
    admin = caller("admin")
    path = f"reports/schedules/{admin('POST', 'reports/schedules', DAILY)[1]['id']}"

    status, changed = admin("PATCH", path, {"every_seconds": 900})
    assert (status, changed["cron"], changed["every_seconds"], changed["name"]) == (200, None, 900, "every morning")
    [entry] = beat_entries()
    assert (entry.crontab, entry.interval.every, entry.enabled) == (None, 900, True)

    assert admin("PATCH", path, {"enabled": False})[1]["enabled"] is False
    [entry] = beat_entries()
    assert entry.enabled is False

    assert admin("DELETE", path)[0] == 204
    assert beat_entries() == []
    assert admin("PATCH", path, {"enabled": True})[0] == 404


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"cron": "every day"}, "cron: 'every day': five fields are needed"),
        ({"cron": "@fortnightly"}, "cron: '@fortnightly': there is no @fortnightly; there are @hourly, @daily"),
        ({"cron": "0 6 * * 8"}, "cron: '0 6 * * 8': day of week: 8 is not from 0 to 7"),
        ({"cron": "0 0 30 2 *"}, "cron: '0 0 30 2 *': it is never due"),
        ({"cron": "61 * * * *"}, "cron: '61 * * * *'"),
        ({"cron": None}, "a schedule has either cron or every_seconds"),
        ({"every_seconds": 900}, "a schedule has either cron or every_seconds"),
        ({"cron": None, "every_seconds": 5}, "every_seconds"),
        ({"time_zone": "Mars/Olympus"}, "time_zone: 'Mars/Olympus' is not a time zone"),
        ({"time_zone": "../etc/passwd"}, "time_zone: '../etc/passwd' is not a time zone"),
        ({"job": "latencies"}, "there is no job 'latencies'"),
        ({"parameters": {"window": "7m"}}, "window: '7m' is not one of"),
        ({"name": "   "}, "name: a schedule needs a name"),
        ({"colour": "red"}, "colour"),
        ({"overlap": "pile up"}, "overlap"),
        ({"retries": 99}, "retries"),
        ({"notify_on": "failure"}, "notify_on: a webhook or an e-mail address is needed"),
        ({"notify_webhook": "ftp://host/"}, "notify_webhook: an http or https address is needed"),
        ({"notify_email": "ann@example.org, bob"}, "notify_email: 'bob' is not an e-mail address"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_by_name(caller, change: dict[str, Any], complaint: str):
    """With 422, and nothing is scheduled."""
    status, answer = caller("admin")("POST", "reports/schedules", DAILY | change)

    assert status == 422
    assert complaint in answer["message"]
    assert beat_entries() == []


def test_two_schedules_cannot_have_one_name(caller):
    admin = caller("admin")
    admin("POST", "reports/schedules", DAILY)

    status, answer = admin("POST", "reports/schedules", DAILY)

    assert (status, answer["message"]) == (422, "name: there is a schedule 'every morning' already")
    assert len(beat_entries()) == 1


def test_a_schedule_has_the_time_of_its_next_run(caller):
    """Five times, by the wall clock of its zone: 6:30 in Vienna before and after summer time begins."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    vienna = ZoneInfo("Europe/Vienna")
    admin = caller("admin")

    def preview(when: dict[str, Any]) -> tuple[int, Any]:
        return admin("GET", f"reports/schedules/preview?{urlencode(when)}")

    when = {"cron": "30 6 * * mon-fri", "time_zone": "Europe/Vienna"}
    status, answer = preview(when)
    due = [datetime.fromtimestamp(at / 1000, vienna) for at in answer["next_runs"]]
    assert (status, len(due), due) == (200, 5, sorted(due))
    assert {(at.hour, at.minute) for at in due} == {(6, 30)}
    assert all(at.weekday() < 5 and at > datetime.now(vienna) for at in due)
    yearly = preview({"cron": "0 12 1 1,7 *", "time_zone": "Europe/Vienna"})[1]
    assert {datetime.fromtimestamp(at / 1000, vienna).hour for at in yearly["next_runs"]} == {12}
    assert admin("POST", "reports/schedules", DAILY)[1]["next_run_at"] == answer["next_runs"][0]

    often = preview({"every_seconds": 900})[1]["next_runs"]
    assert {later - sooner for sooner, later in itertools.pairwise(often)} == {900_000}
    assert preview({"cron": "0 0 30 2 *"})[0] == 422  # a day that never comes
    status, answer = preview({"cron": "61 * * * *"})
    assert (status, answer["message"][:18]) == (422, "cron: '61 * * * *'")


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("0 6 * * 7", "0 6 * * 0"),
        ("0 6 * * 5-7", "0 6 * * fri,sat,sun"),
        ("0 6 * * sun-tue", "0 6 * * 0-2"),
        ("@daily", "0 0 * * *"),
        ("@Hourly", "0 * * * *"),
        ("@weekly", "0 0 * * 7"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 jan *"),
        ("*/15 22-2 * * *", "0,15,30,45 22,23,0,1,2 * * *"),
    ],
)
def test_a_cron_line_is_read_as_cron_reads_it(caller, written: str, same: str):
    """Sunday may be 7, @daily is midnight, and beat finds fields that it can read."""
    admin = caller("admin")

    def due(line: str) -> Any:
        return admin("GET", f"reports/schedules/preview?{urlencode({'cron': line})}")

    status, answer = due(written)
    assert (status, len(answer["next_runs"])) == (200, 5), answer
    assert due(same)[1] == answer
    status, schedule = admin("POST", "reports/schedules", DAILY | {"cron": written, "time_zone": "UTC"})
    assert (status, schedule["cron"], schedule["next_run_at"]) == (201, written, answer["next_runs"][0])
    [entry] = beat_entries()
    assert entry.schedule is not None


VIENNA = "Europe/Vienna"


@pytest.mark.parametrize(
    ("line", "since", "due"),
    [
        # The hour from 2 to 3 occurs twice on 25 October 2026, at 00:00 and at 01:00 UTC.
        ("*/30 * * * *", "2026-10-24T23:45Z", ["00:00", "00:30", "01:00", "01:30", "02:00"]),
        ("15 * * * *", "2026-10-24T23:45Z", ["00:15", "01:15", "02:15"]),
        ("30 2 * * *", "2026-10-24T23:45Z", ["00:30", "01:30 the next day"]),
        # It is skipped on 29 March, at 01:00 UTC.
        ("*/30 * * * *", "2026-03-29T00:15Z", ["00:30", "01:00", "01:30"]),
        ("30 2 * * *", "2026-03-29T00:15Z", ["01:30", "00:30 the next day"]),
    ],
)
def test_a_schedule_keeps_its_rhythm_where_clocks_change(caller, line: str, since: str, due: list[str]):
    """Half-hourly stays half-hourly; a time of day is due once a day. Beat computes the same times."""
    from datetime import datetime, timedelta
    from zoneinfo import ZoneInfo

    from nsqplatform.reports.beat import CronSchedule

    clock = datetime.fromisoformat(since)
    began, schedule = clock.date(), CronSchedule(line, ZoneInfo(VIENNA), nowfun=lambda: clock)
    found, last = [], clock
    while len(found) < len(due):
        is_due, wait_s = schedule.is_due(last)
        if is_due:
            first_day = datetime.fromisoformat(since) + timedelta(hours=1)
            later = " the next day" if clock.date() > first_day.date() else ""
            found.append(f"{clock:%H:%M}{later}")
            last = clock
        clock += timedelta(seconds=wait_s)
    assert found == due, began


def test_a_changed_or_enabled_schedule_makes_up_for_no_past_due_times(caller):
    """Due times before the change, or while it was disabled, are not made up for."""
    from datetime import timedelta

    from django.utils import timezone

    from nsqplatform.reports.beat import Entry

    admin = caller("admin")
    path = f"reports/schedules/{admin('POST', 'reports/schedules', DAILY | {'enabled': False})[1]['id']}"
    [entry] = beat_entries()
    entry.last_run_at = timezone.now() - timedelta(days=9)
    entry.save()
    assert Entry(entry).is_due()[1] == 5.0  # disabled

    admin("PATCH", path, {"enabled": True})
    [entry] = beat_entries()
    assert not Entry(entry).is_due()[0]

    entry.last_run_at = timezone.now() - timedelta(days=9)
    entry.save()
    assert Entry(entry).is_due()[0]
    admin("PATCH", path, {"cron": "30 5 * * *"})
    [entry] = beat_entries()
    assert not Entry(entry).is_due()[0]


def test_a_schedules_change_is_audited_and_its_webhook_hidden_from_viewers(caller):
    """The address contains a key: users who may not schedule reports see only its host."""
    from nsqplatform.accounts.models import AuditEntry

    admin = caller("admin")
    hook = {"notify_on": "failure", "notify_webhook": "https://hooks.example.org/services/s3cret"}
    schedule = admin("POST", "reports/schedules", DAILY | hook)[1]
    assert schedule["notify_webhook"] == hook["notify_webhook"]
    [seen] = caller("viewer")("GET", "reports/schedules")[1]["schedules"]
    assert seen["notify_webhook"] == "hooks.example.org/…"
    admin("PATCH", f"reports/schedules/{schedule['id']}", {"enabled": False})
    admin("DELETE", f"reports/schedules/{schedule['id']}")

    written = AuditEntry.objects.filter(action__contains="schedule").values_list("user", "action", "subject", "detail")
    assert list(written) == [
        ("admin", "delete schedule", "every morning", ""),
        ("admin", "change schedule", "every morning", "enabled"),
        ("admin", "create schedule", "every morning", ""),
    ]


def test_viewers_see_schedules_and_change_none(caller):
    """403 with the reason; a stranger gets 401."""
    from django.test import Client

    schedule = caller("admin")("POST", "reports/schedules", DAILY)[1]
    viewer = caller("viewer")
    path = f"reports/schedules/{schedule['id']}"

    assert viewer("GET", "reports/schedules")[0] == 200
    for method, target, body, what in (
        ("POST", "reports/schedules", DAILY | {"name": "mine"}, "schedule reports"),
        ("PATCH", path, {"enabled": False}, "schedule reports"),
        ("DELETE", path, None, "schedule reports"),
        ("POST", f"{path}/run", None, "run reports"),
        ("POST", "reports/runs", {"job": "latency"}, "run reports"),
    ):
        status, answer = viewer(method, target, body)
        assert (status, answer["message"]) == (403, f"your role, viewer, may not {what}")
    status, answer = caller("operator")("PATCH", path, {"enabled": False})
    assert (status, answer["message"]) == (403, "your role, operator, may not schedule reports")
    assert Client().get("/api/v1/reports/schedules").status_code == 401
    [entry] = beat_entries()
    assert entry.enabled is True


def test_only_administrators_run_maintenance(caller):
    """An operator runs reports but may not remove readings, neither by a run nor by an administrator's schedule."""
    admin, operator = caller("admin"), caller("operator")
    nightly = {"name": "nightly", "job": "retain", "every_seconds": 86400}
    schedule = admin("POST", "reports/schedules", nightly)[1]
    for path, body in (("reports/runs", {"job": "retain"}), (f"reports/schedules/{schedule['id']}/run", None)):
        status, answer = operator("POST", path, body)
        assert (status, answer["message"][:38]) == (403, "your role, operator, may not compact, ")
        assert admin("POST", path, body)[0] == 201


def test_the_jobs_are_listed_with_the_form_of_their_parameters(caller):
    status, answer = caller("viewer")("GET", "reports/jobs")

    assert status == 200
    names = {kind: [job["name"] for job in answer["jobs"] if job["kind"] == kind] for kind in ("report", "maintenance")}
    assert names == {
        "report": [
            "latency",
            "throughput",
            "objectives",
            "capacity",
            "forecast",
            "anomalies",
            "dead",
            "lives",
            "compare",
        ],
        "maintenance": ["rollup", "compact", "retain"],
    }
    latency = answer["jobs"][0]
    assert (latency["name"], latency["title"]) == ("latency", "End-to-end latency")
    assert latency["parameters"]["window"] == {
        "type": "string",
        "title": "Window",
        "description": "Length of a window, aligned to UTC hours and days.",
        "default": "1h",
        "choices": ["5m", "1h", "1d"],
    }


def test_a_fresh_installation_looks_after_its_archive(caller):
    """Compaction and rollups each hour, retention each day, as schedules that an administrator can change."""
    from django.core.management import call_command

    call_command("migrate", "reports", "0002", verbosity=0)
    call_command("migrate", "reports", verbosity=0)

    admin = caller("admin")
    schedules = {schedule["job"]: schedule for schedule in admin("GET", "reports/schedules")[1]["schedules"]}
    assert {job: schedule["cron"] for job, schedule in schedules.items()} == {
        "compact": "5 * * * *",
        "rollup": "20 * * * *",
        "retain": "40 2 * * *",
    }
    assert {(s["enabled"], s["overlap"], s["created_by"]) for s in schedules.values()} == {(True, "skip", "nsq")}
    assert {json.loads(entry.kwargs)["report_id"] for entry in beat_entries()} == {s["id"] for s in schedules.values()}
    path = f"reports/schedules/{schedules['retain']['id']}"
    status, changed = admin("PATCH", path, {"parameters": {"samples": "90d"}, "cron": "0 4 * * *"})
    assert (status, changed["parameters"], changed["cron"]) == (200, {"samples": "90d"}, "0 4 * * *")
    [entry] = [entry for entry in beat_entries() if json.loads(entry.kwargs)["report_id"] == changed["id"]]
    assert (entry.crontab.minute, entry.crontab.hour) == ("0", "4")

    assert admin("DELETE", path)[0] == 204
    call_command("migrate", verbosity=0)
    assert {schedule["job"] for schedule in admin("GET", "reports/schedules")[1]["schedules"]} == {"compact", "rollup"}


def test_existing_maintenance_schedules_are_kept(caller):
    """An older installation has a compaction of its own: the migration adds the other two."""
    from django.core.management import call_command

    admin = caller("admin")
    mine = admin("POST", "reports/schedules", {"name": "nightly", "job": "compact", "every_seconds": 86400})[1]
    call_command("migrate", "reports", "0002", verbosity=0)
    call_command("migrate", "reports", verbosity=0)

    found = {schedule["job"]: schedule["id"] for schedule in admin("GET", "reports/schedules")[1]["schedules"]}
    assert set(found) == {"compact", "rollup", "retain"}
    assert found["compact"] == mine["id"]
