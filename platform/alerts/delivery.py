"""Handing a message to a notifier: a webhook is posted JSON, people are sent e-mail."""

from __future__ import annotations

import re
from smtplib import SMTPException

import httpx
from django.core.mail import send_mail
from django.utils import timezone

from accounts.audit import printable
from alerts.models import Notifier
from alerts.wording import Message, test_message
from cluster.directory import reason_of

TIMEOUT_S = 10.0


class Undelivered(Exception):
    """Says, in a line, what the webhook or the mail server did instead of taking it."""


def send(notifier: Notifier, message: Message) -> None:
    """Deliver, or raise Undelivered; takes some TIMEOUT_S at most."""
    try:
        if notifier.kind == Notifier.Kind.WEBHOOK:
            _post(notifier.url, message)
        else:
            _mail(notifier.recipients, message)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Undelivered(reason_of(error)) from None
    except (SMTPException, OSError) as error:
        raise Undelivered(str(error) or type(error).__name__) from None


def send_test(notifier: Notifier, *, by: str) -> str:
    """Deliver a message that says it is a test; return what went wrong, empty if nothing did."""
    try:
        send(notifier, test_message(by))
    except Undelivered as error:
        return str(error)
    return ""


def note(notifier_id: int, error: str) -> None:
    """Keep how a delivery went, for everybody to see."""
    now = timezone.now()
    found = Notifier.objects.filter(pk=notifier_id)
    if error:
        found.update(last_error=printable(error)[:500], last_error_at=now)
    else:
        found.update(last_error="", last_error_at=None, last_sent_at=now)


def _post(url: str, message: Message) -> None:
    """Slack and those that understand its webhooks show ``text``; the rest of the body is for machines."""
    body = {"text": _for_slack(message.text), **message.fields}
    with httpx.stream("POST", url, json=body, timeout=TIMEOUT_S) as response:
        if not response.is_success:
            said = next(response.iter_bytes(300), b"").decode(errors="replace")
            raise Undelivered(f"answers {response.status_code} {said}".strip())


def _for_slack(text: str) -> str:
    """The three characters by which Slack's markup begins."""
    return re.sub(r"[&<>]", lambda found: {"&": "&amp;", "<": "&lt;", ">": "&gt;"}[found[0]], text)


def _mail(recipients: list[str], message: Message) -> None:
    subject = " ".join(message.title.split())[:200]
    send_mail(subject, message.text, None, recipients)
