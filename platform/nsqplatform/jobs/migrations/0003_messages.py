from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("jobs", "0002_clusters")]

    operations: ClassVar = [
        migrations.AddField("jobsubject", "messages", models.TextField(blank=True, default="")),
    ]
