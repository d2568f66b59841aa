"""Adds the estimated remaining time of a run."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0004_skipped_due_times"),
    ]

    operations = [
        migrations.AddField("reportrun", "left_s", models.PositiveIntegerField(null=True)),
    ]
