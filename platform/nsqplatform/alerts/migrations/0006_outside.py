"""Rules that compare a figure with past weeks: the comparison ``outside``."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models

COMPARISONS = [("above", "Above"), ("below", "Below"), ("outside", "Outside")]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("alerts", "0005_objectives")]

    operations: ClassVar = [
        migrations.AlterField(
            "rule", "comparison", models.CharField(choices=COMPARISONS, default="above", max_length=8)
        ),
        migrations.AlterField("alert", "comparison", models.CharField(choices=COMPARISONS, max_length=8)),
    ]
