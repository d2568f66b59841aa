from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("cluster", "0003_node_events")]

    operations = [
        migrations.CreateModel(
            name="Mask",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("topic_pattern", models.CharField(max_length=64)),
                ("paths", models.JSONField()),
                (
                    "visible_to",
                    models.CharField(
                        choices=[("viewer", "Viewer"), ("operator", "Operator"), ("admin", "Admin")],
                        default="admin",
                        max_length=16,
                    ),
                ),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={"ordering": ["topic_pattern", "id"]},
        ),
    ]
