"""``python -m tests.failures.prepare_platform``: fill a new database of the platform and print what is in it, as JSON.

Two administrators with a token each, and rows that no request creates: an alert, and a report's run with a result.
"""

from __future__ import annotations

import json
import secrets

from nsqplatform.console.nsq.prepare import prepare_platform


def prepare() -> dict[str, int | str]:
    """``token`` and ``fuzzer_token`` are bearer tokens, ``password`` is that of the account ``fuzzer``, ``alert_id``
    and ``run_id`` are rows."""
    prepare_platform()
    from django.conf import settings
    from django.utils.timezone import now

    from nsqplatform.accounts.models import User
    from nsqplatform.accounts.roles import Role
    from nsqplatform.accounts.services import create_account
    from nsqplatform.accounts.tokens import create_token
    from nsqplatform.alerts.models import Alert
    from tests.reports.seeded import latency_run

    alert = Alert.objects.create(
        rule_name="Deep",
        severity="warning",
        scope="channel",
        metric="depth",
        comparison="above",
        threshold=1.0,
        hold_s=0,
        topic="t",
        channel="c",
        began_at=now(),
        fired_at=now(),
    )
    password = secrets.token_urlsafe()
    fuzzer = create_account(username="fuzzer", role=Role.ADMIN, password=password)
    return {
        "token": create_token(user=User.objects.get(username="admin"), name="bystander"),
        "fuzzer_token": create_token(user=fuzzer, name="fuzzer"),
        "password": password,
        "alert_id": alert.pk,
        "run_id": latency_run(settings.NSQ_REPORTS).pk,
    }


if __name__ == "__main__":
    print(json.dumps(prepare()))
