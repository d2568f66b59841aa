from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("cluster", "0006_message_types")]

    operations = [
        migrations.AddField(
            model_name="mask",
            name="visible_headers",
            field=models.JSONField(default=list),
        ),
    ]
