"""Adds when a schedule last created a run, and how often it was due and created none."""

from django.db import migrations, models


def keep_last_runs(apps, schema_editor):
    for report in (
        apps.get_model("reports", "Report").objects.exclude(periodic_task=None).select_related("periodic_task")
    ):
        report.last_run_at = report.periodic_task.last_run_at
        report.save(update_fields=["last_run_at"])


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0003_maintenance_schedules"),
    ]

    operations = [
        migrations.AddField("report", "last_run_at", models.DateTimeField(null=True)),
        migrations.AddField("report", "skipped_count", models.PositiveIntegerField(default=0)),
        migrations.AddField("report", "last_skipped_at", models.DateTimeField(null=True)),
        migrations.AddField("report", "last_skip_reason", models.CharField(blank=True, default="", max_length=200)),
        migrations.RunPython(keep_last_runs, migrations.RunPython.noop),
    ]
