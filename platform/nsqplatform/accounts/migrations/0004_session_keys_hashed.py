from __future__ import annotations

import hashlib
from typing import Any

from django.db import migrations


def hash_keys(apps: Any, schema_editor: Any) -> None:
    """Nobody is signed out: the cookies keep the keys."""
    sessions = apps.get_model("accounts", "Session").objects
    for key in list(sessions.values_list("session_key", flat=True)):
        sessions.filter(session_key=key).update(session_key=hashlib.sha256(key.encode()).hexdigest()[:40])


def sign_everyone_out(apps: Any, schema_editor: Any) -> None:
    apps.get_model("accounts", "Session").objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_people_tokens_sessions")]

    operations = [migrations.RunPython(hash_keys, sign_everyone_out)]
