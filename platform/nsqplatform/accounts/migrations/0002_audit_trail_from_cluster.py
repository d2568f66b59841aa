"""Moves the audit trail here from ``cluster``, because it also records changes of accounts. No row is copied: only the
table is renamed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("cluster", "0001_initial")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="AuditEntry",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("at", models.DateTimeField(auto_now_add=True)),
                        ("user", models.CharField(max_length=150)),
                        ("action", models.CharField(max_length=16)),
                        ("topic", models.CharField(max_length=64)),
                        ("channel", models.CharField(max_length=64, null=True)),
                        ("outcome", models.CharField(max_length=16)),
                        ("results", models.JSONField()),
                        ("remote_address", models.CharField(max_length=64)),
                    ],
                    options={"ordering": ["-id"], "db_table": "cluster_auditentry"},
                )
            ]
        ),
        migrations.AlterModelTable("auditentry", None),
    ]
