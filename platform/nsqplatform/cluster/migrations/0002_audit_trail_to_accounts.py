"""Removes AuditEntry from this application: it belongs to ``accounts``, whose migration has renamed the table."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("cluster", "0001_initial"), ("accounts", "0002_audit_trail_from_cluster")]

    operations = [migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("AuditEntry")])]
