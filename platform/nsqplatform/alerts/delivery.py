"""Sends a message to a notifier, and stores the outcome."""

from __future__ import annotations

from django.utils import timezone

from nsqplatform import outbound
from nsqplatform.accounts.audit import printable
from nsqplatform.alerts.message import Message, test_message
from nsqplatform.alerts.models import Notifier
from nsqplatform.outbound import Undelivered


def send(notifier: Notifier, message: Message) -> None:
    """Send ``message``. Raises Undelivered."""
    if notifier.kind == Notifier.Kind.WEBHOOK:
        outbound.post(notifier.url, text=message.text, fields=message.fields.model_dump())
    else:
        outbound.mail(notifier.recipients, title=message.title, text=message.text)


def send_test(notifier: Notifier, *, by: str) -> str:
    """Send a test message; return the error, or an empty string."""
    try:
        send(notifier, test_message(by))
    except Undelivered as error:
        return str(error)
    return ""


def record_outcome(notifier_id: int, error: str) -> None:
    """Store the outcome of a delivery; an empty ``error`` is success."""
    now = timezone.now()
    found = Notifier.objects.filter(pk=notifier_id)
    if error:
        found.update(last_error=printable(error)[:500], last_error_at=now)
    else:
        found.update(last_error="", last_error_at=None, last_sent_at=now)
