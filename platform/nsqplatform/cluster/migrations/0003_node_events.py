from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("cluster", "0002_audit_trail_to_accounts")]

    operations = [
        migrations.CreateModel(
            name="NodeEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_index=True)),
                ("node", models.CharField(max_length=300)),
                (
                    "kind",
                    models.CharField(
                        choices=[("down", "Down"), ("up", "Up"), ("restarted", "Restarted")], max_length=16
                    ),
                ),
                ("detail", models.CharField(blank=True, default="", max_length=500)),
            ],
            options={"ordering": ["-id"]},
        ),
    ]
