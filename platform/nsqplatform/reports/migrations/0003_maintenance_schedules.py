"""Schedules the maintenance of the archive from the first start: compaction, rollups and retention.

They are ordinary schedules, which an administrator can change, disable or delete in the web app; they are not created
again. No schedule is created for a job that already has one.
"""

import json

from django.db import migrations

# The rollup runs a quarter of an hour after the compaction, so that it reads compacted files.
SCHEDULES = {
    "compact": ("Compact the archive", "5 * * * *"),
    "rollup": ("Roll up the archive", "20 * * * *"),
    "retain": ("Remove expired data", "40 2 * * *"),
}
KEEP_DAYS = 7


def schedule_maintenance(apps, schema_editor):
    Report = apps.get_model("reports", "Report")
    PeriodicTask = apps.get_model("django_celery_beat", "PeriodicTask")
    CrontabSchedule = apps.get_model("django_celery_beat", "CrontabSchedule")
    for job, (name, cron) in SCHEDULES.items():
        if Report.objects.filter(job=job).exists() or Report.objects.filter(name=name).exists():
            continue
        minute, hour, day_of_month, month_of_year, day_of_week = cron.split()
        crontab = CrontabSchedule.objects.create(
            minute=minute,
            hour=hour,
            day_of_month=day_of_month,
            month_of_year=month_of_year,
            day_of_week=day_of_week,
            timezone="UTC",
        )
        report = Report.objects.create(name=name, job=job, cron=cron, keep_days=KEEP_DAYS, created_by="nsq")
        report.periodic_task = PeriodicTask.objects.create(
            name=f"report {report.pk}: {name}",
            task="reports.run_scheduled",
            kwargs=json.dumps({"report_id": report.pk}),
            crontab=crontab,
        )
        report.save()


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0002_schedules_policies"),
    ]

    operations = [
        migrations.RunPython(schedule_maintenance, migrations.RunPython.noop),
    ]
