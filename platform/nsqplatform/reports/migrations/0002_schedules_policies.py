from django.db import migrations, models


def forget_the_task_of_looking(apps, schema_editor):
    """Delete the periodic task that closed abandoned runs: beat closes them itself, and workers no longer have the
    task."""
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(task="reports.fail_abandoned_runs").delete()


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0001_initial"),
    ]

    operations = [
        migrations.RunPython(forget_the_task_of_looking, migrations.RunPython.noop),
        migrations.AddField(
            model_name="report",
            name="keep_days",
            field=models.PositiveSmallIntegerField(default=90),
        ),
        migrations.AddField(
            model_name="report",
            name="notify_email",
            field=models.CharField(blank=True, default="", max_length=500),
        ),
        migrations.AddField(
            model_name="report",
            name="notify_on",
            field=models.CharField(
                choices=[("never", "Never"), ("failure", "Failure"), ("completion", "Completion")],
                default="never",
                max_length=12,
            ),
        ),
        migrations.AddField(
            model_name="report",
            name="notify_webhook",
            field=models.CharField(blank=True, default="", max_length=500),
        ),
        migrations.AddField(
            model_name="report",
            name="overlap",
            field=models.CharField(
                choices=[("skip", "Skip"), ("queue", "Queue"), ("cancel", "Cancel")], default="skip", max_length=8
            ),
        ),
        migrations.AddField(
            model_name="report",
            name="retries",
            field=models.PositiveSmallIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="report",
            name="retry_after_s",
            field=models.PositiveIntegerField(default=60),
        ),
        migrations.AddField(
            model_name="report",
            name="time_limit_s",
            field=models.PositiveIntegerField(default=7200),
        ),
        migrations.AddField(
            model_name="reportrun",
            name="attempt",
            field=models.PositiveSmallIntegerField(default=1),
        ),
        migrations.AddField(
            model_name="reportrun",
            name="keep_days",
            field=models.PositiveSmallIntegerField(default=90),
        ),
        migrations.AddField(
            model_name="reportrun",
            name="not_before",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="reportrun",
            name="result_dropped_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="reportrun",
            name="stages",
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name="reportrun",
            name="time_limit_s",
            field=models.PositiveIntegerField(default=7200),
        ),
    ]
