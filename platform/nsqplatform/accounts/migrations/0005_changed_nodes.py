"""The nodes that each audit entry has changed, in a table with an index."""

import django.db.models.deletion
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

BATCH = 500


def fill(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Add the nodes of the entries that exist."""
    entries = apps.get_model("accounts", "AuditEntry").objects.order_by("pk")
    changed_node = apps.get_model("accounts", "ChangedNode")
    for entry in entries.exclude(results=[]).iterator(chunk_size=BATCH):
        nodes = {
            each["node"][:300]
            for each in entry.results
            if isinstance(each, dict) and each.get("outcome") == "done" and each.get("node")
        }
        changed_node.objects.bulk_create(changed_node(entry=entry, node=node, at=entry.at) for node in sorted(nodes))


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_session_keys_hashed")]

    operations = [
        migrations.CreateModel(
            name="ChangedNode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("node", models.CharField(max_length=300)),
                ("at", models.DateTimeField()),
                (
                    "entry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="changed_nodes",
                        to="accounts.auditentry",
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["node", "-at"], name="changed_node_by_time")]},
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
